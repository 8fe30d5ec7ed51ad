//! Writes a whole file in a directory in which hostile processes write too.
//!
//! ```text
//! open parent (no links) → note → random name, O_EXCL, 0600 → write → owner, mode → fsync
//!     → permitted? → still as expected? → rename within the same handle → fsync directory
//! ```
//!
//! - The old file is replaced, never opened for writing. So other names of a hard link keep their content, and a
//!   regular file replaces a FIFO, socket or device without touching it.
//! - A symlink as the name is refused. Replacing it would surprise a caller who meant its target. If one appears after
//!   that check, the rename replaces it and still does not follow it.
//! - Mode: 0644 for new files, else the old permission bits `& 0o777`, so that no setuid bit survives. Owner and group
//!   of the old file are kept if this process may do that. Extended attributes and ACLs are not kept.

use std::io::{self, Write as _};
use std::sync::Arc;

use rustix::fs::{Gid, Mode, RenameFlags, Uid, fchmod, fchown, fsync, mkdirat};
use rustix::io::Errno;

use crate::dir::Dir;
use crate::error::{OpenError, OpenErrorKind, WriteError};
use crate::fill::Filling;
use crate::meta::{FileKind, Metadata, RegularFile};
use crate::name::EntryName;
use crate::note::Note;
use crate::path::SandboxPath;
use crate::private::Private;
use crate::rel::RelPath;
use crate::resolve;
use crate::root::Root;
use crate::temporary::Temporary;
use crate::turn::Turn;
use text::excerpt;

const NEW_FILE_MODE: u32 = 0o644;
const NEW_DIRECTORY_MODE: u32 = 0o755;
/// Most directories that are open because they are not synced yet.
const UNSYNCED: usize = 32;

/// Treatment of missing directories in the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Parents {
    /// Makes them, with mode 0755 less the umask.
    Create,
    /// Makes them, and leaves it to the caller to sync them and all files in them.
    CreateUnsynced,
    /// Fails if one is missing.
    MustExist,
}

/// Condition under which a write takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteMode {
    /// The name must not exist. The kernel decides, so one of several writers wins.
    CreateOnly,
    /// No condition: replaces the file of that name.
    Replace,
    /// The file must still be the one that [`Target::found`] or [`Target::read`] saw last.
    ///
    /// A change in the instant between that check and the rename is not detected. If another operation of the run makes
    /// it, and there is a private directory, the two take turns.
    ReplaceUnchanged,
}

/// The file that a name referred to before the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    Absent,
    File(Metadata),
    /// A FIFO, socket or device.
    Special(Metadata),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    pub replaced: Found,
    /// Permission bits that the file has now.
    pub mode: u32,
}

/// A name in an open directory that will be written.
#[derive(Debug)]
pub struct Target {
    dir: Dir,
    /// Path of `dir` when it was opened.
    place: SandboxPath,
    name: EntryName,
    found: Found,
    private: Option<Arc<Private>>,
    /// Syncs each write before it returns.
    syncs: bool,
}

impl Target {
    pub(crate) fn open(
        root: &Root,
        rel: &RelPath,
        parents: Parents,
        private: Option<Arc<Private>>,
    ) -> Result<Self, OpenError> {
        let fault = |kind| OpenError::new(excerpt(&root.describe(rel)), kind);
        let (parent, name) = rel.split_last().ok_or_else(|| fault(OpenErrorKind::IsADirectory))?;
        let dir = match root.dir(&parent) {
            Err(OpenErrorKind::NotFound) if parents != Parents::MustExist => {
                make_directories(root, &parent, parents == Parents::Create)
            }
            opened => opened,
        }
        .map_err(fault)?;
        let found = find(&dir, &name).map_err(fault)?;
        let syncs = parents != Parents::CreateUnsynced;
        Ok(Self { dir, place: SandboxPath::new(root.mount(), parent), name, found, private, syncs })
    }

    /// Returns the file that was there at the last check.
    pub const fn found(&self) -> Found {
        self.found
    }

