//! Processor time of the threads that help an operation, which counts as the call's time.

use std::cell::Cell;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

thread_local! {
    /// Time since it was last taken.
    static HELPED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Returns the processor time of this thread so far, as the scheduler counts it, to the nanosecond.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// Returns the processor time that other threads spent on operations of this thread since the last call, and resets it.
pub fn take_helpers_time() -> Duration {
    HELPED.take()
}

/// Adds processor time of other threads to an operation that was called on this thread.
pub(super) fn helped(time: Duration) {
    HELPED.set(HELPED.get() + time);
}
