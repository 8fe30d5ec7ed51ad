//! Costs of a run for its host, in addition to those of its commands.
//!
//! `tests/bench.sh --lane runs --costs FILE` measures them: memory, threads, processor time and files, first with one idle run and then
//! with 101. The costs are the difference, divided by the number of runs. The memory of a process is its proportional share (`Pss` of
//! `/proc/PID/smaps_rollup`). The memory of a container is the value of its cgroup if that is higher. Memory of the kernel for namespaces
//! and mounts is not included.
//!
//! The built-in costs are from a release build on a busy machine of two cores. The resources without runs (`base`) include the work of the
//! engine for other containers at that time.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::amounts::Amounts;

/// Size limit of a file of costs, in bytes, which is far more than such a file has.
const LARGEST_FILE: u64 = 64 << 10;

/// Costs, and their origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    pub measured: Measured,
    /// Resources of the daemon and the engine without runs.
    pub base: Amounts,
    /// Resources of each idle run.
    pub run: Parts,
}

/// Date and system of the measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Date such as 2026-11-25.
    pub date: String,
    pub cofferd: String,
    pub engine: String,
    pub kernel: String,
    pub image: String,
    pub runs: u64,
}

/// Costs of a run in each process or container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parts {
    pub cofferd: Amounts,
    /// `dockerd` and `containerd`.
    pub engine: Amounts,
    /// The container's `containerd-shim`.
    pub shim: Amounts,
    /// The container's first process and the guest. The run's limits count them as well.
    pub container: Amounts,
}

impl Parts {
    pub fn idle(&self) -> Amounts {
        self.outside().and(self.container)
    }

    /// Returns the costs of a run that uses up its limits, which include all processes in its container.
    pub fn busy(&self, limits: Amounts) -> Amounts {
        self.outside().and(limits)
    }

    fn outside(&self) -> Amounts {
        self.cofferd.and(self.engine).and(self.shim)
    }
}

/// A file that has no costs.
#[derive(Debug, thiserror::Error)]
pub enum BadCosts {
    #[error("{0} cannot be read: {1}")]
    Unreadable(String, #[source] io::Error),
    #[error("{0}: {1}; `tests/bench.sh --lane runs --costs FILE` writes such a file")]
    Malformed(String, #[source] serde_json::Error),
}

impl Costs {
    /// Returns the built-in costs.
    pub fn built_in() -> Result<Self, BadCosts> {
        Self::parse(include_str!("costs.json"), "the built-in costs")
    }

    /// Reads the costs from a file that the benchmark wrote.
    pub fn read(path: &Path) -> Result<Self, BadCosts> {
        let name = path.display().to_string();
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(LARGEST_FILE).read_to_string(&mut text));
        match read {
            Ok(_) => Self::parse(&text, &name),
            Err(error) => Err(BadCosts::Unreadable(name, error)),
        }
    }

    fn parse(text: &str, name: &str) -> Result<Self, BadCosts> {
        serde_json::from_str(text).map_err(|error| BadCosts::Malformed(name.to_owned(), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_costs_are_complete_and_dated() {
        let Costs { measured, base, run } = Costs::built_in().unwrap();
        assert_eq!(measured.date.len(), "2026-11-25".len());
        assert!(measured.runs >= 50 && !measured.engine.is_empty(), "{measured:?}");
        assert!(base.memory_bytes > 1 << 20 && base.pids > 0, "{base:?}");
        let idle = run.idle();
        assert!((1 << 20..1 << 30).contains(&idle.memory_bytes), "{idle:?}");
        assert!(idle.pids >= 2 && run.shim.memory_bytes > 0 && run.container.pids >= 2, "{run:?}");
    }

    #[test]
    fn a_busy_run_costs_its_limits_and_the_share_outside_its_container() {
        let part = |memory_bytes| Amounts { memory_bytes, cpu_micros: 1, pids: 2, disk_bytes: 3 };
        let run = Parts { cofferd: part(1), engine: part(10), shim: part(100), container: part(1_000) };
        assert_eq!(run.idle(), Amounts { memory_bytes: 1_111, cpu_micros: 4, pids: 8, disk_bytes: 12 });
        let limits = Amounts { memory_bytes: 10_000, cpu_micros: 10, pids: 20, disk_bytes: u64::MAX };
        let busy = Amounts { memory_bytes: 10_111, cpu_micros: 13, pids: 26, disk_bytes: u64::MAX };
        assert_eq!(run.busy(limits), busy);
    }

    #[test]
    fn a_foreign_file_is_refused_with_the_problem() {
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
