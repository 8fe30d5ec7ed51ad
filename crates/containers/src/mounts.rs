//! Idmapped bind mounts: a workspace that belongs to its owner on disk and to the run's user inside the container.
//!
//! A [`MountSlot`] is an empty directory of the daemon's own with the run's directory mounted on it. The engine then
//! binds the slot. The mount is made detached and gets all its attributes before it is attached anywhere, so that there
//! is no moment at which a directory is visible without them:
//!
//! ```text
//! open_tree(CLONE) ─► mount_setattr(IDMAP, NOSUID, NODEV[, RDONLY], private) ─► move_mount(slot)
//! ```
//!
//! The source is a descriptor that the caller has checked; no path of it is looked up again. Nothing but the new mount
//! itself is made private: attached below a shared mount it propagates from there, which is what carries it out to
//! the host when the daemon lives in a container with its state directory mounted `rshared`.
//!
//! All functions block for well under a millisecond.

pub(crate) mod mountinfo;
pub(crate) mod overlay;
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

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags};

use crate::sys::{self, MountAttr, UserNamespaceHolder};
use crate::user_map::UserMap;

/// Whether a mount can be written through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// As the files' modes say.
    ReadWrite,
    ReadOnly,
}

/// One user and one group on disk, and how they appear through the mount. Files of all others belong to nobody there,
/// and nothing can be made in their name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdMap {
    /// The owner of the files on disk.
    pub disk_uid: u32,
    /// The group of the files on disk.
    pub disk_gid: u32,
    /// The user of the host that the owner appears as.
    pub seen_uid: u32,
    /// The group of the host that the group appears as.
    pub seen_gid: u32,
}

/// How all other owners appear through a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    Nobody,
    /// As themselves, but for the one that the owner appears as, with whom the owner changes places. gVisor needs that, and
    /// layers of an overlay: the kernel makes files there in root's name, and gives a copy the owner that the file has.
    Themselves,
    /// The same, but nothing is of the others that a container with this map can be, and nothing can be made in their name.
    OutsideOf(UserMap),
}

