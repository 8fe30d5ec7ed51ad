//! Project quotas: the kernel's count of the files of a project, and its limit.
//!
//! A directory is assigned to a project, and all files made in it inherit that. The owner of a file could assign it to another project, or
//! remove the inheritance from a directory, by `ioctl(2)`. The seccomp profile of containers refuses that.

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};
use serde::{Deserialize, Serialize};

use super::Amount;
use crate::sys;

/// Bytes of a block in which limits are given.
const BLOCK: u64 = 1_024;
/// Most files of a tree that is assigned as a whole.
const MOST_IN_TREE: usize = 1_000;

/// Number of a project that belongs to this daemon. The range is far from numbers that administrators usually choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProjectId(u32);

impl ProjectId {
    const FIRST: u32 = 0x4000_0000;
    const LAST: u32 = 0x7fff_ffff;

    /// Returns the project of this number if it is in the daemon's range.
    pub fn new(number: u32) -> Option<Self> {
        (Self::FIRST..=Self::LAST).contains(&number).then_some(Self(number))
    }

    /// Maps any number into the daemon's range.
    pub fn from_any(number: u32) -> Self {
        Self(Self::FIRST | (number & (Self::LAST - Self::FIRST)))
    }

    /// Returns the next project, and the first after the last.
    #[must_use]
    pub fn next(self) -> Self {
        Self::from_any(self.0.wrapping_add(1))
    }
}

impl fmt::Display for ProjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Project quotas of a file system that enforces them.
#[derive(Debug)]
pub struct ProjectQuotas(OwnedFd);

impl ProjectQuotas {
    /// Returns the project quotas of the file system of `directory`.
    ///
    /// `None` if it has none or only counts, or if the kernel is older than `quotactl_fd(2)` (5.14).
    pub fn of(directory: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        let directory = reopen(directory)?;
        let enforced = sys::project_quota_enforced(directory.as_fd()).unwrap_or(false);
        Ok(enforced.then_some(Self(directory)))
    }

    /// Assigns an empty directory, and all files that will be in it, to a project.
    pub fn assign(&self, directory: BorrowedFd<'_>, project: ProjectId) -> io::Result<()> {
        let directory = reopen(directory)?;
        let mut attributes = sys::get_fsxattr(directory.as_fd())?;
        attributes.project = project.0;
        attributes.flags |= sys::FS_XFLAG_PROJINHERIT;
        sys::set_fsxattr(directory.as_fd(), &attributes)
    }

    /// Assigns a directory of the daemon with everything in it to a project. No process may change it meanwhile.
    ///
    /// A whiteout, of which an overlay keeps one in its work directory, has no project. Fails for a link and other special files, and for a
    /// tree that is larger than the daemon makes one.
    pub fn assign_tree(&self, directory: BorrowedFd<'_>, project: ProjectId) -> io::Result<()> {
        self.assign(directory, project)?;
        let mut left = MOST_IN_TREE;
        let mut pending = vec![reopen(directory)?];
        while let Some(parent) = pending.pop() {
            for entry in Dir::read_from(&parent)? {
                let entry = entry?;
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                left = left.checked_sub(1).ok_or_else(|| io::Error::other("the tree has too many files"))?;
                let stat = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::Directory => {
                        let inner = openat(&parent, name, flags | OFlags::DIRECTORY, Mode::empty())?;
                        self.assign(inner.as_fd(), project)?;
                        pending.push(inner);
                    }
                    FileType::RegularFile => {
                        let file = openat(&parent, name, flags | OFlags::NONBLOCK, Mode::empty())?;
                        let mut attributes = sys::get_fsxattr(file.as_fd())?;
                        attributes.project = project.0;
                        sys::set_fsxattr(file.as_fd(), &attributes)?;
                    }
                    FileType::CharacterDevice if stat.st_rdev == 0 => {}
                    _ => return Err(io::Error::other("the tree has a file that belongs to no project")),
                }
            }
        }
        Ok(())
    }

    /// Returns the project of a directory, if it is in the daemon's range.
    pub fn project_of(&self, directory: BorrowedFd<'_>) -> io::Result<Option<ProjectId>> {
        let attributes = sys::get_fsxattr(reopen(directory)?.as_fd())?;
        Ok(ProjectId::new(attributes.project))
    }

    /// Limits a project. From now on the kernel refuses additions beyond `most`. `None` removes the limit.
    pub fn limit(&self, project: ProjectId, most: Option<Amount>) -> io::Result<()> {
        let most = most.map_or((0, 0), |most| (most.bytes.div_ceil(BLOCK).max(1), most.files.max(1)));
        sys::set_project_limits(self.0.as_fd(), project.0, most.0, most.1)
    }

    pub fn used(&self, project: ProjectId) -> io::Result<Amount> {
        let quota = self.quota(project)?;
        Ok(Amount { bytes: quota.bytes, files: quota.files })
    }

    /// Returns true if the project has no files and no limits.
    pub fn is_free(&self, project: ProjectId) -> io::Result<bool> {
        Ok(self.quota(project)? == sys::ProjectQuota::default())
    }

    fn quota(&self, project: ProjectId) -> io::Result<sys::ProjectQuota> {
        match sys::get_project_quota(self.0.as_fd(), project.0) {
            // A project that was never used: xfs returns this error, and ext4 returns zeros.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(sys::ProjectQuota::default()),
            quota => quota,
        }
    }
}

/// Opens the directory again, because `ioctl(2)` does not accept an `O_PATH` descriptor.
fn reopen(directory: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(directory, ".", flags, Mode::empty())?)
}

#[cfg(test)]
mod tests;
