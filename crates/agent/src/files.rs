//! Reading, listing and searching, on threads that may block.

use std::time::Duration;

use jail::Jail;
use ops::{Bounds, Cancel, Operation, Outcome, Reason, ToolFailure};
use tokio::time::{sleep_until, timeout};

use crate::call::Call;
use crate::serve::Lane;

/// An operation that was told to stop does so between two blocks, unless the file system holds on to it.
const STOP: Duration = Duration::from_millis(500);

/// Runs the operation until it is done, cancelled, or out of time.
pub(crate) async fn run(call: &mut Call, lane: &Lane, operation: Operation) -> Outcome {
    let (mounts, bounds) = (lane.mounts(), call.bounds.clone());
    let stop = Cancel::new(Some(call.deadline.into_std()));
    let asked = stop.clone();
    let mut work =
        lane.threads.run(move || execute(&Lane::jail(&mounts, &bounds), &operation, &bounds, &asked));
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
        | Operation::Git(_) => {
            let message = format!("{}: not a file operation of the container lane", operation.name());
            Err(ToolFailure::new(Reason::InvalidArgument, message))
        }
    }
}

fn ending() -> ToolFailure {
    ToolFailure::new(Reason::Cancelled, "the agent is ending")
}
