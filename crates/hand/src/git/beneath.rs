//! Looking into the workspace through a handle, following no link and waiting for nothing.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;

use super::error::GitError;
use super::repository::WORKSPACE;

const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
/// Kernels report a rename that raced with the look; asking again is all there is to do.
const ATTEMPTS: usize = 16;

/// The workspace.
pub(super) struct Beneath(OwnedFd);

impl Beneath {
    pub(super) fn workspace() -> Result<Self, GitError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(CWD, WORKSPACE, flags, Mode::empty()).map(Self).map_err(library)
    }

    /// A regular file; `None` where there is none. A link or a special file is an error.
    pub(super) fn regular(&self, path: &Path) -> Result<Option<File>, GitError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match self.open(path, flags) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(Errno::LOOP | Errno::XDEV) => return Err(moved(path)),
            Err(errno) => return Err(library(errno)),
        };
        let kind = FileType::from_raw_mode(fstat(&file).map_err(library)?.st_mode);
        if kind == FileType::RegularFile { Ok(Some(file.into())) } else { Err(moved(path)) }
    }

    /// A directory.
    pub(super) fn directory(&self, path: &Path) -> Result<OwnedFd, Errno> {
        self.open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC)
    }

    fn open(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut result = Err(Errno::AGAIN);
        for _ in 0..ATTEMPTS {
            result = openat2(&self.0, path, flags, Mode::empty(), RESOLVE);
            if !matches!(result, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
        }
        result
    }
}

impl AsFd for Beneath {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn moved(path: &Path) -> GitError {
    GitError::Redirected { place: format!("@project/{}", path.display()), what: "no regular file" }
}

fn library(errno: Errno) -> GitError {
    GitError::Library(errno.to_string())
}