    /// Opens the current file, for its content or hash. `None` if there is no file.
    ///
    /// [`WriteMode::ReplaceUnchanged`] then expects this file.
    pub fn read(&mut self) -> Result<Option<RegularFile>, OpenError> {
        match resolve::open_regular(&self.dir, self.name.as_bytes()) {
            Ok(old) => {
                self.found = Found::File(old.meta);
                Ok(Some(old))
            }
            Err(OpenErrorKind::NotFound) => {
                self.found = Found::Absent;
                Ok(None)
            }
            Err(kind) => Err(OpenError::new(self.path(), kind)),
        }
    }

    /// Writes `bytes` as the whole content.
    pub fn write(self, bytes: &[u8], mode: WriteMode) -> Result<Written, WriteError> {
        self.write_from(&mut |file| file.write_all(bytes), None, mode)
    }

    /// Writes like [`Self::write`], from a function instead of memory.
    ///
    /// `permissions` are the bits that the file gets. `None` keeps those of the file that it replaces.
    pub fn write_from(
        self,
        filling: Filling<'_>,
        permissions: Option<u32>,
        mode: WriteMode,
    ) -> Result<Written, WriteError> {
        self.write_when(filling, permissions, mode, |_| Ok(()))
    }

    /// Writes like [`Self::write_from`], if `may` permits it.
    ///
    /// `may` is called when the content is durable under its temporary name, and may wait. If it fails, nothing has
    /// changed.
    pub fn write_when<E: From<WriteError>>(
        self,
        filling: Filling<'_>,
        permissions: Option<u32>,
        mode: WriteMode,
        may: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<Written, E> {
        if mode == WriteMode::CreateOnly && self.found != Found::Absent {
            return Err(WriteError::Exists { path: self.path() }.into());
        }
        let prepared = self.prepare_from(filling, None, permissions);
        let temporary = prepared.map_err(|kind| WriteError::from(OpenError::new(self.path(), kind)))?;
        may(&self)?;
        self.rename(temporary, mode)?;
        // The file exists from here on, so nothing is undone.
        if self.syncs {
            fsync(&self.dir).map_err(|errno| WriteError::NotDurable {
                path: self.path(),
                source: io::Error::from(errno),
            })?;
        }
        let mode = permissions.map_or_else(|| permissions_of(self.model(None)), |bits| bits & 0o777);
        Ok(Written { replaced: self.found, mode })
    }

    /// Returns the file whose owner and permissions the new one takes: the replaced one, else `like`.
    fn model(&self, like: Option<Metadata>) -> Option<Metadata> {
        match self.found {
            Found::File(old) => Some(old),
            Found::Absent | Found::Special(_) => like,
        }
    }

    /// Writes the content durably to a temporary file in the target's directory.
    pub(crate) fn prepare(
        &self,
        bytes: &[u8],
        like: Option<Metadata>,
    ) -> Result<Temporary<'_>, OpenErrorKind> {
        self.prepare_from(&mut |file| file.write_all(bytes), like, None)
    }

    /// Writes a temporary file like [`Self::prepare`], from a function instead of memory and with these permission
    /// bits.
    pub(crate) fn prepare_from(
        &self,
        filling: Filling<'_>,
        like: Option<Metadata>,
        permissions: Option<u32>,
    ) -> Result<Temporary<'_>, OpenErrorKind> {
        let model = self.model(like);
        let mut temporary = Temporary::create(&self.dir, &self.place, self.private.as_deref())?;
        temporary.fill(filling)?;
        if let Some(model) = model {
            keep_owner(&temporary, model)?;
        }
        // Set after the owner, because a change of owner clears bits.
        let mode = permissions.map_or_else(|| permissions_of(model), |bits| bits & 0o777);
        fchmod(temporary.file(), Mode::from_raw_mode(mode))?;
        if self.syncs {
            fsync(temporary.file())?;
        }
        Ok(temporary)
    }

    fn rename(&self, temporary: Temporary<'_>, mode: WriteMode) -> Result<(), WriteError> {
        let fault = |errno: Errno| WriteError::from(OpenError::new(self.path(), errno));
        if !temporary.is_intact().map_err(fault)? {
            return Err(WriteError::Interfered { path: self.path() });
        }
        let _turn = self.turn().map_err(fault)?;
        if mode == WriteMode::ReplaceUnchanged && !self.is_unchanged() {
            return Err(WriteError::Changed { path: self.path() });
        }
        let exclusive = match mode {
            WriteMode::CreateOnly => true,
            WriteMode::Replace => false,
            WriteMode::ReplaceUnchanged => self.found == Found::Absent,
        };
        let flags = if exclusive { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
        temporary.place(&self.name, flags).map_err(|errno| match (errno, mode) {
            (Errno::EXIST, WriteMode::CreateOnly) => WriteError::Exists { path: self.path() },
            (Errno::EXIST, WriteMode::ReplaceUnchanged) => WriteError::Changed { path: self.path() },
            _ => fault(errno),
        })
    }

    /// Keeps other operations of the run from renaming between a check of the name and a rename to it.
    pub(crate) fn turn(&self) -> Result<Option<Turn>, Errno> {
        self.private.as_deref().map(Turn::of_names).transpose()
    }

    pub(crate) fn is_unchanged(&self) -> bool {
        find(&self.dir, &self.name).is_ok_and(|now| now == self.found)
    }

    /// Returns the path of the file, for messages.
    pub(crate) fn path(&self) -> String {
        excerpt(&self.dir.child(&self.name))
    }

    pub(crate) const fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Returns the path of [`Self::dir`] when it was opened.
    pub(crate) const fn place(&self) -> &SandboxPath {
        &self.place
    }

    pub(crate) const fn name(&self) -> &EntryName {
        &self.name
    }

    /// Notes that a temporary file with these digits will be made in the directory.
    pub(crate) fn note(&self, random: &str) -> Result<Option<Note>, Errno> {
        self.private.as_deref().map(|private| Note::make(private, &self.place, random)).transpose()
    }
}

