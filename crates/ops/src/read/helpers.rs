//! What the threads use that help an operation, beside the one on which it was called: their time is the call's, too.

use std::cell::Cell;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

thread_local! {
    /// Since it was taken last.
    static HELPED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Processor time of this thread so far, as the scheduler counts it, to the nanosecond.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// Processor time of the threads that helped operations which were called on this thread, since it was taken last.
pub fn take_helpers_time() -> Duration {
    HELPED.take()
}

/// An operation that was called on this thread was helped for so long.
pub(super) fn helped(time: Duration) {
    HELPED.set(HELPED.get() + time);
}
