//! Idmapped bind mounts: a workspace that belongs to its owner on disk and to the run's user inside the container.
//!
//! A [`MountSlot`] is an empty directory of the daemon with the run's directory mounted on it. The engine then binds the slot. The mount is
//! made detached and gets all its attributes before it is attached anywhere. So a directory is never visible without them:
//!
//! ```text
//! open_tree(CLONE) ─► mount_setattr(IDMAP, NOSUID, NODEV[, RDONLY], private) ─► move_mount(slot)
//! ```
//!
//! The source is a descriptor that the caller has checked; its path is not resolved again. Only the new mount itself is made private.
//! Attached below a shared mount it propagates from there. A daemon that runs in a container with its state directory mounted `rshared`
//! makes its mounts visible on the host this way.
//!
//! All functions block for well under a millisecond.

mod copies;
pub(crate) mod overlay;
pub(crate) mod owner_maps;
pub(crate) mod root;
pub(crate) mod shared;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use jail::MountMode;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags};

use self::owner_maps::user_namespace;
use crate::sys::{self, MountAttr, UserNamespaceHolder};
use crate::user_map::UserMap;

/// One user and one group on disk, and the ids under which they appear through the mount.
///
/// Files of all other owners appear as unowned, and no file can be created for such an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdMap {
    /// Owner of the files on disk.
    pub disk_uid: u32,
    /// Group of the files on disk.
    pub disk_gid: u32,
    /// User of the host as which the owner appears.
    pub seen_uid: u32,
    /// Group of the host as which the group appears.
    pub seen_gid: u32,
}

/// Appearance of all other owners through a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    Nobody,
    /// They appear as themselves, except that the owner and the id as which it appears are swapped.
    ///
    /// gVisor needs this, and so do the layers of an overlay: the kernel creates files there as root, and gives a copy the owner of the
    /// original.
    Themselves,
    /// As with [`Self::Themselves`], but all other ids of a container with this map stay unmapped, so no file can be created for them.
    OutsideOf(UserMap),
}

/// Reason why a slot could not be made or removed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel or the file system cannot map owners. Run the container as the files' owner instead.
    #[error("this kernel or file system cannot show files under another owner (idmapped mounts)")]
    Unsupported(#[source] io::Error),
    #[error("cannot {attempt}")]
    Io {
        attempt: &'static str,
        /// Error from the kernel.
        #[source]
        source: io::Error,
    },
}

fn failed<E: Into<io::Error>>(attempt: &'static str) -> impl FnOnce(E) -> MountError {
    move |error| MountError::Io { attempt, source: error.into() }
}

/// A directory with a mount on it. Dropping the value removes both.
#[derive(Debug)]
pub struct MountSlot {
    path: PathBuf,
    /// Number of mounts on it, one on top of the other.
    mounts: usize,
}

impl MountSlot {
    /// Mounts `source` on `slot`.
    ///
    /// `source` is a directory that the caller has opened and checked; `O_PATH` is enough. `slot` must not exist yet, and its parent must
    /// belong to the daemon. Mounts inside `source` are not carried along. Fails with [`MountError::Unsupported`] only if idmapping is not
    /// supported.
    pub fn prepare(
        source: BorrowedFd<'_>,
        slot: &Path,
        map: Option<IdMap>,
        access: MountMode,
    ) -> Result<Self, MountError> {
        let namespace = map.map(|map| user_namespace(map, Others::Nobody)).transpose()?;
        Self::attach(source, slot, namespace.as_deref().map(AsFd::as_fd), access)
    }

    /// Mounts `source` like [`Self::prepare`], for a container whose files root serves, as with gVisor.
    ///
    /// There root creates a file and then gives it to its owner. So all owners but the mapped one appear as themselves.
    pub fn prepare_served(
        source: BorrowedFd<'_>,
        slot: &Path,
        map: Option<IdMap>,
        access: MountMode,
    ) -> Result<Self, MountError> {
        let namespace = map.map(|map| user_namespace(map, Others::Themselves)).transpose()?;
        Self::attach(source, slot, namespace.as_deref().map(AsFd::as_fd), access)
    }

    /// Mounts `source` with the owners that the user namespace maps.
    fn attach(
        source: BorrowedFd<'_>,
        slot: &Path,
        namespace: Option<BorrowedFd<'_>>,
        access: MountMode,
    ) -> Result<Self, MountError> {
        let tree = detached(source, namespace, access)?;
        // From here on, a failure removes the directory again.
        let mut this = Self::empty(slot)?;
        attach_to(tree.as_fd(), place_of(slot)?.as_fd())?;
        this.mounts = 1;
        Ok(this)
    }

