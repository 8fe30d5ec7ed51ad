//! Entries of an archive besides files: directories and links. Also one sync for all files of an archive.

use rustix::fs::{symlinkat, syncfs};
use rustix::io::Errno;

use crate::dir::Dir;
use crate::error::{OpenError, OpenErrorKind};
use crate::jail::{Jail, Writable};
use crate::meta::FileKind;
use crate::mount::Mount;
use crate::rel::RelPath;
use crate::write::make_directories;
use text::excerpt;

impl Writable<'_> {
    /// Makes the directory and its parents where they are missing, without a sync.
    ///
    /// The directory gets the permission bits of `mode`, and its owner always has full access.
    pub fn make_directory(&self, mode: u32) -> Result<(), OpenError> {
        let (root, rel) = self.parts();
        let fault = |kind| OpenError::new(excerpt(&root.describe(rel)), kind);
        let dir = make_directories(root, rel, false).map_err(fault)?;
        dir.set_mode(mode | 0o700)
    }

    /// Makes the directory and its parents where they are missing.
    pub fn ensure_directory(&self) -> Result<(), OpenError> {
        let (root, rel) = self.parts();
        let made = make_directories(root, rel, false);
        made.map(drop).map_err(|kind| OpenError::new(excerpt(&root.describe(rel)), kind))
    }

    /// Makes a symbolic link to `target`, and replaces another link or file. A directory is not replaced.
    pub fn make_link(&self, target: &[u8]) -> Result<(), OpenError> {
        let (root, rel) = self.parts();
        let fault = |kind: OpenErrorKind| OpenError::new(excerpt(&root.describe(rel)), kind);
        let (parent, name) = rel.split_last().ok_or_else(|| fault(OpenErrorKind::IsADirectory))?;
        let dir: Dir = make_directories(root, &parent, false).map_err(fault)?;
        match symlinkat(target, &dir, name.as_bytes()) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => match dir.stat(&name) {
                Ok(there) if there.kind == FileKind::Directory => Err(fault(OpenErrorKind::IsADirectory)),
                _ => dir.put_link(&name, target),
            },
            Err(errno) => Err(fault(errno.into())),
        }
    }
}

impl Jail {
    /// Makes all writes to the mount durable, whichever process made them.
    pub fn sync(&self, mount: Mount) -> Result<(), OpenError> {
        let rel = RelPath::root();
        let fault = |kind| OpenError::new(mount.alias(), kind);
        let Ok(root) = self.root(mount) else { return Err(fault(OpenErrorKind::NotFound)) };
        // No file there outlives the container.
        if root.is_whole() {
            return Ok(());
        }
        let top = root.dir(&rel).map_err(fault)?;
        syncfs(&top).map_err(|errno| fault(errno.into()))
    }
}