/// Why a slot could not be made or taken away.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel or the file system cannot map owners. Run the container as the files' owner instead.
    #[error("this kernel or file system cannot show files under another owner (idmapped mounts)")]
    Unsupported(#[source] io::Error),
    #[error("cannot {attempt}")]
    Io {
        attempt: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

fn failed<E: Into<io::Error>>(attempt: &'static str) -> impl FnOnce(E) -> MountError {
    move |error| MountError::Io { attempt, source: error.into() }
}

/// A directory with a mount on it, both of which go away with this value.
#[derive(Debug)]
pub struct MountSlot {
    path: PathBuf,
    /// How many mounts are on it, one on the other.
    mounts: usize,
}

impl MountSlot {
    /// Mounts `source` (a directory opened and checked by the caller; `O_PATH` is enough) on `slot`, which must not
    /// exist yet and whose parent must belong to the daemon.
    ///
    /// Mounts inside `source` are not carried along. Fails with [`MountError::Unsupported`] only for want of idmapping.
    pub fn prepare(
        source: BorrowedFd<'_>,
        slot: &Path,
        map: Option<IdMap>,
        access: Access,
    ) -> Result<Self, MountError> {
        let namespace = map.map(|map| user_namespace(map, Others::Nobody)).transpose()?;
        Self::attach(source, slot, namespace.as_ref().map(AsFd::as_fd), access)
    }

    /// The same for a container whose files root serves, as gVisor's do: root makes a file and gives it to its owner. So all
    /// owners but the mapped one appear as themselves.
    pub fn prepare_served(
        source: BorrowedFd<'_>,
        slot: &Path,
        map: Option<IdMap>,
        access: Access,
    ) -> Result<Self, MountError> {
        let namespace = map.map(|map| user_namespace(map, Others::Themselves)).transpose()?;
        Self::attach(source, slot, namespace.as_ref().map(AsFd::as_fd), access)
    }

    /// With the owners that the user namespace maps.
    fn attach(
        source: BorrowedFd<'_>,
        slot: &Path,
        namespace: Option<BorrowedFd<'_>>,
        access: Access,
    ) -> Result<Self, MountError> {
        let tree = detached(source, namespace, access)?;
        // From here on a failure takes the directory away again.
        let mut this = Self::empty(slot)?;
        attach_to(tree.as_fd(), place_of(slot)?.as_fd())?;
        this.mounts = 1;
        Ok(this)
    }

    /// A directory with nothing on it yet.
    fn empty(slot: &Path) -> Result<Self, MountError> {
        rustix::fs::mkdir(slot, Mode::RWXU).map_err(failed("make the slot's directory"))?;
        Ok(Self { path: slot.to_owned(), mounts: 0 })
    }

    /// The one at `slot` that an earlier life of this program has prepared; `None` when nothing is mounted there, or more
    /// than one thing: then it is not what was left.
    pub fn former(slot: &Path) -> Result<Option<Self>, MountError> {
        Self::former_with(slot, 1)
    }

    fn former_with(slot: &Path, mounts: usize) -> Result<Option<Self>, MountError> {
        let parent = slot.parent().unwrap_or(slot);
        if !parent.is_dir() {
            return Ok(None);
        }
        // As the kernel has it, without links.
        let real = fs::canonicalize(parent).map_err(failed("find the slots' directory"))?;
        let point = slot.file_name().map(|name| real.join(name));
        let mounted = leftover_slots(parent)?.into_iter().filter(|found| Some(found) == point.as_ref());
        Ok((mounted.count() == mounts).then(|| Self { path: slot.to_owned(), mounts }))
    }

    /// Leaves the mount where it is, for [`Self::former`] to find.
    pub fn leave(mut self) {
        self.mounts = 0;
        self.path.clear();
    }

    /// What the engine binds.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Unmounts and removes the directory. Containers that bound the slot keep what they have.
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

/// Whether directories like `source` can be shown under another owner. Tries it, detached, and leaves nothing behind.
pub fn idmap_supported(source: BorrowedFd<'_>) -> Result<bool, MountError> {
    let map = IdMap { disk_uid: 0, disk_gid: 0, seen_uid: 1, seen_gid: 1 };
    let tried = user_namespace(map, Others::Nobody)
        .and_then(|namespace| detached(source, Some(namespace.as_fd()), Access::ReadOnly));
    match tried {
        Ok(_) => Ok(true),
        Err(MountError::Unsupported(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Mounts on or below `dir`, deepest first: what a daemon that was killed has left behind.
pub fn leftover_slots(dir: &Path) -> Result<Vec<PathBuf>, MountError> {
    let table = fs::read("/proc/self/mountinfo").map_err(failed("list the mounts"))?;
    let dir = fs::canonicalize(dir).map_err(failed("find the slots' directory"))?;
    let mut found: Vec<PathBuf> = mountinfo::entries(&table)
        .map(|entry| entry.mount_point)
        .filter(|point| is_below(point, &dir))
        .collect();
    // Of mounts on the same place the later one lies on top; the order of equals is kept by reversing a stable sort.
    found.sort_by_key(|point| point.components().count());
    found.reverse();
    Ok(found)
}

fn is_below(point: &Path, dir: &Path) -> bool {
    point != dir && point.starts_with(dir)
}

/// Unmounts everything below `dir` and removes the empty directories directly in it; returns how many mounts there
/// were. Never removes a file and never descends.
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
    let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    rustix::mount::unmount(point, flags).map_err(failed("unmount the slot"))
}

/// What is at a slot now: its directory, or the root of what is mounted on it.
fn place_of(slot: &Path) -> Result<OwnedFd, MountError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(slot, flags, Mode::empty()).map_err(failed("open the slot's directory"))
}

fn attach_to(tree: BorrowedFd<'_>, place: BorrowedFd<'_>) -> Result<(), MountError> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree, "", place, "", flags).map_err(failed("attach the mount"))
}

/// A copy of `source`'s mount that is attached nowhere.
fn clone_of(source: BorrowedFd<'_>) -> Result<OwnedFd, MountError> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    rustix::mount::open_tree(source, "", flags).map_err(|error| match error {
        Errno::NOSYS => MountError::Unsupported(error.into()),
        error => failed("copy the mount of the source")(error),
    })
}

/// The same, with all its attributes set.
fn detached(
    source: BorrowedFd<'_>,
    namespace: Option<BorrowedFd<'_>>,
    access: Access,
) -> Result<OwnedFd, MountError> {
    let tree = clone_of(source)?;
    let mut attr = MountAttr {
        set: sys::MOUNT_ATTR_NOSUID | sys::MOUNT_ATTR_NODEV,
        clear: 0,
        // Its own peer group: what is mounted below the source later does not appear here.
        propagation: sys::MS_PRIVATE,
        userns_fd: 0,
    };
    if access == Access::ReadOnly {
        attr.set |= sys::MOUNT_ATTR_RDONLY;
    }
    sys::mount_setattr(tree.as_fd(), &attr).map_err(failed("restrict the mount"))?;
    if let Some(namespace) = namespace {
        let fd = u64::try_from(namespace.as_raw_fd()).map_err(io::Error::other);
        let userns_fd = fd.map_err(failed("pass the user namespace"))?;
        let attr = MountAttr { set: sys::MOUNT_ATTR_IDMAP, clear: 0, propagation: 0, userns_fd };
        sys::mount_setattr(tree.as_fd(), &attr).map_err(|error| match error.raw_os_error() {
            // EINVAL: the file system cannot. EPERM: the mount has a map already, or lies in another user namespace.
            Some(libc::EINVAL | libc::EPERM | libc::ENOSYS | libc::EOPNOTSUPP) => {
                MountError::Unsupported(error)
            }
            _ => failed("map the owners of the mount")(error),
        })?;
    }
    Ok(tree)
}

/// A user namespace with this map. No process stays in it.
fn user_namespace(map: IdMap, others: Others) -> Result<OwnedFd, MountError> {
    let unsupported = |error: io::Error| match error.raw_os_error() {
        // Kernels and distributions that forbid user namespaces, even to root.
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
            // A daemon in a user namespace has not all ids to give.
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

/// The map of all ids in which these two change places, without the hidden ones, among which `seen` may be.
fn exchanged(disk: u32, seen: u32, hidden: &Range<u32>) -> String {
    let one = |id: u32| u64::from(id)..u64::from(id) + 1;
    let mut taken = [one(disk), one(seen), u64::from(hidden.start)..u64::from(hidden.end)];
    taken.sort_by_key(|range| range.start);
    let mut lines = vec![(u64::from(disk), u64::from(seen), 1)];
    if disk != seen && !hidden.contains(&disk) {
        lines.push((u64::from(seen), u64::from(disk), 1));
    }
    let mut from = 0;
    // The last id is none.
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
