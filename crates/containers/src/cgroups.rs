//! A cgroup for each exec, by which its whole process tree can be ended.
//!
//! Processes that change their session, fork twice, ignore signals or are stopped are all still in it. A [`Leaf`] is a child of the
//! container's cgroup, so limits and pausing still apply, and removing the container removes it. There are two ways to end a leaf:
//!
//! - cgroup v2: freeze, write `cgroup.kill`, repeat until `populated 0`.
//! - v1 and hybrid hosts: the freezer. Freeze, send SIGKILL to all, thaw, repeat until it is empty.
//!
//! The container is hostile. A pid that it reports is only a claim. [`ContainerCgroup::process`] checks it against the container's cgroup
//! and the guest's pid namespace.
//!
//! A leaf also reports the processor time and memory used by any process in it: [`Leaf::cpu_time`] and [`Leaf::peak_memory`].
//!
//! The leaves of commands are in one of several cgroups below the container's, [`Commands`]. Freezing one of these freezes every command
//! in it, including commands that start later, but not the guest. With several of them, one command can run while all others are frozen
//! ([`Group::Alone`], [`Group::Terminal`]).
//!
//! All functions here do blocking file I/O in `/proc` and `/sys` that takes microseconds. [`Leaf::kill_all`] may wait until its deadline
//! and belongs on a blocking thread.

mod commands;
mod companion;
mod count;
mod ending;
mod hierarchy;
mod leaf;
mod limits;
mod meter;
mod process;
mod reattach;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

use crate::ids::ContainerId;
use hierarchy::Hierarchy;
use limits::Counters;
use meter::Meters;

pub use commands::Commands;
pub use ending::{KillEvidence, KillMethod};
pub use leaf::Leaf;
pub use limits::LimitEvents;
pub use process::HostProcess;
pub use reattach::{LeftoverLeaf, LeftoversEnded};

/// Prefix of the names of leaves.
const LEAF: &str = "cofferdam-";
/// Cgroup below the container's that holds the leaves of ordinary commands.
const COMMANDS: &str = "cofferdam-commands";
/// Cgroup for commands that run while the ordinary ones are frozen.
const ALONE: &str = "cofferdam-alone";
/// Cgroup for a terminal during which everything else of the run is frozen.
const TERMINAL: &str = "cofferdam-terminal";
/// Cgroup for processes that outlive their calls. The guest knows it by this name.
const PROCESSES: &str = "cofferdam-processes";
/// Cgroup for the keepers of such processes. It is never frozen.
const KEEPERS: &str = "cofferdam-keepers";

/// Error of an operation on a cgroup.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// No leaf can be made here. End commands by other means, at worst with their container.
    #[error("the container's cgroup cannot be used: {0}")]
    Unavailable(&'static str),
    /// The name does not consist of 1 to 64 of `[a-z0-9-]`.
    #[error("not a name for a cgroup: 1 to 64 lower-case letters, digits and hyphens")]
    BadName,
    /// The process has ended or does not belong to the container.
    #[error("no such process in the container")]
    NoSuchProcess,
    /// A file operation failed.
    #[error("cannot {attempt}")]
    Io {
        attempt: &'static str,
        /// Error from the kernel.
        #[source]
        source: io::Error,
    },
}

fn failed<E: Into<io::Error>>(attempt: &'static str) -> impl FnOnce(E) -> CgroupError {
    move |error| CgroupError::Io { attempt, source: error.into() }
}

/// Commands that are frozen together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Commands that are in neither of the other groups.
    Ordinary,
    /// Commands that run while the ordinary ones are frozen.
    Alone,
    /// A terminal during which all the others are frozen.
    Terminal,
    /// Processes that outlive their calls, and also a worker and a daemon.
    Processes,
}

impl Group {
    pub const ALL: [Self; 4] = [Self::Ordinary, Self::Alone, Self::Terminal, Self::Processes];
    /// Groups that end with the worker that started them.
    const OF_WORKER: [Self; 3] = [Self::Ordinary, Self::Alone, Self::Terminal];

    fn name(self) -> &'static str {
        match self {
            Self::Ordinary => COMMANDS,
            Self::Alone => ALONE,
            Self::Terminal => TERMINAL,
            Self::Processes => PROCESSES,
        }
    }
}

#[derive(Debug, Clone)]
pub struct ContainerCgroup {
    hierarchy: Hierarchy,
    dir: PathBuf,
    counters: Counters,
    meters: Meters,
    /// Directories of the container in the hierarchies that limit it.
    limited: Vec<PathBuf>,
}

