//! An open directory. All operations are relative to the handle, use single names and follow no links. So changes to
//! the directory's own path meanwhile do not matter.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, fstat, statat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

use crate::error::{OpenError, OpenErrorKind};
use crate::meta::{FileKind, Metadata, RegularFile};
use crate::name::EntryName;
use crate::resolve;
use text::excerpt;

/// An open directory beneath a mount.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    /// Path for messages. It is never opened.
    path: String,
    /// For the topmost directory of a mount: the mount inside it.
    inner: Option<Inner>,
}

/// A mount on a directory of the topmost one, which readers see as a part of the outer mount.
#[derive(Debug, Clone)]
pub(crate) struct Inner {
    pub(crate) name: &'static str,
    pub(crate) fd: Arc<OwnedFd>,
}

impl Dir {
    pub(crate) const fn new(fd: OwnedFd, path: String) -> Self {
        Self { fd, path, inner: None }
    }

    pub(crate) fn with_inner(self, inner: Option<Inner>) -> Self {
        Self { inner, ..self }
    }

    /// Returns the entries in the file system's order, without `.` and `..`.
    ///
    /// A directory may be endless, so callers bound the iteration. Only one iteration at a time is possible, because
    /// the handle has one position. A second handle would cost a walker another open.
    pub fn entries(&self) -> Result<Entries<'_>, OpenError> {
        let mut stream = fcntl_dupfd_cloexec(&self.fd, 0)
            .and_then(rustix::fs::Dir::new)
            .map_err(|errno| OpenError::new(excerpt(&self.path), errno))?;
        stream.rewind();
        Ok(Entries { dir: self, stream })
    }

    /// Returns the metadata of `name` itself, even if it is a link.
    pub fn metadata(&self, name: &EntryName) -> Result<Metadata, OpenError> {
        self.stat(name).map_err(|errno| self.fault(name, errno))
    }

    /// Opens the directory `name`. A link is refused.
    pub fn open_dir(&self, name: &EntryName) -> Result<Self, OpenError> {
        let opened = match &self.inner {
            Some(inner) if inner.name.as_bytes() == name.as_bytes() => {
                resolve::open_directory(&inner.fd, b".")
            }
            _ => resolve::open_directory(&self.fd, name.as_bytes()),
        };
        let fd = opened.map_err(|errno| self.fault(name, errno))?;
        Ok(Self::new(fd, self.child(name)))
    }

    /// Opens the regular file `name` for reading. A link is refused.
    pub fn open_file(&self, name: &EntryName) -> Result<RegularFile, OpenError> {
        resolve::open_regular(&self.fd, name.as_bytes())
            .map_err(|kind| OpenError::new(excerpt(&self.child(name)), kind))
    }

    pub(crate) fn stat(&self, name: &EntryName) -> Result<Metadata, Errno> {
        statat(&self.fd, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW).map(|stat| Metadata::new(&stat))
    }

    /// Returns device and inode of the directory itself.
    pub(crate) fn identity(&self) -> Result<(u64, u64), OpenErrorKind> {
        Ok(Metadata::new(&fstat(&self.fd)?).identity)
    }

    pub(crate) fn fault(&self, name: &EntryName, errno: Errno) -> OpenError {
        OpenError::new(excerpt(&self.child(name)), errno)
    }

    pub(crate) fn kind_fault(&self, name: &EntryName, kind: OpenErrorKind) -> OpenError {
        OpenError::new(excerpt(&self.child(name)), kind)
    }

    /// Returns the path as agents know it, fit for a message.
    pub(crate) fn shown(&self) -> String {
        excerpt(&self.path)
    }

    pub(crate) fn child(&self, name: &EntryName) -> String {
        format!("{}/{}", self.path.trim_end_matches('/'), name.shown())
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: EntryName,
    /// Kind of file when the directory was read.
    pub kind: FileKind,
}

/// Iterates over a directory.
#[derive(Debug)]
pub struct Entries<'d> {
    dir: &'d Dir,
    stream: rustix::fs::Dir,
}

impl Entries<'_> {
    fn entry(&self, found: &rustix::fs::DirEntry) -> Result<Option<Entry>, OpenError> {
        let Some(name) = EntryName::new(found.file_name().to_bytes()) else {
            return Ok(None);
        };
        if found.file_type() != FileType::Unknown {
            return Ok(Some(Entry { name, kind: found.file_type().into() }));
        }
        // Some file systems do not store the type with the name.
        match self.dir.stat(&name) {
            Ok(meta) => Ok(Some(Entry { name, kind: meta.kind })),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.dir.fault(&name, errno)),
        }
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, OpenError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = match self.stream.next()? {
                Ok(found) => self.entry(&found),
                Err(errno) => Err(OpenError::new(excerpt(&self.dir.path), errno)),
            };
            if let Some(entry) = entry.transpose() {
                return Some(entry);
            }
        }
    }
}
