//! Processor time of what is in a leaf, and of what was in it: also of processes that left their parents, and of those
//! that were killed.
//!
//! `wait4(2)` tells only of a child and of what that has waited for itself. The kernel's count for a cgroup has all:
//!
//! - cgroup v2: `usage_usec` in each cgroup's own `cpu.stat`, whichever controllers are enabled.
//! - cgroup v1: `cpuacct.usage`, nanoseconds. Where that hierarchy is another one than the freezer's, a leaf gets a
//!   cgroup of the same name there, and each process is moved twice. The second move does not wait for another grace
//!   period of RCU while that of the first is not over. Where `cpu` is mounted together with it, the commands of a
//!   container share its time evenly among each other, and as one with the guest; its share of the host is the same.
//!
//! A meter is never a condition: a command without one runs, and its usage is what its parent can tell.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::count::Count;
use super::hierarchy::{Hierarchy, dir_of};
use super::process::HostProcess;
use super::{COMMANDS, CgroupError, LEAF, failed};
use crate::ids::ContainerId;

/// The file of cgroup v1, in nanoseconds.
const V1: &str = "cpuacct.usage";
/// The file of cgroup v2, in lines.
const V2: &str = "cpu.stat";

/// Where the leaves of a container are counted.
#[derive(Debug, Clone)]
pub(super) enum Meters {
    /// In the leaf itself, in this file.
    InLeaf(&'static str),
    /// Below this cgroup of the `cpuacct` hierarchy.
    Beside(PathBuf),
    Nowhere,
}

impl Meters {
    /// Finds them for a container that is at `dir` of `hierarchy`.
    pub(super) fn locate(
        hierarchy: Hierarchy,
        dir: &Path,
        membership: &str,
        mounts: &[u8],
        container: &ContainerId,
    ) -> Self {
        // Controllers of cgroup v1 may share a hierarchy; then the freezer's leaf has the file.
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

    /// One for the leaf that was just made there.
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

    /// Removes what an earlier life of this program has left; what is not empty stays, and goes with its container.
    pub(super) fn remove_former(&self) {
        let Self::Beside(commands) = self else { return };
        let Ok(entries) = fs::read_dir(commands) else { return };
        for entry in entries.flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(LEAF)) {
                remove(&entry.path());
            }
        }
    }
}

/// The meter of one leaf. A cgroup of its own is removed when it is dropped.
#[derive(Debug)]
pub(super) struct Meter {
    count: Count,
    own: Option<PathBuf>,
}

impl Meter {
    /// From now on this process counts, and all that it starts.
    pub(super) fn add(&self, process: &HostProcess) -> Result<(), CgroupError> {
        let Some(own) = &self.own else { return Ok(()) };
        fs::write(own.join("cgroup.procs"), process.pid().to_string()).map_err(failed("meter the command"))
    }

    /// What was used until now, by those that are gone, too. `None` when the kernel does not say.
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
        tracing::debug!(%error, "the meter of a command was left behind");
    }
}

/// `usage_usec N` on a line of its own, or nanoseconds alone.
fn parse(text: &str) -> Option<Duration> {
    if let Ok(nanoseconds) = text.trim().parse() {
        return Some(Duration::from_nanos(nanoseconds));
    }
    let microseconds = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    Some(Duration::from_micros(microseconds.trim().parse().ok()?))
}

#[cfg(test)]
mod tests;
