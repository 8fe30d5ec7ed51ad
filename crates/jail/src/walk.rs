//! The same confinement without `openat2`, for the container lane in gVisor, whose kernel lacks it.
//!
//! Every name in the path is opened separately, relative to the handle of the directory before it, as a handle that
//! only identifies (`O_PATH | O_NOFOLLOW`). The walk ends at a link or at another file system. `..` is never passed to
//! the kernel, so a walk cannot leave the directory in which it starts, whatever is renamed meanwhile.
//!
//! A mount is identified by its device. In gVisor each mount has a separate device; on Linux two bind mounts of one
//! file system share it, which is why the host lane does not start without `openat2`.
//!
//! gVisor follows a final link in spite of `O_NOFOLLOW | O_DIRECTORY`. So a directory is opened through its handle.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

const HANDLE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens `path`, which is `.` or plain names, as `openat2` would with the flags of [`super::resolve`].
pub(crate) fn open(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    if path == b"." {
        return openat(dir, ".", flags | OFlags::CLOEXEC, mode);
    }
    let device = fstat(dir)?.st_dev;
    let mut names: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    if names.iter().any(|name| matches!(*name, b"" | b"." | b"..")) {
        return Err(Errno::XDEV);
    }
    let Some(last) = names.pop() else { return Err(Errno::NOENT) };
    let mut walked = None;
    for name in names {
        walked = Some(directory(at(walked.as_ref(), dir), name, device)?);
    }
    let at = at(walked.as_ref(), dir);
    if flags.contains(OFlags::DIRECTORY) {
        let handle = directory(at, last, device)?;
        return if flags.contains(OFlags::PATH) {
            Ok(handle)
        } else {
            openat(handle, ".", flags | OFlags::CLOEXEC, mode)
        };
    }
    let opened = openat(at, last, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode)?;
    if fstat(&opened)?.st_dev == device { Ok(opened) } else { Err(Errno::XDEV) }
}

fn at<'f>(walked: Option<&'f OwnedFd>, dir: BorrowedFd<'f>) -> BorrowedFd<'f> {
    walked.map_or(dir, AsFd::as_fd)
}

/// Returns the handle of a directory that is neither a link nor on another device.
fn directory(at: BorrowedFd<'_>, name: &[u8], device: u64) -> Result<OwnedFd, Errno> {
    let handle = openat(at, name, HANDLE, Mode::empty())?;
    let stat = fstat(&handle)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory if stat.st_dev == device => Ok(handle),
        FileType::Directory => Err(Errno::XDEV),
        FileType::Symlink => Err(Errno::LOOP),
        _ => Err(Errno::NOTDIR),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, ResolveFlags, openat2};

    use super::*;

    const CONFINED: ResolveFlags = ResolveFlags::BENEATH
        .union(ResolveFlags::NO_MAGICLINKS)
        .union(ResolveFlags::NO_XDEV)
        .union(ResolveFlags::NO_SYMLINKS);

    fn root() -> (tempfile::TempDir, OwnedFd) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        fs::write(root.path().join("a/b/file"), "here").unwrap();
        fs::write(root.path().join("top"), "here").unwrap();
        for (link, target) in
            [("up", "../.."), ("there", "a/b"), ("a/b/link", "file"), ("gone", "none"), ("out", "/etc")]
        {
            symlink(target, root.path().join(link)).unwrap();
        }
        let handle =
            openat(CWD, root.path(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .unwrap();
        (root, handle)
    }

    /// What came of an open: the identity of what was opened, or why nothing was.
    fn seen(opened: Result<OwnedFd, Errno>) -> Result<(u64, u64), Errno> {
        opened.and_then(|opened| fstat(&opened)).map(|stat| (stat.st_dev, stat.st_ino))
    }

    #[test]
    fn walk_agrees_with_openat2() {
        let (_root, handle) = root();
        let paths = [
            ".",
            "a",
            "a/b",
            "a/b/file",
            "top",
            "top/x",
            "none",
            "none/x",
            "a/none",
            "up",
            "up/x",
            "there",
            "there/file",
            "a/b/link",
            "a/b/link/x",
            "gone",
            "out",
            "out/passwd",
        ];
        let all = [
            OFlags::PATH | OFlags::NOFOLLOW,
            OFlags::PATH | OFlags::DIRECTORY,
            OFlags::RDONLY | OFlags::DIRECTORY,
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY,
        ];
        for path in paths {
            for flags in all {
                let kernel = openat2(&handle, path, flags | OFlags::CLOEXEC, Mode::empty(), CONFINED);
                let walked = open(handle.as_fd(), path.as_bytes(), flags, Mode::empty());
                assert_eq!(seen(walked), seen(kernel), "{path} {flags:?}");
            }
        }
    }

    #[test]
    fn walk_stays_on_its_device() {
        let (_root, handle) = root();
        let refused = |path: &str| seen(open(handle.as_fd(), path.as_bytes(), OFlags::PATH, Mode::empty()));
        for path in ["..", "../x", "a/../..", "/etc", "a//b", "a/./b", ""] {
            assert_eq!(refused(path), Err(Errno::XDEV), "{path}");
        }
        let top =
            openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        for (path, flags) in [("proc", OFlags::PATH | OFlags::DIRECTORY), ("proc/version", OFlags::RDONLY)] {
            assert_eq!(
                seen(open(top.as_fd(), path.as_bytes(), flags, Mode::empty())),
                Err(Errno::XDEV),
                "{path}"
            );
        }
    }
}
