//! Builds the jail's file tree: an empty tmpfs as root, with the run's mounts in it. No other file of the host is reachable.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, mkdirat};
use rustix::mount::{MoveMountFlags, move_mount};

use super::linked;
use confinement::sys::restrict_mount;
use confinement::{SetupError, root, step};
use host_launch::args::JailMount;

/// Makes `trees` (of `jail_mounts`, in order) the whole file tree.
///
/// If the workspace is the linked work tree `work_tree`, returns the writable parts of its repository.
pub(super) fn pivot(
    jail_mounts: &[JailMount],
    trees: Vec<OwnedFd>,
    work_tree: &str,
) -> Result<Vec<String>, SetupError> {
    root::make_private()?;
    for (jail_mount, tree) in jail_mounts.iter().zip(&trees) {
        // A repository becomes read-only once its writable parts are mounted.
        let is_writable = jail_mount.is_writable() || *jail_mount == JailMount::Repository;
        let read_only = if is_writable { 0 } else { libc::MOUNT_ATTR_RDONLY };
        let no_links = if follows_links(*jail_mount) { 0 } else { libc::MOUNT_ATTR_NOSYMFOLLOW };
        restrict_mount(tree.as_fd(), root::HARMLESS | read_only | no_links)
            .map_err(step("restricting a mount (needs Linux 5.14)"))?;
    }
    let root = root::empty()?;
    for jail_mount in jail_mounts {
        mkdirat(&root, jail_mount.name(), Mode::RWXU | Mode::from_raw_mode(0o055))
            .map_err(step("making a mount point"))?;
    }
    root::enter(&root)?;
    let mut writable = Vec::new();
    for (jail_mount, tree) in jail_mounts.iter().zip(trees) {
        move_mount(tree, "", &root, jail_mount.name(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(step("attaching a mount"))?;
        if *jail_mount == JailMount::Repository {
            writable =
                linked::mount_parts(&root, work_tree).map_err(step("mounting parts of a repository"))?;
        }
    }
    root::seal(&root)?;
    Ok(writable)
}

/// Returns true if the kernel may follow links in this mount.
///
/// An agent can write links, which libgit2 above all must not follow by accident. Code that follows one on purpose does so itself,
/// one name at a time (`jail::follow`). A source to clone belongs to the operator.
fn follows_links(jail_mount: JailMount) -> bool {
    jail_mount == JailMount::Source
}
