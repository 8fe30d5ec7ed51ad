//! Reading, listing and searching, on threads that may block; what cannot block is read at once.

use std::time::Duration;

use jail::Jail;
use ops::{Bounds, Cancel, Operation, Outcome, Read, Reason, ToolFailure};
use tokio::time::{sleep_until, timeout};

use crate::call::Call;
use crate::serve::Lane;

/// An operation that was told to stop does so between two blocks, unless the file system holds on to it.
const STOP: Duration = Duration::from_millis(500);

/// Reads a small file that the kernel has in memory, without the way to another thread and back, which takes longer than
/// the reading. `None` when it has to be done there all the same.
pub(crate) fn at_once(lane: &Lane, read: &Read, bounds: &Bounds) -> Option<Outcome> {
    let mount = lane.mounts.iter().filter(|(mount, _)| *mount == read.path.mount());
    ops::read_at_once(&Lane::jail(mount, bounds), read, bounds)
}

/// Runs the operation until it is done, cancelled, or out of time.
pub(crate) async fn run(call: &mut Call, lane: &Lane, operation: Operation) -> Outcome {
    let (mounts, bounds) = (lane.mounts.clone(), call.bounds.clone());
    let stop = Cancel::new(Some(call.deadline.into_std()));
    let asked = stop.clone();
    let mut work =
        lane.threads.run(move || execute(&Lane::jail(mounts.iter(), &bounds), &operation, &bounds, &asked));
    let deadline = call.deadline;
    let failure = tokio::select! {
        biased;
        outcome = &mut work => return outcome.unwrap_or_else(|_| Err(ending())),
        () = sleep_until(deadline) => ToolFailure::new(Reason::TimedOut, "not done before the call's deadline"),
        () = call.cancelled() => ToolFailure::new(Reason::Cancelled, "cancelled"),
    };
    stop.cancel();
    // Its own word says how far it came.
    match timeout(STOP, work).await {
        Ok(Ok(outcome)) => outcome,
        _ => Err(failure),
    }
}

fn execute(jail: &Jail, operation: &Operation, bounds: &Bounds, stop: &Cancel) -> Outcome {
    match operation {
        Operation::Read(read) => ops::read(jail, read, bounds, stop),
        Operation::List(list) => ops::list(jail, list, bounds, stop),
        Operation::Glob(glob) => ops::glob(jail, glob, bounds, stop),
        Operation::Grep(grep) => ops::grep(jail, grep, bounds, stop),
        Operation::Exec(_)
        | Operation::Shell(_)
        | Operation::Write(_)
        | Operation::Edit(_)
        | Operation::Patch(_)
        | Operation::Delete(_)
        | Operation::Git(_)
        | Operation::Mcp(_) => {
            let message = format!("{}: not a file operation of the container lane", operation.name());
            Err(ToolFailure::new(Reason::InvalidArgument, message))
        }
    }
}

fn ending() -> ToolFailure {
    ToolFailure::new(Reason::Cancelled, "the agent is ending")
}
