//! A cgroup for each exec, so that its whole process tree can be ended: processes that changed their session, forked
//! twice, ignore signals or are stopped are all still in it.
//!
//! A [`Leaf`] is a child of the container's own cgroup: limits and pausing go on to work, and removing the container
//! removes it. Two kernels' ways of ending one at a stroke are known:
//!
//! - cgroup v2: freeze, `cgroup.kill`, again until `populated 0`.
//! - v1 and hybrid hosts: the freezer: freeze, SIGKILL all, thaw, again until it is empty.
//!
//! The container is hostile. A pid that it tells is only a claim, checked by [`ContainerCgroup::process`] against the
//! container's cgroup and the guest's pid namespace.
//!
//! A leaf also tells what was used in it, [`Leaf::cpu_time`] and [`Leaf::peak_memory`], by whatever was in there.
//!
//! All leaves of a container are in one of several cgroups of its own below the container's, [`Commands`]: what freezes that one
//! freezes every command in it, those that are still to come included, and not the guest. There are several so that one command
//! can run while all others stand still ([`Group::Alone`], [`Group::Terminal`]).
//!
//! Everything here is blocking file input and output in `/proc` and `/sys`, microseconds each; [`Leaf::kill_all`] may
//! wait until its deadline and belongs on a blocking thread.

mod commands;
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
pub use reattach::{FormerEnded, FormerLeaf};

/// What the names of leaves begin with.
const LEAF: &str = "cofferdam-";
/// The cgroup that they are in, below the container's.
const COMMANDS: &str = "cofferdam-commands";
/// The same for those that go on while the others stand still.
const ALONE: &str = "cofferdam-alone";
/// The same for a terminal during which everything else of the run is frozen.
const TERMINAL: &str = "cofferdam-terminal";
/// The same for processes that outlive their calls. The guest knows them by this name.
const PROCESSES: &str = "cofferdam-processes";
/// The same for what keeps such processes, which is never frozen.
const KEEPERS: &str = "cofferdam-keepers";

/// What went wrong with a cgroup.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// No leaf can be made here. End commands by other means, at worst with their container.
    #[error("the container's cgroup cannot be used: {0}")]
    Unavailable(&'static str),
    /// Not the name of a leaf: 1 to 64 of `[a-z0-9-]`.
    #[error("not a name for a cgroup: 1 to 64 lower-case letters, digits and hyphens")]
    BadName,
    /// The process is gone, or is none of the container's.
    #[error("no such process in the container")]
    NoSuchProcess,
    /// The file system said no.
    #[error("cannot {attempt}")]
    Io {
        attempt: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

fn failed<E: Into<io::Error>>(attempt: &'static str) -> impl FnOnce(E) -> CgroupError {
    move |error| CgroupError::Io { attempt, source: error.into() }
}

/// Which commands stand still together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Every command that is not one of the others.
    Ordinary,
    /// What runs while the ordinary ones stand still.
    Alone,
    /// A terminal during which all the others are frozen.
    Terminal,
    /// Processes that outlive their calls, and a worker and a daemon as well.
    Processes,
}

impl Group {
    pub const ALL: [Self; 4] = [Self::Ordinary, Self::Alone, Self::Terminal, Self::Processes];
    /// Those that end with the worker that has started them.
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
}

impl ContainerCgroup {
    /// Finds it by the host pid of any of the container's processes, and checks by its name that it is this
    /// container's: a pid may have been used again since the engine told it.
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
        Ok(Self { hierarchy, dir, counters, meters })
    }

    /// How often the container has run into its limits until now.
    pub fn limit_events(&self) -> LimitEvents {
        self.counters.read()
    }

    /// Returns whether the container may have so many more processes and threads as it has now.
    pub fn has_room(&self, processes: u64) -> bool {
        self.counters.have_room(processes)
    }

    /// Makes an empty leaf among `group`. The name must not be in use; it goes when the value is dropped.
    pub fn leaf(&self, group: Group, name: &str) -> Result<Leaf, CgroupError> {
        well_formed(name)?;
        self.commands(group).leaf(name, &self.meters)
    }

    /// Makes an empty leaf for the keeper of a process. The same holds for its name.
    pub fn keeper(&self, name: &str) -> Result<Leaf, CgroupError> {
        well_formed(name)?;
        self.keepers().leaf(name, &Meters::Nowhere)
    }

    /// A process and its keeper as an earlier life of this program has left them: their leaves, as far as they are there.
    pub fn former_process(&self, name: &str) -> Result<(Option<Leaf>, Option<Leaf>), CgroupError> {
        well_formed(name)?;
        let process = self.commands(Group::Processes).former_leaf(name);
        Ok((process, self.keepers().former_leaf(name)))
    }

    fn keepers(&self) -> Commands {
        Commands::named(self.hierarchy, &self.dir, KEEPERS)
    }

    /// All leaves of a group together.
    pub fn commands(&self, group: Group) -> Commands {
        Commands::of(self.hierarchy, &self.dir, group)
    }

    /// Finds a process of the container by the pid that it has there.
    ///
    /// `guest_host_pid` is the guest's, from the engine. The claim `pid_in_container` is believed only if exactly a
    /// process with that number in the guest's own pid namespace is in the container's cgroup.
    pub fn process(&self, guest_host_pid: u32, pid_in_container: u32) -> Result<HostProcess, CgroupError> {
        // One that was just made is where its parent is, and the last there.
        let beside: Vec<_> = pids_in(&self.dir)?.into_iter().rev().collect();
        process::find(&beside, guest_host_pid, pid_in_container)
            .or_else(|_| process::find(&self.all_pids()?, guest_host_pid, pid_in_container))
    }

    /// The process on the host that has the container's root as its own, where the container's processes are none of the
    /// host's: what serves it its files.
    pub fn file_server(&self) -> Option<u32> {
        // The directory of [`crate::GUEST_PATH`]. The sandbox has an empty root.
        let has_root = |pid: &u32| fs::symlink_metadata(format!("/proc/{pid}/root/.cofferdam")).is_ok();
        let pids = self.all_pids().unwrap_or_default();
        pids.into_iter().map(|pid| pid.as_raw_nonzero().get().unsigned_abs()).find(has_root)
    }

    /// The container's processes, those in leaves included.
    fn all_pids(&self) -> Result<Vec<Pid>, CgroupError> {
        let mut pids = Vec::new();
        // Leaves are two levels below; nothing of ours is deeper.
        collect(&self.dir, 2, &mut pids)?;
        Ok(pids)
    }
}

fn well_formed(name: &str) -> Result<(), CgroupError> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_name = (1..=64).contains(&name.len()) && name.bytes().all(plain);
    if is_name { Ok(()) } else { Err(CgroupError::BadName) }
}

/// The processes of a cgroup and of what is so many levels below it.
fn collect(dir: &Path, levels: u32, pids: &mut Vec<Pid>) -> Result<(), CgroupError> {
    collect_but(dir, levels, &|_| false, pids)
}

/// The same without those that are left out.
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
        // A leaf that is removed at this moment has no processes.
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

/// Thread groups in one cgroup, without its children. Pids of other pid namespaces read as 0 and are left out.
fn pids_in(dir: &Path) -> Result<Vec<Pid>, CgroupError> {
    let text = match fs::read_to_string(dir.join("cgroup.procs")) {
        // Only an empty cgroup can be removed: its container has gone, and everything in it.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => {
            return Ok(Vec::new());
        }
        read => read.map_err(failed("list the processes of the cgroup"))?,
    };
    Ok(text.lines().filter_map(|line| line.parse().ok().and_then(Pid::from_raw)).collect())
}