impl ContainerCgroup {
    /// Finds the cgroup by the host pid of any process of the container.
    ///
    /// It checks by the cgroup's name that it is this container's, because the pid may have been reused since the engine reported it.
    pub fn of_pid(host_pid: u32, container: &ContainerId) -> Result<Self, CgroupError> {
        let membership =
            fs::read_to_string(format!("/proc/{host_pid}/cgroup")).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => CgroupError::NoSuchProcess,
                _ => failed("read the cgroup of the container")(error),
            })?;
        let mounts = fs::read("/proc/self/mountinfo").map_err(failed("list the mounts"))?;
        let (hierarchy, dir) = hierarchy::locate(&membership, &mounts, container)?;
        if !dir.join(hierarchy.control_file()).exists() {
            return Err(CgroupError::Unavailable("the cgroup file system does not show it"));
        }
        let counters = Counters::locate(&membership, &mounts, container);
        let meters = Meters::locate(hierarchy, &dir, &membership, &mounts, container);
        let limited = companion::locate(&membership, &mounts, container);
        Ok(Self { hierarchy, dir, counters, meters, limited })
    }

    /// Returns how often the container has hit its limits so far.
    pub fn limit_events(&self) -> LimitEvents {
        self.counters.read()
    }

    /// Returns true if the container may create this many more processes and threads.
    pub fn can_start(&self, processes: u64) -> bool {
        self.counters.can_start(processes)
    }

    /// Makes an empty leaf in `group`.
    ///
    /// The name must not be in use. The leaf is removed when the value is dropped.
    pub fn leaf(&self, group: Group, name: &str) -> Result<Leaf, CgroupError> {
        well_formed(name)?;
        self.commands(group).leaf(name, &self.meters)
    }

    /// Makes an empty leaf for the keeper of a process, under the same rules as [`Self::leaf`].
    pub fn keeper(&self, name: &str) -> Result<Leaf, CgroupError> {
        well_formed(name)?;
        self.keepers().leaf(name, &Meters::Nowhere)
    }

    /// Returns the leaves of a process and of its keeper that an earlier instance of this daemon left, where they exist.
    pub fn process_leaves(&self, name: &str) -> Result<(Option<Leaf>, Option<Leaf>), CgroupError> {
        well_formed(name)?;
        let process = self.commands(Group::Processes).existing_leaf(name);
        Ok((process, self.keepers().existing_leaf(name)))
    }

    fn keepers(&self) -> Commands {
        Commands::named(self.hierarchy, &self.dir, KEEPERS)
    }

    /// Returns the cgroup above all leaves of a group.
    pub fn commands(&self, group: Group) -> Commands {
        Commands::of(self.hierarchy, &self.dir, group)
    }

    /// Finds a process of the container by its pid inside the container.
    ///
    /// `guest_host_pid` is the guest's pid, from the engine. The claim `pid_in_container` is accepted only if a process of the container's
    /// cgroup has that number in the guest's own pid namespace.
    pub fn process(&self, guest_host_pid: u32, pid_in_container: u32) -> Result<HostProcess, CgroupError> {
        // A process that was just created is in its parent's cgroup, at the end of the list.
        let beside: Vec<_> = pids_in(&self.dir)?.into_iter().rev().collect();
        process::find(&beside, guest_host_pid, pid_in_container)
            .or_else(|_| process::find(&self.all_pids()?, guest_host_pid, pid_in_container))
    }

    /// Returns the host process whose root is the container's, which serves the container's files.
    ///
    /// Used if the host does not see the container's own processes, as with gVisor.
    pub fn file_server(&self) -> Option<u32> {
        // The directory of [`crate::GUEST_PATH`]. The root of the sandbox itself is empty.
        let has_root = |pid: &u32| fs::symlink_metadata(format!("/proc/{pid}/root/.cofferdam")).is_ok();
        self.pids().unwrap_or_default().into_iter().find(has_root)
    }

    /// Returns the pids on the host of all the container's processes.
    pub fn pids(&self) -> Result<Vec<u32>, CgroupError> {
        let pids = self.all_pids()?.into_iter();
        Ok(pids.map(|pid| pid.as_raw_nonzero().get().unsigned_abs()).collect())
    }

    /// Returns the container's processes, including those in leaves.
    fn all_pids(&self) -> Result<Vec<Pid>, CgroupError> {
        let mut pids = Vec::new();
        // Leaves are two levels below; the daemon makes no deeper cgroup.
        collect(&self.dir, 2, &mut pids)?;
        Ok(pids)
    }
}

fn well_formed(name: &str) -> Result<(), CgroupError> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_name = (1..=64).contains(&name.len()) && name.bytes().all(plain);
    if is_name { Ok(()) } else { Err(CgroupError::BadName) }
}

/// Collects the processes of a cgroup and of the cgroups down to `levels` below it.
fn collect(dir: &Path, levels: u32, pids: &mut Vec<Pid>) -> Result<(), CgroupError> {
    collect_but(dir, levels, &|_| false, pids)
}

/// Collects processes like [`collect`], without the directories that `left_out` excludes.
fn collect_but(
    dir: &Path,
    levels: u32,
    left_out: &dyn Fn(&Path) -> bool,
    pids: &mut Vec<Pid>,
) -> Result<(), CgroupError> {
    pids.extend(pids_in(dir)?);
    if levels == 0 {
        return Ok(());
    }
    let entries = match fs::read_dir(dir) {
        // A leaf that is being removed has no processes.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => read.map_err(failed("list the leaves"))?,
    };
    for entry in entries {
        let entry = entry.map_err(failed("list the leaves"))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && !left_out(&entry.path()) {
            collect_but(&entry.path(), levels - 1, left_out, pids)?;
        }
    }
    Ok(())
}

/// Returns the thread groups in one cgroup, without its children. Pids of other pid namespaces read as 0 and are skipped.
fn pids_in(dir: &Path) -> Result<Vec<Pid>, CgroupError> {
    let text = match fs::read_to_string(dir.join("cgroup.procs")) {
        // Only an empty cgroup can be removed, so the container and all its processes are gone.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => {
            return Ok(Vec::new());
        }
        read => read.map_err(failed("list the processes of the cgroup"))?,
    };
    Ok(text.lines().filter_map(|line| line.parse().ok().and_then(Pid::from_raw)).collect())
}
