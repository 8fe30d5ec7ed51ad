//! A disk of the host, and the space on it that transfers under way still need.
//!
//! ```text
//!  piece ─► Promise::grow ─► free space − space of the warning − all promises ≥ piece? ─► passed on
//!                                                                  └─ no: the transfer ends, and nothing of it is left
//! ```
//!
//! What an engine receives is in no run's quota and in no base. It keeps an archive first, and then writes the same amount again as layers.
//! So the bytes that have come stay promised until the transfer is over.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use operations::{Fault, Reason};
use parking_lot::Mutex;
use refusal::Refusal;
use rustix::fs::{Mode, OFlags, fstat, fstatvfs};

/// Free space on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Free {
    pub bytes: u64,
    pub total_bytes: u64,
    /// Free inodes. `None` if the file system has no fixed number of inodes.
    pub files: Option<u64>,
    pub total_files: u64,
}

impl Free {
    /// Returns the bytes beyond the free space of which the daemon warns (`warn_free`; less on a small disk).
    pub fn spare(self, warn_free: u64) -> u64 {
        self.bytes.saturating_sub(warn_free.min(self.total_bytes / 10))
    }
}

/// A disk, by a directory on it.
#[derive(Debug)]
pub struct Disk {
    directory: OwnedFd,
    /// Name for refusals.
    name: &'static str,
    /// Free space that no transfer takes, bytes.
    warn_free: u64,
    /// Bytes that transfers under way may still add.
    promised: Mutex<u64>,
}

impl Disk {
    pub(crate) fn open(directory: &Path, name: &'static str, warn_free: u64) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(directory, flags, Mode::empty())?;
        Ok(Self { directory, name, warn_free, promised: Mutex::default() })
    }

    pub(crate) fn free(&self) -> io::Result<Free> {
        let found = fstatvfs(self.directory.as_fd())?;
        Ok(Free {
            bytes: found.f_bavail.saturating_mul(found.f_frsize),
            total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
            files: (found.f_files > 0).then_some(found.f_favail),
            total_files: found.f_files,
        })
    }

    /// Returns true if both directories are on the same file system.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let device = |disk: &Self| fstat(disk.directory.as_fd()).map(|found| found.st_dev);
        device(self).is_ok_and(|one| device(other).is_ok_and(|two| one == two))
    }

    /// Refuses `more` bytes for which the disk has no space beside the promises.
    pub fn check(&self, more: u64) -> Result<(), Refusal> {
        self.with(*self.promised.lock(), more).map(drop)
    }

    /// Returns the promises with `more` bytes.
    fn with(&self, promised: u64, more: u64) -> Result<u64, Refusal> {
        let free = self.free().map_err(|error| Refusal::internal("looking at the disk", &error))?;
        fitting(promised, more, free.spare(self.warn_free)).ok_or_else(|| no_space(self.name))
    }
}

/// Returns the promises with `more` bytes, if the spare space holds all of them.
fn fitting(promised: u64, more: u64, spare: u64) -> Option<u64> {
    promised.checked_add(more).filter(|all| *all <= spare)
}

fn no_space(disk: &'static str) -> Refusal {
    let message = "the disk has no space for it: the daemon takes none of the space that it warns about (disk.warn_free of its \
                   configuration), and other transfers may need some. Delete images, bases, runs and workspaces that are no longer \
                   needed, or ask the operator of the host";
    Refusal::new(Reason::WriteLimit, message).with("limit", disk).by(Fault::Infrastructure)
}

/// Bytes of a disk that a transfer under way may still add. They are released when this value is dropped.
#[derive(Debug)]
pub struct Promise {
    disk: Arc<Disk>,
    bytes: Mutex<u64>,
}

impl Promise {
    /// Promises nothing yet.
    pub fn of(disk: Arc<Disk>) -> Self {
        Self { disk, bytes: Mutex::default() }
    }

    /// Promises `more` bytes, or refuses them.
    pub fn grow(&self, more: u64) -> Result<(), Refusal> {
        let (mut all, mut own) = (self.disk.promised.lock(), self.bytes.lock());
        *all = self.disk.with(*all, more)?;
        *own = own.saturating_add(more);
        Ok(())
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        let mut all = self.disk.promised.lock();
        *all = all.saturating_sub(*self.bytes.get_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_share_the_spare_space_and_release_it_at_their_end() {
        let place = tempfile::tempdir().unwrap();
        let disk = Arc::new(Disk::open(place.path(), "state-disk", 0).unwrap());
        let (one, two) = (Promise::of(disk.clone()), Promise::of(disk.clone()));
        one.grow(3).unwrap();
        two.grow(4).unwrap();
        one.grow(5).unwrap();
        assert_eq!(*disk.promised.lock(), 12);
        let refused = two.grow(u64::MAX >> 1).unwrap_err();
        let names_disk =
            refused.metadata.iter().any(|(name, value)| name == "limit" && value == "state-disk");
        assert!(refused.reason == Reason::WriteLimit && names_disk, "{refused:?}");
        assert_eq!(disk.check(u64::MAX >> 1).unwrap_err().reason, Reason::WriteLimit);
        disk.check(1).unwrap();
        assert_eq!(*disk.promised.lock(), 12, "nothing is promised after a refusal");
        drop(one);
        assert_eq!(*disk.promised.lock(), 4);
        drop(two);
        assert_eq!(*disk.promised.lock(), 0);
    }

    #[test]
    fn promises_leave_the_space_that_the_daemon_warns_about() {
        let free = Free { bytes: 500, total_bytes: 10_000, files: None, total_files: 0 };
        assert_eq!((free.spare(200), free.spare(9_000)), (300, 0));
        assert_eq!(Free { total_bytes: 1_000, ..free }.spare(200), 400, "a tenth of a small disk");
        assert_eq!(fitting(100, 200, 300), Some(300));
        assert_eq!(fitting(100, 201, 300), None);
        assert_eq!(fitting(u64::MAX, 1, u64::MAX), None);
    }

    #[test]
    fn directories_of_one_file_system_are_one_disk() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("d")).unwrap();
        let open = |path: &Path| Disk::open(path, "engine-disk", 0).unwrap();
        assert!(open(place.path()).is_same(&open(&place.path().join("d"))));
        assert!(!open(place.path()).is_same(&open(Path::new("/proc"))));
        assert!(Disk::open(Path::new(""), "engine-disk", 0).is_err());
    }
}
