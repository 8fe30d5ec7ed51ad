//! The one place that asks the kernel to open a name. The set of flags here makes the confinement that the crate
//! promises.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use thiserror::Error;

use crate::error::OpenErrorKind;
use crate::meta::{FileKind, Metadata, RegularFile};
use crate::walk;

/// - `BENEATH`: no `..`, link or absolute path leaves the handle at which the walk starts.
/// - `NO_MAGICLINKS`: no link such as `/proc/PID/root` or `/proc/PID/fd/N` is followed.
/// - `NO_XDEV`: no file system mounted below is entered. The walk starts at the mount's own root, so that this is never
///   crossed.
/// - `NO_SYMLINKS`: no link at all. Reads follow links one by one, see `follow`.
const CONFINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV)
    .union(ResolveFlags::NO_SYMLINKS);

/// The same beneath the root of a container, whose mounts are entered: see [`crate::outside`].
const ACROSS: ResolveFlags = CONFINED.difference(ResolveFlags::NO_XDEV);

/// Most retries of an open. The kernel returns `EAGAIN` if a rename anywhere on the host raced with the walk.
const MAX_RETRIES: u32 = 128;

/// Opens a name itself, only to read its metadata.
pub(crate) const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW);

/// The kernel, or a filter around this process, does not support confinement.
#[derive(Debug, Error)]
#[error(
    "openat2 with RESOLVE_BENEATH is not available (Linux 5.6 or later is needed, and no filter against it)"
)]
pub struct Unsupported(#[source] std::io::Error);

/// Asks the kernel for a confined open. A process on the host must not start if this fails: see [`crate::walk`].
pub fn supported() -> Result<(), Unsupported> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    confined(CWD.as_fd(), b".", flags, Mode::empty()).map(drop).map_err(|errno| Unsupported(errno.into()))
}

/// Opens `path` beneath `dir`, without following links. Descriptors are always close-on-exec.
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

/// Opens like [`open_confined`], but across mount points. Only for reads.
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

/// Opens the regular file at `path`, if that needs no disk and no server.
///
/// The kernel must have the whole path cached (`RESOLVE_CACHED`, Linux 5.12). `None` does not mean that the file is
/// missing.
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

/// Opens a regular file for reading.
///
/// A file of another kind may be opened for an instant too, because only an open file shows its kind reliably. That
/// open does not wait (FIFO) and does not set the controlling terminal. Opens of devices fail, because mounts are
/// `nodev`.
pub(crate) fn open_regular(dir: impl AsFd, path: &[u8]) -> Result<RegularFile, OpenErrorKind> {
    let dir = dir.as_fd();
    regular(|flags| open_confined(dir, path, flags, Mode::empty()))
}

/// Opens a regular file like [`open_regular`], with the function `open`.
pub(crate) fn regular(open: impl Fn(OFlags) -> Result<OwnedFd, Errno>) -> Result<RegularFile, OpenErrorKind> {
    let fd = match open(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
        Ok(fd) => fd,
        // A socket gives ENXIO and a device on a `nodev` mount EACCES: report the kind instead.
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

/// Returns the metadata of `path` itself, even if it is a link. The handle allows no read or write.
pub(crate) fn look(dir: impl AsFd, path: &[u8]) -> Result<(OwnedFd, Metadata), Errno> {
    looked(open_confined(dir, path, LOOK, Mode::empty()))
}

/// Returns the metadata of a handle that was opened with [`LOOK`].
pub(crate) fn looked(opened: Result<OwnedFd, Errno>) -> Result<(OwnedFd, Metadata), Errno> {
    let fd = opened?;
    let meta = Metadata::new(&fstat(&fd)?);
    Ok((fd, meta))
}
