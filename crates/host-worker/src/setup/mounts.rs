//! Builds the jail's file tree: an empty tmpfs as root, with the run's mounts in it. No other file of the host is reachable.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, Mode, mkdirat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_change, move_mount, unmount,
};
use rustix::process::{chdir, fchdir, pivot_root};

use super::{SetupError, linked, step};
use crate::sys;
use host_launch::args::JailMount;

const HARMLESS: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;

/// Makes `trees` (of `jail_mounts`, in order) the whole file tree.
///
/// If the workspace is the linked work tree `work_tree`, returns the writable parts of its repository.
pub(super) fn pivot(
    jail_mounts: &[JailMount],
    trees: Vec<OwnedFd>,
    work_tree: &str,
) -> Result<Vec<String>, SetupError> {
    // Mounts of this namespace must not reach the one it was copied from, nor the other way round.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(step("making mounts private"))?;
    for (jail_mount, tree) in jail_mounts.iter().zip(&trees) {
        // A repository becomes read-only once its writable parts are mounted.
        let is_writable = jail_mount.is_writable() || *jail_mount == JailMount::Repository;
        let read_only = if is_writable { 0 } else { libc::MOUNT_ATTR_RDONLY };
        let no_links = if follows_links(*jail_mount) { 0 } else { libc::MOUNT_ATTR_NOSYMFOLLOW };
        sys::restrict_mount(tree.as_fd(), HARMLESS | read_only | no_links)
            .map_err(step("restricting a mount (needs Linux 5.14)"))?;
    }
    let root = empty_root().map_err(step("making an empty root"))?;
    for jail_mount in jail_mounts {
        mkdirat(&root, jail_mount.name(), Mode::RWXU | Mode::from_raw_mode(0o055))
            .map_err(step("making a mount point"))?;
    }
    enter(&root).map_err(step("pivot_root"))?;
    let mut writable = Vec::new();
    for (jail_mount, tree) in jail_mounts.iter().zip(trees) {
        move_mount(tree, "", &root, jail_mount.name(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(step("attaching a mount"))?;
        if *jail_mount == JailMount::Repository {
            writable =
                linked::mount_parts(&root, work_tree).map_err(step("mounting parts of a repository"))?;
        }
    }
    sys::restrict_mount(root.as_fd(), HARMLESS | libc::MOUNT_ATTR_RDONLY)
        .map_err(step("sealing the root"))?;
    chdir("/").map_err(step("entering the root"))?;
    Ok(writable)
}

/// Returns true if the kernel may follow links in this mount.
///
/// An agent can write links, which libgit2 above all must not follow by accident. Code that follows one on purpose does so itself,
/// one name at a time (`jail::follow`). A source to clone belongs to the operator.
fn follows_links(jail_mount: JailMount) -> bool {
    jail_mount == JailMount::Source
}

fn empty_root() -> Result<OwnedFd, Errno> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (option, value) in [("size", "64k"), ("nr_inodes", "16"), ("mode", "0755")] {
        fsconfig_set_string(context.as_fd(), option, value)?;
    }
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Mounts the new root over `/`, the one directory that every host has, and exchanges the two.
fn enter(root: &OwnedFd) -> Result<(), Errno> {
    move_mount(root, "", CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    fchdir(root)?;
    // With both arguments the same, the old root ends up mounted on top of the new one, where it can be detached.
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")
}
