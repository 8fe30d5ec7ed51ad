//! Opens the files and directories that are copied, and makes their copies, name by name.
//!
//! The process may be able to read more than its user (`setup`). It uses that only for files of this user, who could make them readable.
//! What belongs to another user has to be readable by its mode: otherwise an agent would get copies of files that it cannot read.

use std::fs::File;
use std::io::{self, Seek as _};
use std::os::fd::{AsFd, OwnedFd};

use jail::{Dir, EntryName, OpenError, OpenErrorKind, RegularFile};
use rustix::fs::{Mode, OFlags, Timespec, Timestamps, copy_file_range, fstat, mkdirat, openat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use text::excerpt;

/// Flags with which a directory is opened.
pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Most bytes that the kernel copies in one call.
const AT_A_TIME: usize = 1 << 30;

/// The permissions that others need for a directory: to read it and to enter it.
pub(crate) const ENTERED: u32 = 0o5;
/// The permission that others need for a file.
const READ: u32 = 0o4;

/// Opens the directory `name`, unless it is another user's and closed to this one.
pub(crate) fn open_dir(from: &Dir, name: &EntryName) -> Result<Dir, OpenError> {
    let opened = from.open_dir(name)?;
    check_open(&opened, ENTERED).map_err(|kind| at(name, kind))?;
    Ok(opened)
}

/// Opens the file `name`, unless it is another user's and closed to this one.
pub(crate) fn open_file(from: &Dir, name: &EntryName) -> Result<RegularFile, OpenError> {
    let opened = from.open_file(name)?;
    check_open(&opened.file, READ).map_err(|kind| at(name, kind))?;
    Ok(opened)
}

/// Refuses a file of another user whose mode does not have the `needed` permissions for this one.
pub(crate) fn check_open(file: impl AsFd, needed: u32) -> Result<(), OpenErrorKind> {
    let stat = fstat(file)?;
    let needed = if stat.st_gid == getegid().as_raw() { needed << 3 } else { needed };
    let is_open = stat.st_uid == geteuid().as_raw() || stat.st_mode & needed == needed;
    if is_open { Ok(()) } else { Err(OpenErrorKind::PermissionDenied) }
}

fn at(name: &EntryName, kind: OpenErrorKind) -> OpenError {
    OpenError { path: excerpt(&name.shown()), kind }
}

pub(crate) fn make_directory(into: &OwnedFd, name: &EntryName) -> io::Result<OwnedFd> {
    mkdirat(into, name.as_bytes(), Mode::RWXU)?;
    Ok(openat(into, name.as_bytes(), DIRECTORY, Mode::empty())?)
}

/// Copies at most `most` bytes in the kernel, which shares blocks where the file system can. Then the copy is at its beginning again.
///
/// Returns false if the kernel does not copy between these files.
pub(crate) fn by_kernel(from: &File, mut into: &File, most: u64) -> io::Result<bool> {
    let mut left = most;
    while left > 0 {
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(AT_A_TIME);
        match copy_file_range(from, None, into, None, length) {
            Ok(0) => break,
            Ok(copied) => left = left.saturating_sub(copied as u64),
            Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM)
                if left == most =>
            {
                return Ok(false);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    into.rewind()?;
    Ok(true)
}

pub(crate) fn make_file(into: impl AsFd, name: &EntryName) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(into, name.as_bytes(), flags, Mode::RUSR | Mode::WUSR)?.into())
}

pub(crate) fn times((seconds, nanos): (i64, u32)) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos.into() };
    Timestamps { last_access: time, last_modification: time }
}
