//! What a run costs a host beside what its commands do.
//!
//! `tests/bench.sh --lane runs --costs FILE` measures it: the memory of each process (its share of what it shares with others, `Pss` of
//! `/proc/PID/smaps_rollup`; of a container what its cgroup counts, where that is more), threads, processor time and files, first with one
//! idle run, then with 101, divided by their difference. Memory that the kernel keeps for namespaces and mounts is not in it.
//!
//! The built-in costs are from a release build on a busy machine of two cores. What is there without runs (`base`) has what the engine
//! did for others at the time.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::amounts::Amounts;
use crate::failure::Failure;

/// Far more than such a file has, bytes.
const LARGEST_FILE: u64 = 64 << 10;

/// Costs, and where they come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Costs {
    pub(super) measured: Measured,
    /// What the daemon and the engine take without runs.
    pub(super) base: Amounts,
    /// What each idle run takes.
    pub(super) run: Parts,
}

/// When and on what they were measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Measured {
    /// Such as 2026-11-25.
    pub(super) date: String,
    pub(super) cofferd: String,
    pub(super) engine: String,
    pub(super) kernel: String,
    pub(super) image: String,
    pub(super) runs: u64,
}

/// Whose costs they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parts {
    pub(super) cofferd: Amounts,
    /// `dockerd` and `containerd`.
    pub(super) engine: Amounts,
    /// The container's `containerd-shim`.
    pub(super) shim: Amounts,
    /// Its first process and the guest. The run's limits count them, too.
    pub(super) container: Amounts,
}

impl Parts {
    pub(super) fn idle(&self) -> Amounts {
        self.outside().and(self.container)
    }

    /// A run that uses up its limits, which bound all within its container.
    pub(super) fn busy(&self, limits: Amounts) -> Amounts {
        self.outside().and(limits)
    }

    fn outside(&self) -> Amounts {
        self.cofferd.and(self.engine).and(self.shim)
    }
}

impl Costs {
    /// Measured by us.
    pub(super) fn built_in() -> Result<Self, Failure> {
        Self::parse(include_str!("costs.json"), "the built-in costs")
    }

    /// From a file of the benchmark's.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let unreadable = |error| Failure::usage(format!("{} cannot be read: {error}", path.display()));
        let mut text = String::new();
        File::open(path)
            .map_err(unreadable)?
            .take(LARGEST_FILE)
            .read_to_string(&mut text)
            .map_err(unreadable)?;
        Self::parse(&text, &path.display().to_string())
    }

    fn parse(text: &str, name: &str) -> Result<Self, Failure> {
        serde_json::from_str(text).map_err(|error| {
            Failure::usage(format!(
                "{name}: {error}; `tests/bench.sh --lane runs --costs FILE` writes such a file"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_costs_are_whole_and_say_when_they_were_measured() {
        let Costs { measured, base, run } = Costs::built_in().unwrap();
        assert_eq!(measured.date.len(), "2026-11-25".len());
        assert!(measured.runs >= 50 && !measured.engine.is_empty(), "{measured:?}");
        assert!(base.memory_bytes > 1 << 20 && base.pids > 0, "{base:?}");
        let idle = run.idle();
        assert!((1 << 20..1 << 30).contains(&idle.memory_bytes), "{idle:?}");
        assert!(idle.pids >= 2 && run.shim.memory_bytes > 0 && run.container.pids >= 2, "{run:?}");
    }

    #[test]
    fn a_busy_run_takes_its_limits_and_what_is_outside_of_its_container() {
        let part = |memory_bytes| Amounts { memory_bytes, cpu_micros: 1, pids: 2, disk_bytes: 3 };
        let run = Parts { cofferd: part(1), engine: part(10), shim: part(100), container: part(1_000) };
        assert_eq!(run.idle(), Amounts { memory_bytes: 1_111, cpu_micros: 4, pids: 8, disk_bytes: 12 });
        let limits = Amounts { memory_bytes: 10_000, cpu_micros: 10, pids: 20, disk_bytes: u64::MAX };
        let busy = Amounts { memory_bytes: 10_111, cpu_micros: 13, pids: 26, disk_bytes: u64::MAX };
        assert_eq!(run.busy(limits), busy);
    }

    #[test]
    fn a_file_of_others_is_refused_with_what_is_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("costs.json");
        for (text, wrong) in [
            ("", "EOF"),
            ("{}", "missing field `measured`"),
            (&include_str!("costs.json").replacen("\"pids\":", "\"threads\":", 1), "unknown field `threads`"),
            (&include_str!("costs.json").replacen("\"pids\": ", "\"pids\": -", 1), "invalid value"),
        ] {
            std::fs::write(&file, text).unwrap();
            let failure = Costs::read(&file).unwrap_err().to_string();
            assert!(failure.contains(wrong) && failure.contains("--lane runs --costs"), "{failure}");
        }
        std::fs::write(&file, include_str!("costs.json")).unwrap();
        assert_eq!(Costs::read(&file).unwrap(), Costs::built_in().unwrap());
        assert!(Costs::read(&directory.path().join("none")).is_err());
    }
}
