//! A file under a random name until it is complete.
//!
//! If the jail has a private directory, the file is noted there first. So recovery finds it if this process is killed
//! before the end: see `note`.

use std::fs::File;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, fstat, renameat_with, unlinkat};
use rustix::io::Errno;

use crate::dir::Dir;
use crate::error::OpenErrorKind;
use crate::fill::Filling;
use crate::meta::Metadata;
use crate::name::EntryName;
use crate::note::Note;
use crate::path::SandboxPath;
use crate::private::Private;
use crate::resolve::open_confined;
use crate::temporary_name::{name_of, random};

/// A new file that only this process has open. Dropping the value removes the file, unless it was moved into place.
#[derive(Debug)]
pub(crate) struct Temporary<'d> {
    dir: &'d Dir,
    name: EntryName,
    file: File,
    note: Option<Note>,
    placed: bool,
}

impl<'d> Temporary<'d> {
    /// Makes a file in `dir`, whose path is `place`, and notes it in `private`.
    ///
    /// The name has 128 random bits, so an existing name is an error and not retried.
    pub(crate) fn create(
        dir: &'d Dir,
        place: &SandboxPath,
        private: Option<&Private>,
    ) -> Result<Self, OpenErrorKind> {
        let random = random()?;
        let name = name_of(&random).ok_or(OpenErrorKind::Inexpressible)?;
        let note = private.map(|private| Note::make(private, place, &random)).transpose();
        let note = note.map_err(|errno| OpenErrorKind::Unnoted(errno.into()))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        match open_confined(dir, name.as_bytes(), flags, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => Ok(Self { dir, name, file: fd.into(), note, placed: false }),
            Err(errno) => {
                if let Some(note) = note {
                    note.remove();
                }
                Err(errno.into())
            }
        }
    }

    pub(crate) fn fill(&mut self, filling: Filling<'_>) -> Result<(), OpenErrorKind> {
        filling(&mut self.file).map_err(|error| match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => OpenErrorKind::Io(error),
        })
    }

    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn metadata(&self) -> Result<Metadata, Errno> {
        Ok(Metadata::new(&fstat(&self.file)?))
    }

    /// Returns true if the random name still refers to the file that was written.
    pub(crate) fn is_intact(&self) -> Result<bool, Errno> {
        match self.dir.stat(&self.name) {
            Ok(found) => Ok(found.identity == self.metadata()?.identity),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Renames it to `name` in the same directory.
    pub(crate) fn place(mut self, name: &EntryName, flags: RenameFlags) -> Result<(), Errno> {
        renameat_with(self.dir, self.name.as_bytes(), self.dir, name.as_bytes(), flags)?;
        self.placed = true;
        Ok(())
    }

    /// Leaves the file in its directory. The caller now has to remove it, and then its note.
    pub(crate) fn keep(mut self) -> (EntryName, Option<Note>) {
        self.placed = true;
        (self.name.clone(), self.note.take())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        // Best effort: a leftover is found by its note.
        let gone = self.placed
            || matches!(
                unlinkat(self.dir, self.name.as_bytes(), AtFlags::empty()),
                Ok(()) | Err(Errno::NOENT)
            );
        if gone && let Some(note) = &self.note {
            note.remove();
        }
    }
}
