//! Removes a file or an empty directory from a directory in which hostile processes write too.
//!
//! ```text
//! open parent (no links) → read the metadata of the name → (the caller keeps the content) → unchanged?
//!     → unlink within the same handle → fsync directory
//! ```
//!
//! The name is never followed: a link is refused, like FIFOs, sockets and devices. Other names of a file remain. A
//! change in the instant between the last check and the removal is not detected, as with
//! [`crate::WriteMode::ReplaceUnchanged`]: a process that can make the change can remove the file itself.

use std::io;

use rustix::fs::{AtFlags, fsync, unlinkat};
use rustix::io::Errno;

use crate::dir::Dir;
use crate::error::{OpenError, OpenErrorKind, RemoveError};
use crate::meta::{FileKind, Metadata, RegularFile};
use crate::name::EntryName;
use crate::rel::RelPath;
use crate::root::Root;
use text::excerpt;

#[derive(Debug)]
pub enum Removable {
    /// A regular file, open for reading.
    File(RegularFile),
    /// A directory that was empty when it was examined.
    Directory(Metadata),
}

/// A name in an open directory that will be removed. It is still unchanged.
#[derive(Debug)]
pub struct Removal {
    dir: Dir,
    name: EntryName,
    what: Removable,
}

impl Removal {
    pub(crate) fn open(root: &Root, rel: &RelPath) -> Result<Self, RemoveError> {
        let fault = |kind| OpenError::new(excerpt(&root.describe(rel)), kind);
        // The mount itself is in no directory beneath the mount.
        let (parent, name) = rel.split_last().ok_or_else(|| fault(OpenErrorKind::MountPoint))?;
        let dir = root.dir(&parent).map_err(fault)?;
        let meta = dir.metadata(&name)?;
        let what = match meta.kind {
            FileKind::File => Removable::File(dir.open_file(&name)?),
            FileKind::Directory if is_empty(&dir, &name)? => Removable::Directory(meta),
            FileKind::Directory => return Err(RemoveError::NotEmpty { path: excerpt(&dir.child(&name)) }),
            FileKind::Symlink => return Err(fault(OpenErrorKind::Symlink).into()),
            kind => return Err(fault(OpenErrorKind::NotRegular(kind)).into()),
        };
        Ok(Self { dir, name, what })
    }

    pub const fn what(&self) -> &Removable {
        &self.what
    }

    /// Removes the file or directory, unless it has changed since it was examined.
    pub fn remove(self) -> Result<(), RemoveError> {
        let path = || excerpt(&self.dir.child(&self.name));
        let fault = |errno: Errno| match errno {
            Errno::NOTEMPTY | Errno::EXIST => RemoveError::NotEmpty { path: path() },
            // The file changed after it was examined.
            Errno::NOENT | Errno::ISDIR | Errno::NOTDIR => RemoveError::Changed { path: path() },
            Errno::BUSY => OpenError::new(path(), OpenErrorKind::MountPoint).into(),
            errno => self.dir.fault(&self.name, errno).into(),
        };
        let (looked_at, flags) = match &self.what {
            Removable::File(file) => (&file.meta, AtFlags::empty()),
            Removable::Directory(meta) => (meta, AtFlags::REMOVEDIR),
        };
        if self.dir.stat(&self.name).map_err(fault)? != *looked_at {
            return Err(RemoveError::Changed { path: path() });
        }
        unlinkat(&self.dir, self.name.as_bytes(), flags).map_err(fault)?;
        fsync(&self.dir)
            .map_err(|errno| RemoveError::NotDurable { path: path(), source: io::Error::from(errno) })
    }
}

fn is_empty(dir: &Dir, name: &EntryName) -> Result<bool, OpenError> {
    let inner = dir.open_dir(name)?;
    Ok(inner.entries()?.next().transpose()?.is_none())
}
