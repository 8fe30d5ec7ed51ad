//! Compares a part of a checkpoint with the directory that it would fill, so that no host worker is started without need.
//!
//! `/state` and the layer of a root are never empty: the daemon makes the same few directories and links in each of them. This code opens
//! directories alone, name by name. It follows no link, reads no file, and looks at a few names only.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat, readlinkat, statat};
use rustix::io::Errno;

use crate::directory::Directory;

/// Most names that are compared. A tree with more is left to a host worker.
const MOST_NAMES: usize = 64;
/// Most levels of directories that are compared.
const MOST_LEVELS: usize = 8;
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Returns true if [`fill`](crate::layer::fill) would change nothing but times of directories.
///
/// Then the tree has no marks, and only directories and links. The directory has each of them, with the same mode or text. A tree that
/// cannot be read, or has many names, is not such a tree.
pub fn adds_nothing(from: &Directory, into: &Directory) -> bool {
    is_there(from.handle.as_fd(), into.handle.as_fd()).unwrap_or(false)
}

fn is_there(from: BorrowedFd<'_>, into: BorrowedFd<'_>) -> Result<bool, Errno> {
    for list in ["marks", "opaque"] {
        match statat(from, list, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if stat.st_size > 0 => return Ok(false),
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    let files = openat(from, "files", DIRECTORY, Mode::empty())?;
    Comparison { left: MOST_NAMES }.directory(files.as_fd(), into, 0)
}

struct Comparison {
    /// Names that may still be compared.
    left: usize,
}

impl Comparison {
    /// Returns true if both directories have one mode, and all names of the saved one are in the other.
    fn directory(
        &mut self,
        saved: BorrowedFd<'_>,
        target: BorrowedFd<'_>,
        level: usize,
    ) -> Result<bool, Errno> {
        if level > MOST_LEVELS || (fstat(saved)?.st_mode ^ fstat(target)?.st_mode) & 0o777 != 0 {
            return Ok(false);
        }
        for entry in Dir::read_from(saved)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if self.left == 0 {
                return Ok(false);
            }
            self.left -= 1;
            if !self.name(saved, target, name, level)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn name(
        &mut self,
        saved: BorrowedFd<'_>,
        target: BorrowedFd<'_>,
        name: &CStr,
        level: usize,
    ) -> Result<bool, Errno> {
        let kind = |directory: BorrowedFd<'_>| match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        };
        match (kind(saved)?, kind(target)?) {
            (Some(FileType::Directory), Some(FileType::Directory)) => {
                let inner = openat(saved, name, DIRECTORY, Mode::empty())?;
                let other = openat(target, name, DIRECTORY, Mode::empty())?;
                self.directory(inner.as_fd(), other.as_fd(), level + 1)
            }
            (Some(FileType::Symlink), Some(FileType::Symlink)) => {
                Ok(readlinkat(saved, name, Vec::new())? == readlinkat(target, name, Vec::new())?)
            }
            _ => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::{Path, PathBuf};

    use super::*;

    /// Makes an empty part and an empty directory, both with one mode.
    fn pair() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let (from, into) = (place.path().join("from"), place.path().join("into"));
        fs::create_dir_all(from.join("files")).unwrap();
        fs::create_dir(&into).unwrap();
        fs::write(from.join("marks"), "").unwrap();
        for directory in [from.join("files"), into.clone()] {
            set_mode(&directory, 0o750);
        }
        (place, from, into)
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn compared(from: &Path, into: &Path) -> Result<bool, Errno> {
        let open = |path| fs::File::open(path).unwrap();
        is_there(open(from).as_fd(), open(into).as_fd())
    }

    #[test]
    fn a_saved_tree_adds_nothing_without_names_marks_and_another_mode() {
        let (_place, from, into) = pair();
        assert_eq!(compared(&from, &into), Ok(true));
        set_mode(&into, 0o700);
        assert_eq!(compared(&from, &into), Ok(false), "another mode");
        set_mode(&into, 0o750);
        for list in ["marks", "opaque"] {
            fs::write(from.join(list), "wgone\0").unwrap();
            assert_eq!(compared(&from, &into), Ok(false), "{list}");
            fs::write(from.join(list), "").unwrap();
        }
        assert_eq!(compared(&from, &into), Ok(true));
        fs::create_dir(from.join("files/d")).unwrap();
        assert_eq!(compared(&from, &into), Ok(false), "a name");
        fs::rename(from.join("files"), from.join("other")).unwrap();
        symlink("other", from.join("files")).unwrap();
        assert!(compared(&from, &into).is_err(), "no link is followed");
    }

    #[test]
    fn directories_and_links_that_are_there_already_add_nothing() {
        let (_place, from, into) = pair();
        for tree in [from.join("files"), into.clone()] {
            fs::create_dir_all(tree.join("etc/inner")).unwrap();
            symlink("/proc/mounts", tree.join("etc/mtab")).unwrap();
        }
        fs::write(into.join("etc/more"), "m").unwrap();
        assert_eq!(compared(&from, &into), Ok(true));
        set_mode(&into.join("etc/inner"), 0o711);
        assert_eq!(compared(&from, &into), Ok(false), "another mode");
        fs::remove_dir(into.join("etc/inner")).unwrap();
        symlink("/etc", into.join("etc/inner")).unwrap();
        assert_eq!(compared(&from, &into), Ok(false), "a link instead of a directory");
        fs::remove_file(into.join("etc/inner")).unwrap();
        fs::remove_dir(from.join("files/etc/inner")).unwrap();
        assert_eq!(compared(&from, &into), Ok(true));
        fs::remove_file(into.join("etc/mtab")).unwrap();
        symlink("/proc/self/mounts", into.join("etc/mtab")).unwrap();
        assert_eq!(compared(&from, &into), Ok(false), "another text");
        fs::remove_file(from.join("files/etc/mtab")).unwrap();
        for tree in [from.join("files"), into.clone()] {
            fs::write(tree.join("etc/same"), "s").unwrap();
        }
        assert_eq!(compared(&from, &into), Ok(false), "no file is read");
    }

    #[test]
    fn a_large_or_deep_tree_is_left_to_a_host_worker() {
        for (count, is_compared) in [(MOST_NAMES, true), (MOST_NAMES + 1, false)] {
            let (_place, from, into) = pair();
            for tree in [from.join("files"), into.clone()] {
                for number in 0..count {
                    fs::create_dir(tree.join(number.to_string())).unwrap();
                }
            }
            assert_eq!(compared(&from, &into), Ok(is_compared), "{count} names");
        }
        for (depth, is_compared) in [(MOST_LEVELS, true), (MOST_LEVELS + 1, false)] {
            let (_place, from, into) = pair();
            let deep: PathBuf = std::iter::repeat_n("d", depth).collect();
            for tree in [from.join("files"), into.clone()] {
                fs::create_dir_all(tree.join(&deep)).unwrap();
            }
            assert_eq!(compared(&from, &into), Ok(is_compared), "{depth} levels");
        }
    }
}
