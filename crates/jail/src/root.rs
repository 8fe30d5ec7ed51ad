//! A mount's directory handle, at which every walk starts.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, open};

use crate::dir::{Dir, Inner};
use crate::error::{OpenError, OpenErrorKind};
use crate::meta::{Metadata, RegularFile};
use crate::mount::Mount;
use crate::outside::Outside;
use crate::path::SandboxPath;
use crate::rel::RelPath;
use crate::resolve;

/// One mount of a run, held by a handle, so that renaming or covering its path changes nothing.
///
/// The handle must be opened after the mount is in place: a later mount over it is not visible through it.
#[derive(Debug)]
pub struct Root {
    mount: Mount,
    fd: OwnedFd,
    inner: Option<Inner>,
    outside: Option<Outside>,
}

impl Root {
    /// Opens the directory at `at`, which is trusted: it comes from the process's own set-up, not from an agent.
    pub fn open(mount: Mount, at: &Path) -> io::Result<Self> {
        let fd = open(at, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { mount, fd, inner: None, outside: None })
    }

    /// Opens the root of a container, at `at`, and excludes the mounts of `others`.
    pub(crate) fn container(at: &Path, others: &[Self]) -> io::Result<Self> {
        let root = Self::open(Mount::Container, at)?;
        let inner = others.iter().filter_map(|root| root.inner.as_ref()).map(|inner| inner.fd.as_fd());
        let mounts: Vec<_> = others.iter().map(|root| root.fd.as_fd()).chain(inner).collect();
        let outside = Outside::of(&root.fd, &mounts)?;
        Ok(Self { outside: Some(outside), ..root })
    }

    /// Returns true if this is the root of a container: mounts below are entered, and links resolve as in a whole root.
    pub(crate) const fn is_whole(&self) -> bool {
        self.outside.is_some()
    }

    /// Adds the mount on the directory `name` in `at`, which is trusted too. No walk would enter it otherwise.
    ///
    /// For callers that only read. If `name` is a link, it is ignored.
    #[must_use]
    pub fn with_inner(self, at: &Path, name: &'static str) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let inner = open(at.join(name), flags, Mode::empty()).ok();
        Self { inner: inner.map(|fd| Inner { name, fd: Arc::new(fd) }), ..self }
    }

    pub const fn mount(&self) -> Mount {
        self.mount
    }

    /// Opens its topmost directory, for callers that walk all of it and check no protected paths.
    pub fn top(&self) -> Result<Dir, OpenError> {
        let rel = RelPath::root();
        self.dir(&rel).map_err(|kind| OpenError::new(self.describe(&rel), kind))
    }

    pub(crate) fn file(&self, rel: &RelPath) -> Result<RegularFile, OpenErrorKind> {
        let (at, path) = self.start(rel);
        if let Some(outside) = &self.outside {
            return resolve::regular(|flags| outside.open(at, path, flags));
        }
        resolve::open_regular(at, path)
    }

    pub(crate) fn known_file(&self, rel: &RelPath) -> Option<RegularFile> {
        let (at, path) = self.start(rel);
        if self.outside.is_some() {
            return None;
        }
        resolve::open_known(at, path)
    }

    pub(crate) fn dir(&self, rel: &RelPath) -> Result<Dir, OpenErrorKind> {
        let (at, path) = self.start(rel);
        let fd = match &self.outside {
            Some(outside) => outside.open(at, path, OFlags::RDONLY | OFlags::DIRECTORY)?,
            None => resolve::open_directory(at, path)?,
        };
        let inner = self.inner.clone().filter(|_| rel.is_root());
        Ok(Dir::new(fd, self.describe(rel)).with_inner(inner))
    }

    /// Returns the metadata of `rel` itself, even if it is a link, and a handle to examine it further.
    pub(crate) fn look(&self, rel: &RelPath) -> Result<(OwnedFd, Metadata), OpenErrorKind> {
        let (at, path) = self.start(rel);
        Ok(match &self.outside {
            Some(outside) => resolve::looked(outside.open(at, path, resolve::LOOK))?,
            None => resolve::look(at, path)?,
        })
    }

    /// Returns the handle at which a walk to `rel` starts, and the rest of the path.
    fn start<'r>(&'r self, rel: &'r RelPath) -> (BorrowedFd<'r>, &'r [u8]) {
        let path = bytes(rel);
        let beneath =
            self.inner.as_ref().and_then(|inner| match path.strip_prefix(inner.name.as_bytes())? {
                [] => Some((inner.fd.as_fd(), &b"."[..])),
                [b'/', rest @ ..] => Some((inner.fd.as_fd(), rest)),
                _ => None,
            });
        beneath.unwrap_or((self.fd.as_fd(), path))
    }

    /// Returns the path as agents know it.
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