    /// Makes the directory without a mount.
    fn empty(slot: &Path) -> Result<Self, MountError> {
        rustix::fs::mkdir(slot, Mode::RWXU).map_err(failed("make the slot's directory"))?;
        Ok(Self { path: slot.to_owned(), mounts: 0 })
    }

    /// Returns the slot that an earlier instance of this daemon prepared at `slot`.
    ///
    /// `None` unless exactly one mount is there. With several mounts it is not the slot that was left.
    pub fn reattach(slot: &Path) -> Result<Option<Self>, MountError> {
        Self::reattach_with(slot, 1)
    }

    fn reattach_with(slot: &Path, mounts: usize) -> Result<Option<Self>, MountError> {
        let parent = slot.parent().unwrap_or(slot);
        if !parent.is_dir() {
            return Ok(None);
        }
        // The parent without symbolic links, as the kernel's table has it.
        let real = fs::canonicalize(parent).map_err(failed("find the slots' directory"))?;
        let point = slot.file_name().map(|name| real.join(name));
        let mounted = leftover_slots(parent)?.into_iter().filter(|found| Some(found) == point.as_ref());
        Ok((mounted.count() == mounts).then(|| Self { path: slot.to_owned(), mounts }))
    }

    /// Leaves the mount in place for [`Self::reattach`].
    pub fn leave(mut self) {
        self.mounts = 0;
        self.path.clear();
    }

    /// Returns the directory that the engine binds.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Unmounts and removes the directory. Containers that have bound the slot keep their mounts.
    pub fn release(mut self) -> Result<(), MountError> {
        self.undo()
    }

    fn undo(&mut self) -> Result<(), MountError> {
        while self.mounts > 0 {
            self.mounts -= 1;
            detach(&self.path)?;
        }
        if !self.path.as_os_str().is_empty() {
            let path = std::mem::take(&mut self.path);
            fs::remove_dir(path).map_err(failed("remove the slot's directory"))?;
        }
        Ok(())
    }
}

impl Drop for MountSlot {
    fn drop(&mut self) {
        if let Err(error) = self.undo() {
            tracing::warn!(error = %error, "a mount slot was left behind; the next start cleans it up");
        }
    }
}

/// Returns true if directories like `source` can be shown under another owner. It tries this with a detached mount and leaves no trace.
pub fn idmap_supported(source: BorrowedFd<'_>) -> Result<bool, MountError> {
    let map = IdMap { disk_uid: 0, disk_gid: 0, seen_uid: 1, seen_gid: 1 };
    let tried = user_namespace(map, Others::Nobody)
        .and_then(|namespace| detached(source, Some(namespace.as_fd()), MountMode::ReadOnly));
    match tried {
        Ok(_) => Ok(true),
        Err(MountError::Unsupported(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the mounts below `dir`, deepest first, that a killed daemon has left.
pub fn leftover_slots(dir: &Path) -> Result<Vec<PathBuf>, MountError> {
    leftovers::mounts_below(dir).map_err(failed("list the mounts"))
}

/// Unmounts everything below `dir`, removes the empty directories directly in it, and returns the number of mounts.
///
/// It never removes a file and never descends.
pub fn clean_slots(dir: &Path) -> Result<usize, MountError> {
    let left = leftover_slots(dir)?;
    for point in &left {
        detach(point)?;
    }
    for entry in fs::read_dir(dir).map_err(failed("list the slots"))? {
        let entry = entry.map_err(failed("list the slots"))?;
        match fs::remove_dir(entry.path()) {
            Err(error)
                if !matches!(
                    error.kind(),
                    io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory
                ) =>
            {
                return Err(failed("remove a slot's directory")(error));
            }
            _ => {}
        }
    }
    Ok(left.len())
}

fn detach(point: &Path) -> Result<(), MountError> {
    leftovers::detach(point).map_err(failed("unmount the slot"))
}

/// Opens the slot's directory, or the root of the mount on it.
fn place_of(slot: &Path) -> Result<OwnedFd, MountError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(slot, flags, Mode::empty()).map_err(failed("open the slot's directory"))
}

fn attach_to(tree: BorrowedFd<'_>, place: BorrowedFd<'_>) -> Result<(), MountError> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree, "", place, "", flags).map_err(failed("attach the mount"))
}

/// Returns a detached copy of `source`'s mount.
fn clone_of(source: BorrowedFd<'_>) -> Result<OwnedFd, MountError> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    match rustix::mount::open_tree(source, "", flags) {
        Ok(copy) => Ok(copy),
        Err(error @ Errno::NOSYS) => Err(MountError::Unsupported(error.into())),
        // The mount of an overlay, on a kernel before 6.15; or one of another namespace, which fails there as well.
        Err(error @ Errno::INVAL) => {
            copies::copy_detached(source).map_err(|_| failed("copy the mount of the source")(error))
        }
        Err(error) => Err(failed("copy the mount of the source")(error)),
    }
}

