//! The memory of the host, as far as containers that nobody has asked for may take it.

use std::fs::read_to_string;

/// Part of the memory that has to be available before containers are made to wait beyond the minimum.
const KEPT: u64 = 10;

/// Returns true if the host has memory for containers beyond the minimum. A host that does not tell has it.
#[expect(clippy::disallowed_methods, reason = "the host's /proc")]
pub(super) fn is_free() -> bool {
    read_to_string("/proc/meminfo").ok().and_then(|table| is_free_in(&table)).unwrap_or(true)
}

fn is_free_in(meminfo: &str) -> Option<bool> {
    let field = |name: &str| {
        let value = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        value.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    Some(field("MemAvailable:")? >= field("MemTotal:")? / KEPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_memory_stays_available() {
        let table =
            |total: u64, available: u64| format!("MemTotal: {total} kB\nMemAvailable: {available} kB\n");
        assert_eq!(is_free_in(&table(1_000, 100)), Some(true));
        assert_eq!(is_free_in(&table(1_000, 99)), Some(false));
        for unknown in ["", "MemTotal: 5 kB", "MemTotal: 5 kB\nMemAvailable: x kB", "MemAvailable: 5 MB"] {
            assert_eq!(is_free_in(unknown), None, "{unknown}");
        }
    }
}
