//! Creates new namespaces, and clones the mounts into them.
//!
//! Root clones its mounts *before* it leaves the old mount namespace, where the handles are valid. The kernel does not allow that
//! without root; then the handles' paths are opened again inside the new namespaces and compared with the handles.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fstat, open, readlink};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;

use confinement::sys::unshare;
use confinement::{SetupError, step};
use host_launch::Namespaces;
use host_launch::args::Args;

const NEW: UnshareFlags = UnshareFlags::NEWNS
    .union(UnshareFlags::NEWNET)
    .union(UnshareFlags::NEWIPC)
    .union(UnshareFlags::NEWUTS)
    .union(UnshareFlags::NEWPID)
    .union(UnshareFlags::NEWCGROUP);

/// Enters new namespaces. Returns detached copies of the mounts at `handles`, without the mounts beneath them.
pub(super) fn enter(args: &Args, handles: &[OwnedFd]) -> Result<(Namespaces, Vec<OwnedFd>), SetupError> {
    match handles.iter().map(clone_tree).collect::<Result<Vec<_>, _>>() {
        Ok(trees) => {
            unshare(NEW).map_err(step("creating namespaces"))?;
            Ok((Namespaces::Privileged, trees))
        }
        Err(Errno::PERM) => Ok((Namespaces::User, enter_as_user(args, handles)?)),
        Err(errno) => Err(SetupError::new("cloning the mounts", errno)),
    }
}

fn enter_as_user(args: &Args, handles: &[OwnedFd]) -> Result<Vec<OwnedFd>, SetupError> {
    let (uid, gid) = (geteuid(), getegid());
    if uid != args.uid || gid != args.gid {
        return Err(not_the_owner());
    }
    let paths = paths(handles)?;
    unshare(UnshareFlags::NEWUSER).map_err(|source| {
        SetupError::new("creating a user namespace", source)
            .hint(" (run the daemon as root, or allow unprivileged user namespaces)")
    })?;
    unshare(NEW).map_err(step("creating namespaces"))?;
    map_ids(uid.as_raw(), gid.as_raw()).map_err(step("mapping ids"))?;
    handles
        .iter()
        .zip(paths)
        .map(|(handle, path)| clone_tree(&open_again(handle, &path)?))
        .collect::<Result<_, Errno>>()
        .map_err(step("cloning the mounts"))
}

pub(super) fn not_the_owner() -> SetupError {
    SetupError::new("becoming the workspace's owner", Errno::PERM)
        .hint(" (without root, the workspace must belong to the daemon's own user and group)")
}

pub(super) fn paths(handles: &[OwnedFd]) -> Result<Vec<PathBuf>, SetupError> {
    let path = |handle: &OwnedFd| {
        let path = readlink(format!("/proc/self/fd/{}", handle.as_raw_fd()), Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(path.into_bytes())))
    };
    handles.iter().map(path).collect::<Result<_, Errno>>().map_err(step("reading /proc"))
}

/// Opens a handle's directory by its path. Returns an error if it is not the same directory.
pub(super) fn open_again(handle: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let again = open(path, flags, Mode::empty())?;
    let (expected, found) = (fstat(handle)?, fstat(&again)?);
    let same = (expected.st_dev, expected.st_ino) == (found.st_dev, found.st_ino);
    if same { Ok(again) } else { Err(Errno::STALE) }
}

fn map_ids(uid: u32, gid: u32) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Clones the mount at a handle. Not recursive: a mount beneath a workspace is not part of it.
fn clone_tree(handle: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(handle.as_fd(), "", flags)
}