/// Returns a detached copy of `source`'s mount with all its attributes set.
fn detached(
    source: BorrowedFd<'_>,
    namespace: Option<BorrowedFd<'_>>,
    access: MountMode,
) -> Result<OwnedFd, MountError> {
    let tree = clone_of(source)?;
    let mut attr = MountAttr {
        set: sys::MOUNT_ATTR_NOSUID | sys::MOUNT_ATTR_NODEV,
        clear: 0,
        // A separate peer group, so mounts that are made below the source later do not appear here.
        propagation: sys::MS_PRIVATE,
        userns_fd: 0,
    };
    if access == MountMode::ReadOnly {
        attr.set |= sys::MOUNT_ATTR_RDONLY;
    }
    sys::mount_setattr(tree.as_fd(), &attr).map_err(failed("restrict the mount"))?;
    if let Some(namespace) = namespace {
        let fd = u64::try_from(namespace.as_raw_fd()).map_err(io::Error::other);
        let userns_fd = fd.map_err(failed("pass the user namespace"))?;
        let attr = MountAttr { set: sys::MOUNT_ATTR_IDMAP, clear: 0, propagation: 0, userns_fd };
        sys::mount_setattr(tree.as_fd(), &attr).map_err(|error| match error.raw_os_error() {
            // EINVAL: the file system does not support it. EPERM: the mount has a map already, or belongs to another user namespace.
            Some(libc::EINVAL | libc::EPERM | libc::ENOSYS | libc::EOPNOTSUPP) => {
                MountError::Unsupported(error)
            }
            _ => failed("map the owners of the mount")(error),
        })?;
    }
    Ok(tree)
}

/// Makes a user namespace with this map. No process stays in it.
fn new_user_namespace(map: IdMap, others: Others) -> Result<OwnedFd, MountError> {
    let unsupported = |error: io::Error| match error.raw_os_error() {
        // Some kernels and distributions forbid user namespaces, even to root.
        Some(libc::EPERM | libc::EINVAL | libc::ENOSYS | libc::ENOSPC | libc::EUSERS) => {
            MountError::Unsupported(error)
        }
        _ => failed("make a user namespace")(error),
    };
    let holder = UserNamespaceHolder::start().map_err(unsupported)?;
    let proc = PathBuf::from(format!("/proc/{}", holder.pid()));
    let hidden = match others {
        Others::OutsideOf(map) => (map.uids(), map.gids()),
        Others::Nobody | Others::Themselves => (0..0, 0..0),
    };
    let write = |name: &str, disk: u32, seen: u32, hidden: Range<u32>| {
        let lines = match others {
            Others::Nobody => format!("{disk} {seen} 1\n"),
            Others::Themselves | Others::OutsideOf(_) => exchanged(disk, seen, &hidden),
        };
        fs::write(proc.join(name), lines).map_err(|error| match others {
            // A daemon in a user namespace does not have all ids to map.
            Others::Themselves | Others::OutsideOf(_) if error.raw_os_error() == Some(libc::EPERM) => {
                MountError::Unsupported(error)
            }
            _ => failed("describe the map of owners")(error),
        })
    };
    write("uid_map", map.disk_uid, map.seen_uid, hidden.0)?;
    write("gid_map", map.disk_gid, map.seen_gid, hidden.1)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open(proc.join("ns/user"), flags, Mode::empty()).map_err(failed("open the user namespace"))
}

/// Returns the map of all ids in which these two are swapped, without the hidden ones. `seen` may be among the hidden ones.
fn exchanged(disk: u32, seen: u32, hidden: &Range<u32>) -> String {
    let one = |id: u32| u64::from(id)..u64::from(id) + 1;
    let mut taken = [one(disk), one(seen), u64::from(hidden.start)..u64::from(hidden.end)];
    taken.sort_by_key(|range| range.start);
    let mut lines = vec![(u64::from(disk), u64::from(seen), 1)];
    if disk != seen && !hidden.contains(&disk) {
        lines.push((u64::from(seen), u64::from(disk), 1));
    }
    let mut from = 0;
    // The last id, −1, is invalid.
    for range in taken.into_iter().chain(std::iter::once(u64::from(u32::MAX)..u64::MAX)) {
        if range.start > from {
            lines.push((from, from, range.start - from));
        }
        from = from.max(range.end);
    }
    lines.sort_unstable();
    let mut text = String::new();
    for (disk, seen, count) in lines {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{disk} {seen} {count}");
    }
    text
}
