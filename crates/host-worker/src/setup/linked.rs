//! Mounts the repository of a linked work tree in the jail: read-only, but for the parts that git writes for this work tree.
//!
//! ```text
//!  /repository                      read only: config, hooks, info, packed-refs, other work trees
//!    objects  refs  logs            writable
//!    worktrees/NAME                 writable: HEAD, index, logs
//!      commondir  gitdir  config.worktree   read only
//! ```
//!
//! Trust boundary: other runs may write the repository. Each part is opened beneath it and through no link. A part that cannot be
//! opened so stays read-only with the rest, and git operations that need it fail.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use confinement::sys::restrict_mount;
use host_launch::args::JailMount;

/// Files that locate or configure the repository.
const FIXED: [&str; 3] = ["commondir", "gitdir", "config.worktree"];

/// Mounts the parts onto the repository, which is mounted in `root`. Returns the paths of the writable ones.
pub(super) fn mount_parts(root: &OwnedFd, work_tree: &str) -> Result<Vec<String>, std::io::Error> {
    // In addition to the attributes that the repository's mount has already.
    let read_only = libc::MOUNT_ATTR_RDONLY;
    let repository = JailMount::Repository.name();
    let top = open(root, repository, OFlags::DIRECTORY)?;
    let own = format!("worktrees/{work_tree}");
    let mut writable = Vec::new();
    for part in ["objects", "refs", "logs", &own] {
        let path = format!("{repository}/{part}");
        let Ok(opened) = open(&top, part, OFlags::DIRECTORY) else { continue };
        let Some(fixed) = (if part == own { fixed(&opened) } else { Some(Vec::new()) }) else { continue };
        attach(clone(&opened)?, root, &path)?;
        for (name, file) in fixed {
            let file = clone(&file)?;
            restrict_mount(file.as_fd(), read_only)?;
            attach(file, root, &format!("{path}/{name}"))?;
        }
        writable.push(path);
    }
    restrict_mount(top.as_fd(), read_only)?;
    Ok(writable)
}

/// Opens the files of a work tree that must stay unwritable; `None` if one is not as git makes it.
fn fixed(own: &OwnedFd) -> Option<Vec<(&'static str, OwnedFd)>> {
    let mut found = Vec::new();
    for name in FIXED {
        match open(own, name, OFlags::empty()) {
            Ok(file) => {
                let kind = FileType::from_raw_mode(fstat(&file).ok()?.st_mode);
                kind.is_file().then(|| found.push((name, file)))?;
            }
            Err(Errno::NOENT) => {}
            Err(_) => return None,
        }
    }
    Some(found)
}

fn open(at: &OwnedFd, path: &str, kind: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(at, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC | kind, Mode::empty(), resolve)
}

/// Clones the mount, with the attributes that the repository's mount has so far.
fn clone(part: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(part.as_fd(), "", flags)
}

fn attach(tree: OwnedFd, root: &OwnedFd, path: &str) -> Result<(), Errno> {
    move_mount(tree, "", root, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}
