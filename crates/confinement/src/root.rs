//! An empty tmpfs as the root of a process. No file of the host is reachable after it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_change, move_mount, unmount,
};
use rustix::process::{chdir, fchdir, pivot_root};

use crate::{SetupError, step, sys};

/// Attributes of every mount of a jail.
pub const HARMLESS: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;

/// Keeps mounts of this namespace from reaching the one it was copied from, and the other way round.
pub fn make_private() -> Result<(), SetupError> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(step("making mounts private"))
}

/// Makes a small tmpfs, which is mounted nowhere yet.
pub fn empty() -> Result<OwnedFd, SetupError> {
    let make = || {
        let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (option, value) in [("size", "64k"), ("nr_inodes", "16"), ("mode", "0755")] {
            fsconfig_set_string(context.as_fd(), option, value)?;
        }
        fsconfig_create(context.as_fd())?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    };
    make().map_err(step::<Errno>("making an empty root"))
}

/// Mounts the new root over `/`, the one directory that every host has, and exchanges the two.
pub fn enter(root: &OwnedFd) -> Result<(), SetupError> {
    let exchange = || {
        move_mount(root, "", CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        fchdir(root)?;
        // With both arguments the same, the old root ends up mounted on top of the new one, where it can be detached.
        pivot_root(".", ".")?;
        unmount(".", UnmountFlags::DETACH)?;
        chdir("/")
    };
    exchange().map_err(step::<Errno>("pivot_root"))
}

/// Makes the root read-only, and the working directory.
pub fn seal(root: &OwnedFd) -> Result<(), SetupError> {
    sys::restrict_mount(root.as_fd(), HARMLESS | libc::MOUNT_ATTR_RDONLY)
        .map_err(step("sealing the root"))?;
    chdir("/").map_err(step("entering the root"))
}
