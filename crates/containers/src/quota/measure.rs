//! Adds up the content of a directory without trusting any of it.
//!
//! An agent made the content and may change it meanwhile. The walk goes from open directory to open directory, follows no link, crosses no
//! mount, opens only directories and reads no file. It looks only at names, blocks and links. It holds one descriptor for each level, and
//! reports it if there are too many levels instead of silently leaving out the rest. It ends as soon as there is more than the caller asked
//! about.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;

use super::Amount;

/// Deepest level of directories that is entered.
pub const DEEPEST: usize = 256;
/// Bytes of a block in stat(2).
const BLOCK: u64 = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Measured {
    /// Total of the part that was scanned.
    pub amount: Amount,
    /// True if there is more than the caller asked about. The rest was not scanned.
    pub is_more: bool,
    /// True if directories are nested deeper than [`DEEPEST`]. The deeper ones were not scanned.
    pub is_too_deep: bool,
}

/// An open directory on the current path, and its entries that are still to be read.
struct Level {
    directory: OwnedFd,
    names: Dir,
}

/// Adds up the disk use of `directory`, itself included, until it is more than `most`. Blocks on the disk.
pub fn measure(directory: BorrowedFd<'_>, most: Amount) -> io::Result<Measured> {
    let stat = fstat(directory)?;
    let device = stat.st_dev;
    let mut measured = Measured::default();
    measured.amount.add(blocks(stat.st_blocks), 1);
    let mut way = vec![Level::open(directory, c".")?];
    loop {
        let depth = way.len();
        let Some(level) = way.last_mut() else { return Ok(measured) };
        let Some(entry) = level.names.next() else {
            way.pop();
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat = match statat(&level.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(errno.into()),
        };
        if stat.st_dev != device {
            continue;
        }
        let is_directory = FileType::from_raw_mode(stat.st_mode).is_dir();
        // All names of a file are inside, because no link leaves a mount. So each name counts for its share of the file.
        #[allow(clippy::useless_conversion)] // 32 bits on aarch64
        let names = if is_directory { 1 } else { u64::from(stat.st_nlink).max(1) };
        measured.amount.add(blocks(stat.st_blocks) / names, 1);
        if measured.amount.bytes > most.bytes || measured.amount.files > most.files {
            return Ok(Measured { is_more: true, ..measured });
        }
        if !is_directory {
            continue;
        }
        if depth >= DEEPEST {
            measured.is_too_deep = true;
            continue;
        }
        match Level::open(level.directory.as_fd(), name) {
            Ok(below) => way.push(below),
            // The entry was replaced meanwhile.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

impl Level {
    fn open(parent: BorrowedFd<'_>, name: &std::ffi::CStr) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(parent, name, flags, Mode::empty())?;
        let names = Dir::read_from(&directory)?;
        Ok(Self { directory, names })
    }
}

impl Amount {
    pub(super) fn add(&mut self, bytes: u64, files: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.files = self.files.saturating_add(files);
    }
}

fn blocks(blocks: impl TryInto<u64>) -> u64 {
    blocks.try_into().unwrap_or(0).saturating_mul(BLOCK)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::{MetadataExt as _, symlink};
    use std::path::Path;

    use rustix::fs::{CWD, Mode, mkdirat, openat};

    use super::*;

    const ALL: Amount = Amount { bytes: u64::MAX, files: u64::MAX };

    fn of(path: &Path, most: Amount) -> Measured {
        measure(File::open(path).unwrap().as_fd(), most).unwrap()
    }

    fn on_disk(path: &Path) -> u64 {
        fs::symlink_metadata(path).unwrap().blocks() * BLOCK
    }

    #[test]
    fn counts_blocks_and_every_inode_once_and_follows_nothing() {
        let place = tempfile::tempdir().unwrap();
        let outside = place.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("large"), vec![1; 1 << 20]).unwrap();
        let tree = place.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::write(tree.join("a/file"), vec![1; 100_000]).unwrap();
        fs::hard_link(tree.join("a/file"), tree.join("a/b/again")).unwrap();
        File::create(tree.join("sparse")).unwrap().set_len(1 << 30).unwrap();
        symlink(&outside, tree.join("link")).unwrap();
        symlink(outside.join("large"), tree.join("a/link")).unwrap();
        rustix::fs::mkfifoat(CWD, tree.join("fifo"), Mode::RWXU).unwrap();

        let found = of(&tree, ALL);
        let names = ["", "a", "a/b", "a/file", "sparse", "link", "a/link", "fifo"];
        let bytes: u64 = names.iter().map(|name| on_disk(&tree.join(name))).sum();
        assert_eq!(found.amount, Amount { bytes, files: 9 }, "two names of one file are two");
        assert!(!found.is_more && !found.is_too_deep);
        assert!(bytes < 1 << 20, "neither holes nor what links lead to: {bytes}");
    }

    #[test]
    fn measuring_stops_at_the_requested_limit() {
        let tree = tempfile::tempdir().unwrap();
        for n in 0..50 {
            fs::write(tree.path().join(n.to_string()), vec![1; 4096]).unwrap();
        }
        let found = of(tree.path(), Amount { files: 10, ..ALL });
        assert_eq!((found.amount.files, found.is_more), (11, true));
        let found = of(tree.path(), Amount { bytes: 20_000, ..ALL });
        assert!(found.is_more && found.amount.files < 10, "{found:?}");
        assert!(!of(tree.path(), Amount { files: 51, ..ALL }).is_more);
    }

    #[test]
    fn a_tree_that_is_too_deep_is_reported() {
        let tree = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut at = rustix::fs::open(tree.path(), flags, Mode::empty()).unwrap();
        for level in 1..DEEPEST + 2 {
            mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = openat(&at, "d", flags, Mode::empty()).unwrap();
            assert_eq!(of(tree.path(), ALL).is_too_deep, level >= DEEPEST, "{level}");
        }
    }
}
