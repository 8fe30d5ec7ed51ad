//! Reads, lists and searches on threads that may block. A read that cannot block is done at once.

use std::path::Path;
use std::time::Duration;

use file_ops::Cancel;
use jail::Jail;
use operations::{Bounds, Operation, Outcome, Read, Reason, ToolFailure};
use tokio::time::{sleep_until, timeout};
use wire::worker::v1::Usage;

use crate::args::Mounts;
use crate::call::Call;
use crate::lane::Lane;
use crate::outside;

/// Time in which an operation stops after it was told to. It stops between two blocks, unless the file system blocks it.
const STOP: Duration = Duration::from_millis(500);

/// Reads a small file that the kernel has in memory. Returns `None` if a thread has to read it after all.
///
/// The way to another thread and back takes longer than such a read.
pub(crate) fn at_once(lane: &Lane, read: &Read, bounds: &Bounds) -> Option<(Outcome, Usage)> {
    let (outcome, usage) = measured(|| {
        let mount = lane.mounts.iter().filter(|(mount, _)| *mount == read.path.mount());
        file_ops::read_at_once(&Lane::jail(mount, bounds), read, bounds)
    });
    outcome.map(|outcome| (outcome, usage))
}

/// Does the work of one call on this thread. Also returns the processor time that it took here and on the threads that helped.
///
/// Its memory is not reported: all calls share the guest's memory.
fn measured<T>(work: impl FnOnce() -> T) -> (T, Usage) {
    file_ops::take_helpers_time();
    let before = file_ops::thread_time();
    let done = work();
    let time = file_ops::thread_time().saturating_sub(before) + file_ops::take_helpers_time();
    let cpu_time_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    (done, Usage { cpu_time_us: Some(cpu_time_us), peak_memory_bytes: None })
}

/// Runs the operation until it is done, cancelled, or out of time.
pub(crate) async fn run(call: &mut Call, lane: &Lane, operation: Operation) -> (Outcome, Option<Usage>) {
    let (mounts, bounds) = (lane.mounts.clone(), call.bounds.clone());
    let stop = Cancel::new(Some(call.deadline.into_std()));
    let asked = stop.clone();
    let deadline = call.deadline;
    let timed_out = || ToolFailure::new(Reason::TimedOut, "not done before the call's deadline");
    let cancelled = || ToolFailure::new(Reason::Cancelled, "cancelled");
    let _turn = if operation.has_effect() {
        tokio::select! {
            biased;
            turn = lane.outside.lock() => Some(turn),
            () = sleep_until(deadline) => return (Err(timed_out()), None),
            () = call.cancelled() => return (Err(cancelled()), None),
        }
    } else {
        None
    };
    let mut work = lane.threads.run(move || {
        measured(|| {
            let jail = jail_for(&mounts, operation.outside().is_some(), &bounds)?;
            execute(&jail, &operation, &bounds, &asked)
        })
    });
    let failure = tokio::select! {
        biased;
        done = &mut work => return done.map_or_else(|_| (Err(ending()), None), told),
        () = sleep_until(deadline) => timed_out(),
        () = call.cancelled() => cancelled(),
    };
    stop.cancel();
    // Its own result says how far it got.
    match timeout(STOP, work).await {
        Ok(Ok(done)) => told(done),
        // It continues for a while, and its usage is unknown.
        _ => (Err(failure), None),
    }
}

fn told((outcome, usage): (Outcome, Usage)) -> (Outcome, Option<Usage>) {
    (outcome, Some(usage))
}

fn execute(jail: &Jail, operation: &Operation, bounds: &Bounds, stop: &Cancel) -> Outcome {
    match operation {
        Operation::Read(read) => file_ops::read(jail, read, bounds, stop),
        Operation::List(list) => file_ops::list(jail, list, bounds, stop),
        Operation::Glob(glob) => file_ops::glob(jail, glob, bounds, stop),
        Operation::Grep(grep) => file_ops::grep(jail, grep, bounds, stop),
        other => outside::write(jail, other, bounds),
    }
}

/// Returns the run's mounts. With `outside`, also the container's own files.
pub(crate) fn jail_for(mounts: &Mounts, outside: bool, bounds: &Bounds) -> Result<Jail, ToolFailure> {
    let jail = Lane::jail(mounts.iter(), bounds);
    if !outside {
        return Ok(jail);
    }
    jail.with_container(Path::new("/")).map_err(|error| {
        let message = format!("the container's own files cannot be opened here: {error}");
        ToolFailure::new(Reason::PreconditionFailed, message)
    })
}

fn ending() -> ToolFailure {
    ToolFailure::new(Reason::Cancelled, "the guest is ending")
}
