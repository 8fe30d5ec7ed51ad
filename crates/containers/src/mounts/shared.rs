//! Slots that a container binds before their content is mounted.
//!
//! Such a slot is an empty directory, mounted read-only on itself as a shared mount. A container that has bound it as `rslave` sees the
//! mounts that the host later makes on it. It cannot change their attributes:
//!
//! ```text
//! before the container:  mkdir ─► open_tree(CLONE) ─► mount_setattr(RDONLY, …) ─► move_mount(slot) ─► shared
//! when it is claimed:    open_tree(CLONE, source) ─► mount_setattr(IDMAP, …) ─► move_mount(slot)
//! ```

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use jail::MountMode;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::{IdMap, MountError, MountSlot, Others, attach_to, clone_of, detached, failed, place_of};
use crate::sys::{self, MountAttr};

/// Mounts on a covered slot: the shared mount, and the one on top of it.
const COVERED: usize = 2;

/// A map of owners for several mounts.
#[derive(Debug)]
pub struct OwnerMap(Arc<OwnedFd>);

impl OwnerMap {
    pub fn new(map: IdMap) -> Result<Self, MountError> {
        super::user_namespace(map, Others::Nobody).map(Self)
    }
}

impl MountSlot {
    /// Makes a shared slot at `slot`, which must not exist yet and whose parent must belong to the daemon.
    pub fn shared(slot: &Path) -> Result<Self, MountError> {
        let mut this = Self::empty(slot)?;
        let place = place_of(slot)?;
        let tree = clone_of(place.as_fd())?;
        let attr = MountAttr {
            set: sys::MOUNT_ATTR_NOSUID | sys::MOUNT_ATTR_NODEV | sys::MOUNT_ATTR_RDONLY,
            clear: 0,
            // Its own peer group. As a peer of a shared mount beneath it would have each cover there as well, at the same path.
            propagation: sys::MS_PRIVATE,
            userns_fd: 0,
        };
        sys::mount_setattr(tree.as_fd(), &attr).map_err(failed("restrict the mount"))?;
        attach_to(tree.as_fd(), place.as_fd())?;
        this.mounts = 1;
        // Attached first, because a detached mount has no peers.
        let attr = MountAttr { set: 0, clear: 0, propagation: sys::MS_SHARED, userns_fd: 0 };
        sys::mount_setattr(tree.as_fd(), &attr).map_err(failed("share the mount"))?;
        Ok(this)
    }

    /// Mounts `source` on a shared slot. Containers that have bound the slot see it from then on.
    pub fn cover(
        &mut self,
        source: BorrowedFd<'_>,
        map: Option<&OwnerMap>,
        access: MountMode,
    ) -> Result<(), MountError> {
        let tree = detached(source, map.map(|map| map.0.as_fd()), access)?;
        attach_to(tree.as_fd(), place_of(&self.path)?.as_fd())?;
        self.mounts = COVERED;
        Ok(())
    }

    /// Mounts `source` read-only on the directory `name` of the mount that covers the slot, and is removed with it.
    ///
    /// No other process may have access to the directory yet.
    pub fn cover_within(&self, name: &str, source: BorrowedFd<'_>) -> Result<(), MountError> {
        let tree = detached(source, None, MountMode::ReadOnly)?;
        let (flags, resolve) = (
            OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV,
        );
        let place = rustix::fs::openat2(place_of(&self.path)?, name, flags, Mode::empty(), resolve)
            .map_err(failed("open a directory of the mount"))?;
        attach_to(tree.as_fd(), place.as_fd())
    }

    /// Returns a covered shared slot that an earlier instance of this daemon left, like [`Self::reattach`].
    pub fn reattach_covered(slot: &Path) -> Result<Option<Self>, MountError> {
        Self::reattach_with(slot, COVERED)
    }
}
