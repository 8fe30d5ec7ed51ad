//! Project quotas: the kernel's own count of what belongs to a project, and its bound.
//!
//! A directory is given a project, and everything that is made in it inherits that. The owner of a file could give it
//! another project, or take the inheritance off a directory, by `ioctl(2)`: the seccomp profile of containers refuses that.

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat};
use serde::{Deserialize, Serialize};

use super::Amount;
use crate::sys;

/// Bytes of a block in which limits are given.
const BLOCK: u64 = 1_024;

/// A project of one of ours. The numbers are far from those that people give to theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProjectId(u32);

impl ProjectId {
    const FIRST: u32 = 0x4000_0000;
    const LAST: u32 = 0x7fff_ffff;

    /// The project of this number, if it may be one of ours.
    pub fn new(number: u32) -> Option<Self> {
        (Self::FIRST..=Self::LAST).contains(&number).then_some(Self(number))
    }

    /// One of ours for any number at all.
    pub fn from_any(number: u32) -> Self {
        Self(Self::FIRST | (number & (Self::LAST - Self::FIRST)))
    }

    /// The one after it, and the first after the last.
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

/// The project quotas of a file system that enforces them.
#[derive(Debug)]
pub struct ProjectQuotas(OwnedFd);

impl ProjectQuotas {
    /// Those of the file system of `directory`; `None` where it has none, counts without enforcing, or the kernel is older
    /// than `quotactl_fd(2)` (5.14).
    pub fn of(directory: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        let directory = reopen(directory)?;
        let enforced = sys::project_quota_enforced(directory.as_fd()).unwrap_or(false);
        Ok(enforced.then_some(Self(directory)))
    }

    /// Gives an empty directory to a project, with everything that will be in it.
    pub fn assign(&self, directory: BorrowedFd<'_>, project: ProjectId) -> io::Result<()> {
        let directory = reopen(directory)?;
        let mut attributes = sys::get_fsxattr(directory.as_fd())?;
        attributes.project = project.0;
        attributes.flags |= sys::FS_XFLAG_PROJINHERIT;
        sys::set_fsxattr(directory.as_fd(), &attributes)
    }

    /// The project of a directory, if it is one of ours.
    pub fn project_of(&self, directory: BorrowedFd<'_>) -> io::Result<Option<ProjectId>> {
        let attributes = sys::get_fsxattr(reopen(directory)?.as_fd())?;
        Ok(ProjectId::new(attributes.project))
    }

    /// What the kernel refuses from now on to add to a project is what would be more than `most`. Nothing is no bound.
    pub fn limit(&self, project: ProjectId, most: Option<Amount>) -> io::Result<()> {
        let most = most.map_or((0, 0), |most| (most.bytes.div_ceil(BLOCK).max(1), most.files.max(1)));
        sys::set_project_limits(self.0.as_fd(), project.0, most.0, most.1)
    }

    pub fn used(&self, project: ProjectId) -> io::Result<Amount> {
        let quota = self.quota(project)?;
        Ok(Amount { bytes: quota.bytes, files: quota.files })
    }

    /// Whether nobody uses or limits this project.
    pub fn is_free(&self, project: ProjectId) -> io::Result<bool> {
        Ok(self.quota(project)? == sys::ProjectQuota::default())
    }

    fn quota(&self, project: ProjectId) -> io::Result<sys::ProjectQuota> {
        match sys::get_project_quota(self.0.as_fd(), project.0) {
            // Never heard of: xfs says so, ext4 says zeros.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(sys::ProjectQuota::default()),
            quota => quota,
        }
    }
}

/// With a descriptor that `ioctl(2)` takes: one that only names a directory does not do.
fn reopen(directory: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(directory, ".", flags, Mode::empty())?)
}

#[cfg(test)]
mod tests;