fn permissions_of(model: Option<Metadata>) -> u32 {
    model.map_or(NEW_FILE_MODE, |model| model.mode & 0o777)
}

fn find(dir: &Dir, name: &EntryName) -> Result<Found, OpenErrorKind> {
    match dir.stat(name) {
        Ok(meta) => match meta.kind {
            FileKind::File => Ok(Found::File(meta)),
            FileKind::Directory => Err(OpenErrorKind::IsADirectory),
            FileKind::Symlink => Err(OpenErrorKind::Symlink),
            FileKind::Fifo | FileKind::Socket | FileKind::Device | FileKind::Other => {
                Ok(Found::Special(meta))
            }
        },
        Err(Errno::NOENT) => Ok(Found::Absent),
        Err(errno) => Err(errno.into()),
    }
}

/// Opens `rel`, and makes missing directories.
///
/// If `syncs` is set, each directory that got a new one is synced. Several are synced together, because a journalling
/// file system then makes them durable at once.
pub(crate) fn make_directories(root: &Root, rel: &RelPath, syncs: bool) -> Result<Dir, OpenErrorKind> {
    let mut at = RelPath::root();
    let mut dir = root.dir(&at)?;
    let mut changed = Vec::new();
    for component in rel.components() {
        let name = EntryName::new(component.as_bytes()).ok_or(OpenErrorKind::Inexpressible)?;
        let made = match mkdirat(&dir, name.as_bytes(), Mode::from_raw_mode(NEW_DIRECTORY_MODE)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(errno.into()),
        };
        at = at.join(&name).ok_or(OpenErrorKind::Inexpressible)?;
        let next = if root.is_whole() {
            root.dir(&at)?
        } else {
            Dir::new(resolve::open_directory(&dir, name.as_bytes())?, root.describe(&at))
        };
        let above = std::mem::replace(&mut dir, next);
        if made && syncs {
            changed.push(above);
        }
        if changed.len() == UNSYNCED {
            sync(&mut changed)?;
        }
    }
    sync(&mut changed)?;
    Ok(dir)
}

fn sync(directories: &mut Vec<Dir>) -> Result<(), Errno> {
    directories.drain(..).try_for_each(|directory| fsync(&directory))
}

/// Gives the new file the old one's owner and group, if that is permitted and they can be expressed here.
fn keep_owner(temporary: &Temporary<'_>, old: Metadata) -> Result<(), OpenErrorKind> {
    let new = temporary.metadata()?;
    if (new.uid, new.gid) == (old.uid, old.gid) {
        return Ok(());
    }
    match fchown(temporary.file(), Some(Uid::from_raw(old.uid)), Some(Gid::from_raw(old.gid))) {
        Ok(()) | Err(Errno::PERM | Errno::INVAL | Errno::OVERFLOW) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
