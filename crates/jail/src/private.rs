//! The run's private directory: files of the host lane outside the mounts, which the container never sees.
//!
//! It is outside every workspace, belongs to the same user as the written files, and lives as long as the run's record.
//! Its content is trusted only as far as it can do no harm: an operation that a hostile repository has taken over can
//! write here too.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, mkdirat, open, unlinkat};
use rustix::io::Errno;

use crate::error::OpenErrorKind;
use crate::meta::RegularFile;
use crate::name::EntryName;
use crate::resolve::{open_directory, open_regular};

/// Kind of content of a private directory. Each has a separate directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Keeps {
    /// Notes of temporary files that exist or are about to. See [`crate::Jail::sweep`].
    Temporaries,
    /// Patches that are being applied.
    Patches,
    /// Files that were deleted.
    Trash,
    /// Files that clients upload, until a call takes them. The daemon writes them, an operation reads them.
    Uploads,
}

impl Keeps {
    /// Returns its name in the private directory.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Temporaries => "temporaries",
            Self::Patches => "patches",
            Self::Trash => "trash",
            Self::Uploads => "uploads",
        }
    }
}

/// Selects the operations whose leftovers are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Whose {
    /// All operations. None may be running.
    Everyone,
    /// One operation, which has ended. Others may be running.
    Job(u64),
}

/// An open private directory, and the operation that uses it.
#[derive(Debug)]
pub struct Private {
    fd: OwnedFd,
    job: u64,
}

impl Private {
    /// Opens the directory at `at`, which is trusted.
    ///
    /// `job` is the number of the operation that uses it. No other operation may use the directory with the same number
    /// at the same time.
    pub fn open(at: &Path, job: u64) -> io::Result<Self> {
        Ok(Self::of(open(at, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?, job))
    }

    /// Makes a private directory of a handle, which is trusted.
    pub const fn of(fd: OwnedFd, job: u64) -> Self {
        Self { fd, job }
    }

    /// Returns the number of the operation that uses it. The names of its files begin with it, so that they can be told
    /// apart.
    pub const fn job(&self) -> u64 {
        self.job
    }

    /// Opens one of the directories in it, and makes it if it is missing.
    pub fn directory(&self, keeps: Keeps) -> io::Result<OwnedFd> {
        Ok(self.open_or_make(keeps)?)
    }

    /// Opens one of its regular files for reading.
    pub fn file(&self, keeps: Keeps, name: &EntryName) -> Result<RegularFile, OpenErrorKind> {
        open_regular(open_directory(&self.fd, keeps.name().as_bytes())?, name.as_bytes())
    }

    /// Removes one of its files. A missing file is not an error.
    pub fn remove(&self, keeps: Keeps, name: &EntryName) -> io::Result<()> {
        let directory = open_directory(&self.fd, keeps.name().as_bytes())?;
        match unlinkat(&directory, name.as_bytes(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns true if it needs no recovery: it has no note of a temporary file and no journal of a patch.
    pub fn is_clean(&self) -> io::Result<bool> {
        for keeps in [Keeps::Temporaries, Keeps::Patches] {
            match open_directory(&self.fd, keeps.name().as_bytes()) {
                Ok(directory) if is_empty(&directory)? => {}
                Ok(_) => return Ok(false),
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(true)
    }

    pub(crate) fn open_or_make(&self, keeps: Keeps) -> Result<OwnedFd, Errno> {
        let name = keeps.name().as_bytes();
        match open_directory(&self.fd, name) {
            Err(Errno::NOENT) => {}
            opened => return opened,
        }
        match mkdirat(&self.fd, name, Mode::RWXU) {
            // Another operation made it first.
            Ok(()) | Err(Errno::EXIST) => open_directory(&self.fd, name),
            Err(errno) => Err(errno),
        }
    }
}

impl AsFd for Private {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn is_empty(directory: &OwnedFd) -> Result<bool, Errno> {
    for entry in Dir::read_from(directory)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}
