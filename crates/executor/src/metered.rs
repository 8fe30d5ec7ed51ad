//! Resources that a command used, as the kernel counted them for its leaf cgroup.
//!
//! The worker reports the values of `wait4(2)` for the command and the children that it waited for. Hostile code runs as the same user and
//! may falsify them, and they do not include processes that left their parent. The values here come from the kernel directly, and take
//! precedence over the worker's.

use std::time::Duration;

use worker_protocol::client::Usage;

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
}

#[cfg(test)]
mod tests {
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
}
