//! A file that exists under a random name until it is complete.

use std::fs::File;
use std::io::Write as _;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, fstat, renameat_with, unlinkat};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::dir::Dir;
use crate::error::{OpenError, OpenErrorKind};
use crate::meta::{FileKind, Metadata};
use crate::name::EntryName;
use crate::resolve::open_confined;

/// How every temporary name begins; agents cannot write such names themselves.
pub(crate) const TEMPORARY_PREFIX: &str = ".cofferdam-tmp-";
const RANDOM_BYTES: usize = 16;

/// A new file that only this process has open. It vanishes with this value unless it was put in place.
#[derive(Debug)]
pub(crate) struct Temporary<'d> {
    dir: &'d Dir,
    name: EntryName,
    file: File,
    placed: bool,
}

impl<'d> Temporary<'d> {
    /// 128 random bits: a name that is taken is an error, not a reason to try again.
    pub(crate) fn create(dir: &'d Dir) -> Result<Self, OpenErrorKind> {
        let name = random_name()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let fd = open_confined(dir, name.as_bytes(), flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Self { dir, name, file: fd.into(), placed: false })
    }

    pub(crate) fn fill(&mut self, bytes: &[u8]) -> Result<(), OpenErrorKind> {
        self.file.write_all(bytes).map_err(|error| match Errno::from_io_error(&error) {
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

    /// Whether the random name still stands for the file that was written.
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
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.placed {
            // Best effort: what stays is found by `sweep_temporaries`.
            let _ = unlinkat(self.dir, self.name.as_bytes(), AtFlags::empty());
        }
    }
}

fn random_name() -> Result<EntryName, OpenErrorKind> {
    let mut random = [0_u8; RANDOM_BYTES];
    // Up to 256 bytes come whole once the pool is ready, which it is long before a container runs.
    if getrandom(&mut random, GetRandomFlags::empty())? != RANDOM_BYTES {
        return Err(OpenErrorKind::TooManyRetries);
    }
    let text = format!("{TEMPORARY_PREFIX}{:032x}", u128::from_ne_bytes(random));
    EntryName::new(text.as_bytes()).ok_or(OpenErrorKind::Inexpressible)
}

/// Removes what a writer that was killed left in `dir` itself, and returns how many files that were. No write may be
/// going on in `dir`.
pub fn sweep_temporaries(dir: &Dir) -> Result<usize, OpenError> {
    let mut removed = 0;
    for entry in dir.entries()? {
        let entry = entry?;
        if entry.kind == FileKind::File && is_temporary(&entry.name) {
            match unlinkat(dir, entry.name.as_bytes(), AtFlags::empty()) {
                Ok(()) => removed += 1,
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(dir.fault(&entry.name, errno)),
            }
        }
    }
    Ok(removed)
}

fn is_temporary(name: &EntryName) -> bool {
    name.as_bytes().strip_prefix(TEMPORARY_PREFIX.as_bytes()).is_some_and(|random| {
        random.len() == 2 * RANDOM_BYTES
            && random.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_recognised_and_differ() {
        let (a, b) = (random_name().unwrap(), random_name().unwrap());
        assert!(is_temporary(&a) && is_temporary(&b));
        assert_ne!(a, b);
        assert!(!is_temporary(&EntryName::new(b".cofferdam-tmp-notes").unwrap()));
    }
}
