//! Sets up the weaker jail of a host without root and user namespaces, for operators who accept it by its name.
//!
//! This jail has the host's root, no namespaces and the daemon's identity. It has Landlock, which must cover truncation and moves
//! between directories; seccomp, without a socket or a program to run; limits, no descriptors and no environment. Files are opened
//! beneath handles alone.
//!
//! That holds for files. It would not hold for a library that opens files which a repository names, and changes modes and times,
//! which Landlock does not cover. So this jail has no git, clones or overlays.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use super::{landlock, limits, mounts, namespaces, seccomp};
use crate::{location, sys};
use confinement::sys::{Fork, fork};
use confinement::{SetupError, privileges, step};
use host_launch::args::{Args, JailMount, Task};
use host_launch::{Namespaces, Report};

/// Returns true if the weaker jail is needed. Tries the whole jail in a process that ends with the trial, since half a set-up
/// cannot be undone.
pub(super) fn is_needed(args: &Args, handles: &[OwnedFd]) -> Result<bool, SetupError> {
    match fork().map_err(step("trying the jail"))? {
        Fork::Child => {
            let tried = namespaces::enter(args, handles)
                .and_then(|(_, trees)| mounts::pivot(&args.jail_mounts, trees, ""));
            sys::exit_now(i32::from(tried.is_err()))
        }
        Fork::Parent(trial) => {
            let status = rustix::io::retry_on_intr(|| {
                rustix::process::waitpid(Some(trial), rustix::process::WaitOptions::empty())
            });
            let status = status.map_err(step("trying the jail"))?;
            Ok(status.and_then(|(_, status)| status.exit_status()) != Some(0))
        }
    }
}

pub(super) fn enter(args: &Args, handles: &[OwnedFd]) -> Result<Report, SetupError> {
    if !matches!(args.task, Task::Serve { .. } | Task::Recover | Task::Report) {
        return Err(SetupError::new("in the form landlock-only", Errno::OPNOTSUPP)
            .hint(" (clones and overlays need root or user namespaces)"));
    }
    if (geteuid(), getegid()) != (args.uid, args.gid) {
        return Err(namespaces::not_the_owner());
    }
    // Compiled first: a filter that cannot be built must not fail half-way.
    let filters = seccomp::filters()?;
    let paths: Vec<_> = args.jail_mounts.iter().copied().zip(namespaces::paths(handles)?).collect();
    let trees: Vec<(JailMount, _)> = paths
        .iter()
        .zip(handles)
        // Only git needs it, which is refused here.
        .filter(|((jail_mount, _), _)| *jail_mount != JailMount::Repository)
        .map(|((jail_mount, path), handle)| Ok((*jail_mount, namespaces::open_again(handle, path)?)))
        .collect::<Result<_, Errno>>()
        .map_err(step("opening the directories"))?;
    limits::restrict_host_worker(&args.task)?;
    privileges::drop_what_there_is()?;
    let landlock = landlock::restrict_alone(&trees)?;
    location::stay_on_the_host(paths);
    filters.install()?;
    Ok(Report { namespaces: Namespaces::None, landlock })
}
