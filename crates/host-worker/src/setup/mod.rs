//! Sets up the jail: a process gives up its rights here before it touches a file that an agent wrote.
//!
//! Each step needs rights that a later one removes, so the order matters:
//!
//! 1. clone the mounts from the handles, enter new mount, network, ipc, uts and pid namespaces (and, without root, a
//!    user namespace);
//! 2. `pivot_root` into an empty read-only tmpfs that holds the run's mounts and nothing else: no `/proc`, no `/dev`;
//! 3. limits; bounding set, groups, gid, uid, capabilities (all but those of `kept`), `no_new_privs`, non-dumpable;
//! 4. Landlock where the kernel has it, seccomp last.
//!
//! Only then does the caller fork: the child is pid 1 of the new pid namespace and inherits all of it. Any step but Landlock that
//! fails ends the process, unless the operator accepts the one weaker form, which `weaker` describes.

mod landlock;
mod limits;
mod linked;
mod mounts;
mod namespaces;
mod seccomp;
mod weaker;

use std::os::fd::OwnedFd;

use confinement::{SetupError, privileges};
use host_launch::Namespaces;
use host_launch::Report;
use host_launch::WeakerForm;
use host_launch::args::{Args, Task};
use rustix::thread::CapabilitySet;

use crate::location;

pub(crate) use limits::{forbid_tasks, limit_file_size, limit_memory, limit_time};
pub(crate) use seccomp::ChildFilter;

/// Enters the jail. `handles` are the directories of `args.jail_mounts`, in their order.
pub(crate) fn enter(args: &Args, handles: &[OwnedFd]) -> Result<Report, SetupError> {
    if args.accepts == Some(WeakerForm::LandlockOnly) && weaker::is_needed(args, handles)? {
        return weaker::enter(args, handles);
    }
    // Compiled first: a filter that cannot be built must not fail half-way.
    let filters = seccomp::filters()?;
    let (namespaces, trees) = namespaces::enter(args, handles)?;
    let work_tree = match &args.task {
        Task::Serve { work_tree } => work_tree.as_str(),
        _ => "",
    };
    let writable = mounts::pivot(&args.jail_mounts, trees, work_tree)?;
    limits::restrict_host_worker(&args.task)?;
    // In a user namespace the kernel refuses to change groups, and the one mapped id is the process's own already.
    let privileged = namespaces == Namespaces::Privileged;
    privileges::drop_all_but(kept(&args.task), privileged.then_some((args.uid, args.gid)))?;
    let landlock = landlock::restrict(&args.jail_mounts, &writable)?;
    filters.install()?;
    if !work_tree.is_empty() {
        location::link(work_tree);
    }
    Ok(Report { namespaces, landlock })
}

/// Returns the capabilities of a task: none, or that of reading files which an agent has made unreadable for the owner.
///
/// These tasks walk the trees of runs and checkpoints and nothing else. They refuse names of others that the owner cannot read
/// (`copying.rs`), and the filter has no call that opens a file by its handle.
fn kept(task: &Task) -> CapabilitySet {
    match task {
        Task::Save(..) | Task::Fill | Task::Restore { .. } => CapabilitySet::DAC_READ_SEARCH,
        _ => CapabilitySet::empty(),
    }
}
