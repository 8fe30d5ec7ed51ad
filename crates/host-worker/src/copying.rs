//! Makes the files and directories of copies, name by name.

use std::fs::File;
use std::io::{self, Seek as _};
use std::os::fd::{AsFd, OwnedFd};

use jail::EntryName;
use rustix::fs::{Mode, OFlags, Timespec, Timestamps, copy_file_range, mkdirat, openat};
use rustix::io::Errno;

/// Flags with which a directory is opened.
pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Most bytes that the kernel copies in one call.
const AT_A_TIME: usize = 1 << 30;

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
