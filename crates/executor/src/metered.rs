//! Resources that a command used, as the kernel counted them for its leaf cgroup.
//!
//! The worker reports the values of `wait4(2)` for the command and the children that it waited for. Hostile code runs as the same user and
//! may falsify them, and they do not include processes that left their parent. The values here come from the kernel directly, and take
//! precedence over the worker's.

use std::time::Duration;

use operations::OpResult;
use worker_protocol::client::{Finished, Usage};

/// Resources of one command and all processes that it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Metered {
    /// Processor time, user and system. `None` if no cgroup counts it; then the worker's value is used.
    pub(crate) cpu_time: Option<Duration>,
    /// Peak resident memory of the largest process that was still there when the command was ended, in bytes, or 0 if there was none.
    ///
    /// Processes that ended before are in the worker's value, if their parent waited for them.
    pub(crate) peak_memory_bytes: u64,
}

impl Metered {
    /// Combines the worker's values with the measured ones: the measured processor time, if there is one, and the larger peak of memory.
    pub fn over(self, said: Usage) -> Usage {
        let cpu_time_us = self.cpu_time.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        let peak_memory_bytes = match (said.peak_memory_bytes, self.peak_memory_bytes) {
            (said, 0) => said,
            (said, seen) => Some(seen.max(said.unwrap_or_default())),
        };
        Usage { cpu_time_us: cpu_time_us.or(said.cpu_time_us), peak_memory_bytes }
    }

    /// Updates the values of a call and of its result, so that the caller sees the same values as the record.
    pub(crate) fn settle(self, finished: &mut Finished) {
        finished.usage = self.over(finished.usage);
        if let Ok(Some(result)) = finished.outcome.as_mut().map(OpResult::command_mut) {
            result.cpu_time_us = finished.usage.cpu_time_us.unwrap_or_default();
            result.peak_memory_bytes = finished.usage.peak_memory_bytes.unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use operations::{ExecResult, Reason, ToolFailure};

    use super::*;

    const SAID: Usage = Usage { cpu_time_us: Some(900), peak_memory_bytes: Some(4_096) };

    fn metered(cpu_time: Option<u64>, peak_memory_bytes: u64) -> Metered {
        Metered { cpu_time: cpu_time.map(Duration::from_micros), peak_memory_bytes }
    }

    fn usage(cpu_time_us: u64, peak_memory_bytes: u64) -> Usage {
        Usage { cpu_time_us: Some(cpu_time_us), peak_memory_bytes: Some(peak_memory_bytes) }
    }

    #[test]
    fn kernel_counts_override_reported_usage() {
        // Neither more nor less than it was: a worker can claim both.
        assert_eq!(metered(Some(5_000), 0).over(SAID), usage(5_000, 4_096));
        assert_eq!(metered(Some(5), 0).over(SAID), usage(5, 4_096));
        // Each knows of processes that the other does not.
        assert_eq!(metered(None, 8_192).over(SAID), usage(900, 8_192));
        assert_eq!(metered(None, 100).over(SAID), SAID);
        assert_eq!(Metered::default().over(Usage::default()), Usage::default());
        let lost = metered(Some(7), 8).over(Usage::default());
        assert_eq!(lost, usage(7, 8));
    }

    #[test]
    fn answer_and_record_say_the_same() {
        let result = ExecResult { cpu_time_us: 900, peak_memory_bytes: 4_096, ..Default::default() };
        let outcome = Ok(OpResult::Shell(result));
        let mut finished =
            Finished { outcome, bound: operations::Bound::default(), usage: SAID, bytes_in: 1, bytes_out: 2 };
        metered(Some(77), 5_000).settle(&mut finished);
        let result = finished.outcome.as_ref().ok().and_then(OpResult::command).unwrap();
        assert_eq!((result.cpu_time_us, result.peak_memory_bytes), (77, 5_000));
        assert_eq!(finished.usage, usage(77, 5_000));

        let lost = Err(ToolFailure::new(Reason::Cancelled, "lost"));
        let mut failed = Finished {
            outcome: lost,
            bound: operations::Bound::default(),
            usage: Usage::default(),
            bytes_in: 0,
            bytes_out: 0,
        };
        metered(Some(77), 0).settle(&mut failed);
        assert_eq!(failed.usage, Usage { cpu_time_us: Some(77), peak_memory_bytes: None });
    }
}
