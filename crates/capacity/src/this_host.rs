//! Resources of this host, which are the defaults of the options.

use std::fs::read_to_string;
use std::num::NonZero;

/// Returns the memory of this host in bytes.
pub fn memory() -> Option<u64> {
    total(&read_to_string("/proc/meminfo").ok()?)
}

fn total(meminfo: &str) -> Option<u64> {
    let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

pub fn cores() -> Option<u64> {
    std::thread::available_parallelism().ok().and_then(|cores| u64::try_from(NonZero::get(cores)).ok())
}

/// Returns the largest number of processes and threads that the kernel allows.
pub fn pids() -> Option<u64> {
    let number = |name| read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse::<u64>().ok();
    [number("pid_max"), number("threads-max")].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(total("MemTotal:       24000000 kB\nMemFree: 1 kB\n"), Some(24_576_000_000));
        for wrong in ["", "MemTotal: x kB", "MemTotal: 5 MB", "MemTotal: 18446744073709551615 kB"] {
            assert_eq!(total(wrong), None, "{wrong}");
        }
        assert!(memory().is_some() && cores() > Some(0) && pids() > Some(0));
    }
}
