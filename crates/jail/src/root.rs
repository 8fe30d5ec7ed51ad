//! A mount's directory handle: where every walk starts.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

use crate::dir::Dir;
use crate::error::{OpenError, OpenErrorKind};
use crate::meta::{Metadata, RegularFile};
use crate::mount::Mount;
use crate::path::SandboxPath;
use crate::rel::RelPath;
use crate::resolve;

/// One mount of a run, held by a handle, so that renaming or covering its path changes nothing.
///
/// The handle must be opened after the mount is in place: what is mounted over it later is not seen through it.
#[derive(Debug)]
pub struct Root {
    mount: Mount,
    fd: OwnedFd,
}

impl Root {
    /// Opens the directory at `at`, which is trusted: it comes from the process's own set-up, not from an agent.
    pub fn open(mount: Mount, at: &Path) -> io::Result<Self> {
        let fd = open(at, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { mount, fd })
    }

    /// Which mount this is.
    pub const fn mount(&self) -> Mount {
        self.mount
    }

    /// Its topmost directory, for those who walk all of it and ask about no protected path.
    pub fn top(&self) -> Result<Dir, OpenError> {
        let rel = RelPath::root();
        self.dir(&rel).map_err(|kind| OpenError::new(self.describe(&rel), kind))
    }

    pub(crate) fn file(&self, rel: &RelPath) -> Result<RegularFile, OpenErrorKind> {
        resolve::open_regular(&self.fd, bytes(rel))
    }

    pub(crate) fn known_file(&self, rel: &RelPath) -> Option<RegularFile> {
        resolve::open_known(&self.fd, bytes(rel))
    }

    pub(crate) fn dir(&self, rel: &RelPath) -> Result<Dir, OpenErrorKind> {
        let fd = resolve::open_directory(&self.fd, bytes(rel))?;
        Ok(Dir::new(fd, self.describe(rel)))
    }

    /// The metadata of `rel` itself, links included, and a handle to look at it further.
    pub(crate) fn look(&self, rel: &RelPath) -> Result<(OwnedFd, Metadata), OpenErrorKind> {
        Ok(resolve::look(&self.fd, bytes(rel))?)
    }

    /// The place as agents know it.
    pub(crate) fn describe(&self, rel: &RelPath) -> String {
        SandboxPath::new(self.mount, rel.clone()).to_string()
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn bytes(rel: &RelPath) -> &[u8] {
    if rel.is_root() { b"." } else { rel.as_str().as_bytes() }
}
