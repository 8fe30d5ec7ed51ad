//! Directories that a host worker reads as files of another owner.

use std::os::fd::AsFd as _;
use std::path::Path;

use containers::{IdMap, MountSlot};
use executor::Directory;
use host_launch::Owner;
use jail::MountMode;
use refusal::{Refusal, chain};
use rustix::fs::{Mode, OFlags};

/// A directory whose files appear as those of another owner, read-only, while the value lives.
pub struct Seen {
    directory: Directory,
    /// `None` if the files are of that owner.
    slot: Option<MountSlot>,
}

impl Seen {
    /// Shows the files of the directory's owner as those of `owner`, by a mount at `slot` if they are of another one. Blocks the thread.
    pub fn of(directory: Directory, slot: &Path, owner: Owner) -> Result<Self, Refusal> {
        let disk = directory.owner;
        if (disk.uid, disk.gid) == (owner.uid, owner.gid) {
            return Ok(Self { directory, slot: None });
        }
        let map = IdMap { disk_uid: disk.uid, disk_gid: disk.gid, seen_uid: owner.uid, seen_gid: owner.gid };
        let slot = MountSlot::prepare(directory.handle.as_fd(), slot, Some(map), MountMode::ReadOnly)
            .map_err(|error| Refusal::internal("mounting a checkpoint", &chain(&error)))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::open(slot.path(), flags, Mode::empty())
            .map_err(|errno| Refusal::internal("opening a checkpoint", &errno))?;
        let directory = Directory { handle, path: directory.path, owner, is_mapped: true };
        Ok(Self { directory, slot: Some(slot) })
    }

    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Removes the mount. A dropped value does so too, and only logs a failure. Blocks the thread.
    pub fn release(self) -> Result<(), Refusal> {
        let released = self.slot.map_or(Ok(()), MountSlot::release);
        released.map_err(|error| Refusal::internal("unmounting a checkpoint", &chain(&error)))
    }
}
