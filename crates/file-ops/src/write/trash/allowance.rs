//! Limits of a run's trash. It only grows while the run exists, and an agent that writes and deletes in turn could fill the daemon's disk
//! with it.

use std::io;
use std::os::fd::OwnedFd;

use operations::{Reason, ToolFailure};
use rustix::fs::{AtFlags, Dir, fstatvfs, statat};
use rustix::io::Errno;

use super::FOR_GOOD;

/// Most files in a run's trash; an entry has two.
const MAX_FILES: u64 = 20_000;
/// Most bytes in a run's trash.
const MAX_BYTES: u64 = 1024 * 1024 * 1024;
/// Space that stays free on the trash's file system, which may be that of the audit log: bytes, and inodes.
const MIN_FREE_BYTES: u64 = 256 * 1024 * 1024;
const MIN_FREE_FILES: u64 = 1_000;

/// Present size of the trash, and free space.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowance {
    files: u64,
    bytes: u64,
    free_bytes: u64,
    /// Free inodes; `None` if the file system does not count them.
    free_files: Option<u64>,
}

impl Allowance {
    /// Examines everything in the trash: at most [`MAX_FILES`] and a few more.
    pub(super) fn of(trash: &OwnedFd) -> io::Result<Self> {
        let system = fstatvfs(trash)?;
        let mut allowance = Self {
            files: 0,
            bytes: 0,
            free_bytes: system.f_bavail.saturating_mul(system.f_frsize),
            free_files: (system.f_files > 0).then_some(system.f_favail),
        };
        for entry in Dir::read_from(trash)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            allowance.files += 1;
            if allowance.files > MAX_FILES {
                break;
            }
            match statat(trash, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => allowance.bytes += u64::try_from(stat.st_size).unwrap_or(0),
                // Another operation has removed it.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(allowance)
    }

    /// Checks that another file of `size` bytes fits.
    pub(super) fn take(self, size: u64) -> Result<(), ToolFailure> {
        let too_much = self.files + 2 > MAX_FILES || self.bytes.saturating_add(size) > MAX_BYTES;
        if too_much {
            return Err(ToolFailure::new(
                Reason::WriteLimit,
                format!(
                    "the run's trash is full ({} bytes in {} files, of at most {MAX_BYTES} in {MAX_FILES}) until the \
                     operator deletes the run, so it takes no further file: {FOR_GOOD}",
                    self.bytes, self.files
                ),
            )
            .with("trash_bytes", self.bytes.to_string())
            .with("max_trash_bytes", MAX_BYTES.to_string()));
        }
        let scarce = self.free_bytes < MIN_FREE_BYTES.saturating_add(size)
            || self.free_files.is_some_and(|files| files < MIN_FREE_FILES);
        if scarce {
            return Err(ToolFailure::new(
                Reason::WriteLimit,
                format!("the disk of the run's trash has too little space, so it takes no file: {FOR_GOOD}"),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: Allowance = Allowance { files: 0, bytes: 0, free_bytes: u64::MAX, free_files: None };

    fn refused(allowance: Allowance, size: u64) -> Option<String> {
        allowance.take(size).err().map(|failure| {
            assert_eq!(failure.reason, Reason::WriteLimit);
            failure.message
        })
    }

    #[test]
    fn bounds_are_exact() {
        assert_eq!(refused(EMPTY, MAX_BYTES), None);
        assert!(refused(EMPTY, MAX_BYTES + 1).is_some_and(|message| message.contains("trash is full")));
        assert_eq!(refused(Allowance { files: MAX_FILES - 2, ..EMPTY }, 0), None);
        assert!(refused(Allowance { files: MAX_FILES - 1, ..EMPTY }, 0).is_some());
        assert!(refused(Allowance { bytes: MAX_BYTES, ..EMPTY }, 1).is_some());
        assert_eq!(refused(Allowance { free_bytes: MIN_FREE_BYTES + 5, ..EMPTY }, 5), None);
        assert!(
            refused(Allowance { free_bytes: MIN_FREE_BYTES + 5, ..EMPTY }, 6)
                .is_some_and(|message| message.contains("disk"))
        );
        assert!(refused(Allowance { free_files: Some(MIN_FREE_FILES - 1), ..EMPTY }, 0).is_some());
    }

    #[test]
    fn the_present_entries_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        for (name, size) in [("1-1-0", 3), ("1-1-0.json", 4)] {
            std::fs::write(directory.path().join(name), vec![0; size]).unwrap();
        }
        let allowance = Allowance::of(&std::fs::File::open(directory.path()).unwrap().into()).unwrap();
        assert_eq!((allowance.files, allowance.bytes), (2, 7));
        assert!(allowance.free_bytes > 0);
    }
}
