//! The one place that asks the kernel to open a name. Everything that the crate promises about confinement is the
//! set of flags here.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use thiserror::Error;

use crate::error::OpenErrorKind;
use crate::meta::{FileKind, Metadata, RegularFile};
use crate::walk;

/// - `BENEATH`: neither `..` nor a link nor an absolute path leaves the handle that the walk starts from.
/// - `NO_MAGICLINKS`: nothing like `/proc/PID/root` or `/proc/PID/fd/N` is entered.
/// - `NO_XDEV`: nothing mounted below is entered. The mount's own root is where the walk starts, so that it is never
///   crossed itself.
/// - `NO_SYMLINKS`: no link at all; reading follows them one by one, see `follow`.
const CONFINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV)
    .union(ResolveFlags::NO_SYMLINKS);

/// The same beneath the root of a container, whose own mounts are entered: see [`crate::outside`].
const ACROSS: ResolveFlags = CONFINED.difference(ResolveFlags::NO_XDEV);

/// The kernel answers `EAGAIN` when a rename anywhere on the host raced with the walk.
const MAX_RETRIES: u32 = 128;

/// Opens a name itself, to be looked at alone.
pub(crate) const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW);

/// The kernel, or a filter around this process, does not have what confinement needs.
#[derive(Debug, Error)]
#[error(
    "openat2 with RESOLVE_BENEATH is not available (Linux 5.6 or later is needed, and no filter against it)"
)]
pub struct Unsupported(#[source] std::io::Error);

/// Asks the kernel for a confined open. A process on the host that gets an error must not start: see [`crate::walk`].
pub fn supported() -> Result<(), Unsupported> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    confined(CWD.as_fd(), b".", flags, Mode::empty()).map(drop).map_err(|errno| Unsupported(errno.into()))
}

/// Opens `path` beneath `dir` and through no link. Descriptors are always close-on-exec.
pub(crate) fn open_confined(
    dir: impl AsFd,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    match confined(dir.as_fd(), path, flags | OFlags::CLOEXEC, mode) {
        Err(Errno::NOSYS) => walk::open(dir.as_fd(), path, flags, mode),
        result => result,
    }
}

/// As [`open_confined`], over mount points, to look or to read.
pub(crate) fn open_across(dir: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    resolved(dir.as_fd(), path, flags | OFlags::CLOEXEC, Mode::empty(), ACROSS)
}

fn confined(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    resolved(dir, path, flags, mode, CONFINED)
}

fn resolved(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
    how: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let mut tries = 0;
    loop {
        match openat2(dir, path, flags, mode, how) {
            Err(Errno::AGAIN | Errno::INTR) if tries < MAX_RETRIES => tries += 1,
            result => return result,
        }
    }
}

/// The regular file at `path`, if opening it asks neither a disk nor a server for anything: the kernel knows the whole
/// path already (`RESOLVE_CACHED`, Linux 5.12). `None` says nothing about what is there.
pub(crate) fn open_known(dir: impl AsFd, path: &[u8]) -> Option<RegularFile> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = CONFINED.union(ResolveFlags::CACHED);
    let fd = openat2(dir, path, flags, Mode::empty(), resolve).ok()?;
    let meta = Metadata::new(&fstat(&fd).ok()?);
    (meta.kind == FileKind::File).then(|| RegularFile { file: fd.into(), meta })
}

/// Opens a directory so that it can be listed, written in and synced.
pub(crate) fn open_directory(dir: impl AsFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    open_confined(dir, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
}

/// Opens a regular file for reading. Anything else may be opened for an instant too, since only an open file tells
/// for sure what it is: without waiting (FIFO), without becoming the controlling terminal, and devices fail
/// already because mounts are `nodev`.
pub(crate) fn open_regular(dir: impl AsFd, path: &[u8]) -> Result<RegularFile, OpenErrorKind> {
    let dir = dir.as_fd();
    regular(|flags| open_confined(dir, path, flags, Mode::empty()))
}

/// The same with another way to open it.
pub(crate) fn regular(open: impl Fn(OFlags) -> Result<OwnedFd, Errno>) -> Result<RegularFile, OpenErrorKind> {
    let fd = match open(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
        Ok(fd) => fd,
        // A socket gives ENXIO and a device on a `nodev` mount EACCES: say what it is.
        Err(errno @ (Errno::ACCESS | Errno::PERM | Errno::NXIO | Errno::NODEV)) => {
            return Err(match looked(open(LOOK)).map(|(_, meta)| meta.kind) {
                Ok(kind @ (FileKind::Fifo | FileKind::Socket | FileKind::Device | FileKind::Other)) => {
                    OpenErrorKind::NotRegular(kind)
                }
                _ => errno.into(),
            });
        }
        Err(errno) => return Err(errno.into()),
    };
    let meta = Metadata::new(&fstat(&fd)?);
    match meta.kind {
        FileKind::File => Ok(RegularFile { file: fd.into(), meta }),
        FileKind::Directory => Err(OpenErrorKind::IsADirectory),
        kind => Err(OpenErrorKind::NotRegular(kind)),
    }
}

/// What `path` itself is, links included, without opening it: the handle can only be looked at.
pub(crate) fn look(dir: impl AsFd, path: &[u8]) -> Result<(OwnedFd, Metadata), Errno> {
    looked(open_confined(dir, path, LOOK, Mode::empty()))
}

/// The same of what was opened with [`LOOK`].
pub(crate) fn looked(opened: Result<OwnedFd, Errno>) -> Result<(OwnedFd, Metadata), Errno> {
    let fd = opened?;
    let meta = Metadata::new(&fstat(&fd)?);
    Ok((fd, meta))
}
