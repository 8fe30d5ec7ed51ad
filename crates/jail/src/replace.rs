//! Replaces the file of a name by a complete new one, to apply a layer of changes.
//!
//! ```text
//! new file under a random name → complete, synced → rename over the old one, or exchanged with it → old one removed
//! ```
//!
//! At every moment, the name refers to the old file or to the new one, whatever their kinds. No link is followed,
//! neither the old nor the new one. The caller decides which names may be replaced: this module does not check
//! protected paths.

use std::fs::File;
use std::io;

use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, fchmod, fsync, mkdirat, readlinkat, renameat_with, symlinkat,
    unlinkat,
};
use rustix::io::Errno;

use crate::dir::Dir;
use crate::error::{OpenError, OpenErrorKind};
use crate::meta::FileKind;
use crate::name::EntryName;
use crate::resolve;
use crate::temporary_name::{TEMPORARY_PREFIX, is_random, name_of, random};

/// Most levels of a tree that is removed here. Each costs a descriptor.
const MAX_DEPTH: usize = 128;

impl EntryName {
    /// Returns true if it is the name of a temporary file of this crate, which no agent has made.
    pub fn is_temporary(&self) -> bool {
        self.as_str().and_then(|name| name.strip_prefix(TEMPORARY_PREFIX)).is_some_and(is_random)
    }
}

impl Dir {
    /// Returns the text of the link `name`.
    pub fn read_link(&self, name: &EntryName) -> Result<Vec<u8>, OpenError> {
        let target =
            readlinkat(self, name.as_bytes(), Vec::new()).map_err(|errno| self.fault(name, errno))?;
        Ok(target.into_bytes())
    }

    /// Makes `name` a regular file with the rest of `content` from its current position, and the permission bits of
    /// `mode`.
    pub fn put_file(&self, name: &EntryName, content: &mut File, mode: u32) -> Result<(), OpenError> {
        let aside = self.free(name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let fill = || -> Result<(), OpenErrorKind> {
            let fd = resolve::open_confined(self, aside.as_bytes(), flags, Mode::RUSR | Mode::WUSR)?;
            let mut file = File::from(fd);
            io::copy(content, &mut file).map_err(|error| match Errno::from_io_error(&error) {
                Some(errno) => errno.into(),
                None => OpenErrorKind::Io(error),
            })?;
            fchmod(&file, Mode::from_raw_mode(mode & 0o777))?;
            Ok(fsync(&file)?)
        };
        self.put(&aside, name, fill)
    }

    /// Makes `name` a symbolic link to `target`.
    pub fn put_link(&self, name: &EntryName, target: &[u8]) -> Result<(), OpenError> {
        let aside = self.free(name)?;
        self.put(&aside, name, || Ok(symlinkat(target, self, aside.as_bytes())?))
    }

    /// Makes `name` an empty directory with the permission bits of `mode`, unless it is a directory already.
    pub fn put_dir(&self, name: &EntryName, mode: u32) -> Result<(), OpenError> {
        if self.kind(name).map_err(|kind| self.kind_fault(name, kind))? == Some(FileKind::Directory) {
            return Ok(());
        }
        let aside = self.free(name)?;
        let make = || {
            mkdirat(self, aside.as_bytes(), Mode::RWXU)?;
            let directory = resolve::open_directory(self, aside.as_bytes())?;
            Ok(fchmod(directory, Mode::from_raw_mode(mode & 0o777))?)
        };
        self.put(&aside, name, make)
    }

    /// Sets the permission bits of the directory itself to those of `mode`.
    pub fn set_mode(&self, mode: u32) -> Result<(), OpenError> {
        fchmod(self, Mode::from_raw_mode(mode & 0o777)).map_err(|errno| OpenError::new(self.shown(), errno))
    }

    /// Removes `name` and everything beneath it. A missing name is not an error.
    pub fn remove(&self, name: &EntryName) -> Result<(), OpenError> {
        self.remove_all(name, 0).map_err(|kind| self.kind_fault(name, kind))
    }

    /// Makes the changes in this directory durable.
    pub fn sync(&self) -> Result<(), OpenError> {
        fsync(self).map_err(|errno| OpenError::new(self.shown(), errno))
    }

    /// Removes the leftovers of a killed process in this directory, of any kind.
    pub fn sweep(&self) -> Result<(), OpenError> {
        let mut left = Vec::new();
        for entry in self.entries()? {
            let entry = entry?;
            if entry.name.is_temporary() {
                left.push(entry.name);
            }
        }
        left.iter().try_for_each(|name| self.remove(name))
    }

    /// Returns an unused name, under which the new `name` is prepared.
    fn free(&self, name: &EntryName) -> Result<EntryName, OpenError> {
        let free = random().and_then(|random| name_of(&random).ok_or(OpenErrorKind::Inexpressible));
        free.map_err(|kind| self.kind_fault(name, kind))
    }

    /// Calls `make` to make `aside`, moves it to `name`, and removes the old file.
    fn put(
        &self,
        aside: &EntryName,
        name: &EntryName,
        make: impl FnOnce() -> Result<(), OpenErrorKind>,
    ) -> Result<(), OpenError> {
        let put = make().and_then(|()| self.swap(aside, name));
        // `aside` is now the old file, or a new one that failed. A leftover is swept later.
        let removed = self.remove_all(aside, 0);
        put.and(removed).map_err(|kind| self.kind_fault(name, kind))
    }

    fn swap(&self, aside: &EntryName, name: &EntryName) -> Result<(), OpenErrorKind> {
        let flags = match (self.kind(aside)?, self.kind(name)?) {
            (_, None) => RenameFlags::NOREPLACE,
            // A plain rename fails only in this case.
            (Some(FileKind::Directory), _) | (_, Some(FileKind::Directory)) => RenameFlags::EXCHANGE,
            _ => RenameFlags::empty(),
        };
        Ok(renameat_with(self, aside.as_bytes(), self, name.as_bytes(), flags)?)
    }

    fn remove_all(&self, name: &EntryName, depth: usize) -> Result<(), OpenErrorKind> {
        match unlinkat(self, name.as_bytes(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
        match unlinkat(self, name.as_bytes(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) if depth < MAX_DEPTH => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Err(OpenErrorKind::NameTooLong),
            Err(errno) => return Err(errno.into()),
        }
        let within = Self::new(resolve::open_directory(self, name.as_bytes())?, self.child(name));
        let names: Result<Vec<_>, OpenError> =
            within.entries().and_then(|entries| entries.map(|entry| Ok(entry?.name)).collect());
        for name in names.map_err(|error| error.kind)? {
            within.remove_all(&name, depth + 1)?;
        }
        match unlinkat(self, name.as_bytes(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn kind(&self, name: &EntryName) -> Result<Option<FileKind>, OpenErrorKind> {
        match self.stat(name) {
            Ok(meta) => Ok(Some(meta.kind)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}
