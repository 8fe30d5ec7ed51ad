//! Processor time used in a leaf, including processes that left their parents and processes that were killed.
//!
//! `wait4(2)` reports only a child and the children that this child has waited for. The kernel's count for a cgroup includes all:
//!
//! - cgroup v2: `usage_usec` in the `cpu.stat` of each cgroup, whichever controllers are enabled.
//! - cgroup v1: `cpuacct.usage`, in nanoseconds. If that hierarchy is not the freezer's, a leaf gets a cgroup of the same name there, and
//!   each process is moved twice. The second move does not wait for another RCU grace period while that of the first is not over. If `cpu`
//!   is mounted together with it, the commands of a container share its time evenly among each other, and as one with the guest. The
//!   container's share of the host is the same.
//!
//! A meter is optional: a command without one runs, and its usage is the figure that its parent reports.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::count::Count;
use super::hierarchy::{Hierarchy, dir_of};
use super::process::HostProcess;
use super::{COMMANDS, CgroupError, LEAF, failed};
use crate::ids::ContainerId;

/// File of cgroup v1 that contains nanoseconds.
const V1: &str = "cpuacct.usage";
/// File of cgroup v2 that contains lines.
const V2: &str = "cpu.stat";

/// Location of the counters of a container's leaves.
#[derive(Debug, Clone)]
pub(super) enum Meters {
    /// This file in the leaf itself.
    InLeaf(&'static str),
    /// Cgroups below this one of the `cpuacct` hierarchy.
    Beside(PathBuf),
    Nowhere,
}

impl Meters {
    /// Finds the counters of a container that is at `dir` of `hierarchy`.
    pub(super) fn locate(
        hierarchy: Hierarchy,
        dir: &Path,
        membership: &str,
        mounts: &[u8],
        container: &ContainerId,
    ) -> Self {
        // Controllers of cgroup v1 may share a hierarchy. Then the freezer's leaf contains the file.
        let own = match hierarchy {
            Hierarchy::Unified => V2,
            Hierarchy::Freezer => V1,
        };
        if dir.join(own).exists() {
            return Self::InLeaf(own);
        }
        match dir_of(Some("cpuacct"), membership, mounts, container) {
            Ok(beside) if beside.join(V1).exists() => Self::Beside(beside.join(COMMANDS)),
            _ => Self::Nowhere,
        }
    }

    /// Makes a meter for a leaf that was just made.
    pub(super) fn meter(&self, leaf: &Path) -> Option<Meter> {
        let made = match self {
            Self::InLeaf(file) => Count::open(&leaf.join(file)).map(|count| Meter { count, own: None }),
            Self::Beside(commands) => beside(commands, leaf).and_then(|dir| {
                let count = Count::open(&dir.join(V1)).inspect_err(|_| remove(&dir))?;
                Ok(Meter { count, own: Some(dir) })
            }),
            Self::Nowhere => return None,
        };
        made.inspect_err(|error| tracing::debug!(%error, "the processor time of a command is not metered"))
            .ok()
    }

    /// Removes the meters that an earlier instance of this daemon left. A meter that is not empty is removed with its container.
    pub(super) fn remove_leftovers(&self) {
        let Self::Beside(commands) = self else { return };
        let Ok(entries) = fs::read_dir(commands) else { return };
        for entry in entries.flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(LEAF)) {
                remove(&entry.path());
            }
        }
    }
}

/// The meter of one leaf. A cgroup that was made only for it is removed when the meter is dropped.
#[derive(Debug)]
pub(super) struct Meter {
    count: Count,
    own: Option<PathBuf>,
}

impl Meter {
    /// Counts this process and its future children from now on.
    pub(super) fn add(&self, process: &HostProcess) -> Result<(), CgroupError> {
        let Some(own) = &self.own else { return Ok(()) };
        fs::write(own.join("cgroup.procs"), process.pid().to_string()).map_err(failed("meter the command"))
    }

    /// Returns the time used so far, including by processes that have ended. `None` if it cannot be read.
    pub(super) fn read(&self) -> Option<Duration> {
        self.count.read(parse)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(own) = &self.own {
            remove(own);
        }
    }
}

fn beside(commands: &Path, leaf: &Path) -> io::Result<PathBuf> {
    match fs::create_dir(commands) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let name = leaf.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let dir = commands.join(name);
    fs::create_dir(&dir)?;
    Ok(dir)
}

fn remove(dir: &Path) {
    if let Err(error) = fs::remove_dir(dir) {
        tracing::debug!(%error, "the meter cgroup of a command was not removed");
    }
}

/// Parses either a file with the line `usage_usec N`, or nanoseconds alone.
fn parse(text: &str) -> Option<Duration> {
    if let Ok(nanoseconds) = text.trim().parse() {
        return Some(Duration::from_nanos(nanoseconds));
    }
    let microseconds = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    Some(Duration::from_micros(microseconds.trim().parse().ok()?))
}

#[cfg(test)]
mod tests;
