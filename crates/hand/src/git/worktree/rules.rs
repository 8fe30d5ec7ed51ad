//! What makes a file count as unchanged: what the file system says of it, against what the index has.

use git2::Repository;
use rustix::fs::{FileType, Stat};

use crate::git::difference::{EXECUTABLE, LINK, PLAIN};
use crate::git::error::GitError;
use crate::git::index::{Entry, Index, Time};

/// The id of a blob without content.
const EMPTY: [u8; 20] = [
    0xe6, 0x9d, 0xe2, 0x9b, 0xb2, 0xd1, 0xd6, 0x43, 0x4b, 0x8b, 0x29, 0xae, 0x77, 0x5a, 0xd8, 0xc2, 0xe4,
    0x8c, 0x53, 0x91,
];

#[derive(Clone, Copy)]
pub(super) struct Rules {
    /// Whether the file system has executable bits, and links; the repository's configuration says so.
    keeps_modes: bool,
    has_links: bool,
    /// When the index was written.
    written: Time,
}

impl Rules {
    pub(super) fn new(repository: &Repository, index: &Index) -> Result<Self, GitError> {
        let config = repository.config()?;
        let flag = |name| config.get_bool(name).unwrap_or(true);
        Ok(Self {
            keeps_modes: flag("core.filemode"),
            has_links: flag("core.symlinks"),
            written: index.written,
        })
    }

    /// The mode that git would give a file or a link, 0 for anything else.
    pub(super) fn mode(self, entry: &Entry, stat: &Stat) -> u32 {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile if !self.has_links && entry.mode == LINK => LINK,
            FileType::RegularFile if !self.keeps_modes && matches!(entry.mode, PLAIN | EXECUTABLE) => {
                entry.mode
            }
            FileType::RegularFile if self.keeps_modes && stat.st_mode & 0o100 != 0 => EXECUTABLE,
            FileType::RegularFile => PLAIN,
            FileType::Symlink => LINK,
            _ => 0,
        }
    }

    /// By what the file system says alone. A file that was written when the index was, or later, has to be read.
    pub(super) fn is_unchanged(self, entry: &Entry, stat: &Stat) -> bool {
        let modified = time(stat.st_mtime, stat.st_mtime_nsec);
        let changed = time(stat.st_ctime, stat.st_ctime_nsec);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // the index has the lower 32 bits
        let (size, inode) = (stat.st_size as u32, stat.st_ino as u32);
        modified.agrees(entry.modified)
            && changed.agrees(entry.changed)
            && size == entry.size
            && (inode == entry.inode || entry.inode == 0)
            && !entry.modified.may_follow(self.written)
            // git's mark of an entry that has to be read.
            && (size > 0 || entry.id.as_bytes() == EMPTY)
    }
}

fn time(seconds: i64, nanos: impl TryInto<i64>) -> Time {
    Time::new(seconds, nanos.try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_empty_blob_has_this_id() {
        let id = git2::Oid::hash_object(git2::ObjectType::Blob, b"").unwrap();
        assert_eq!(id.as_bytes(), super::EMPTY);
    }
}
