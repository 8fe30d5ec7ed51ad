//! A path that differs, as the two comparisons find it: HEAD with the index, the index with the work tree.

use git2::Oid;

use super::index::Entry;

/// The kind of file in a mode.
const TYPE: u32 = 0o170_000;
pub(super) const REGULAR: u32 = 0o100_000;
pub(super) const EXECUTABLE: u32 = 0o100_755;
pub(super) const PLAIN: u32 = 0o100_644;
pub(super) const LINK: u32 = 0o120_000;
pub(super) const GITLINK: u32 = 0o160_000;

/// One side of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    /// Type and permission bits, such as `0o100644`; 0 where there is nothing.
    pub(super) mode: u32,
    /// Of the content; `None` where it is in the work tree and was not looked at.
    pub(super) id: Option<Oid>,
    /// It is a file of the work tree, whatever is known of its content.
    pub(super) in_work_tree: bool,
}

impl Version {
    /// Nothing at this path.
    pub(super) const NONE: Self = Self { mode: 0, id: None, in_work_tree: false };

    pub(super) fn new(mode: u32, id: Oid) -> Self {
        Self { mode, id: Some(id), in_work_tree: false }
    }

    /// In the work tree, with its content's id where that is known.
    pub(super) fn found(mode: u32, id: Option<Oid>) -> Self {
        Self { mode, id, in_work_tree: true }
    }

    pub(super) fn is_none(self) -> bool {
        self.mode == 0
    }

    /// The same, wherever it is.
    pub(super) fn equals(self, other: Self) -> bool {
        (self.mode, self.id) == (other.mode, other.id)
    }
}

/// A path and what is different.
#[derive(Debug, Clone)]
pub(super) struct Difference {
    pub(super) path: Vec<u8>,
    pub(super) what: What,
}

/// What is different.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Before and after; one of them may be nothing.
    Change(Version, Version),
    /// There are several sides that nobody has merged.
    Unmerged(Sides),
}

/// The sides of a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sides {
    pub(super) ancestor: Version,
    pub(super) ours: Version,
    pub(super) theirs: Version,
    /// What is in the work tree, when that was looked at.
    pub(super) work_tree: Version,
}

impl Difference {
    pub(super) fn change(path: &[u8], old: Version, new: Version) -> Self {
        Self { path: path.to_vec(), what: What::Change(old, new) }
    }

    /// Both versions, unless it is a conflict.
    pub(super) fn versions(&self) -> Option<(Version, Version)> {
        match self.what {
            What::Change(old, new) => Some((old, new)),
            What::Unmerged(_) => None,
        }
    }

    /// The letter of `--name-status`, before renames are looked for.
    pub(super) fn letter(&self) -> char {
        match self.what {
            What::Unmerged(_) => 'U',
            What::Change(old, _) if old.is_none() => 'A',
            What::Change(_, new) if new.is_none() => 'D',
            What::Change(old, new) if is_other_type(old.mode, new.mode) => 'T',
            What::Change(..) => 'M',
        }
    }
}

/// Whether one is a file and the other a link, say.
pub(super) fn is_other_type(old: u32, new: u32) -> bool {
    old & TYPE != new & TYPE
}

/// The mode as git keeps it.
pub(super) fn canonical(mode: u32) -> u32 {
    match mode & TYPE {
        REGULAR if mode & 0o100 != 0 => EXECUTABLE,
        REGULAR => PLAIN,
        LINK => LINK,
        _ => GITLINK,
    }
}

/// Whether `path` is among the paths that were asked for, or beneath one of them. None means all.
pub(super) fn is_wanted(path: &[u8], limit_to: &[&str]) -> bool {
    limit_to.is_empty()
        || limit_to.iter().any(|limit| {
            limit.is_empty()
                || path.strip_prefix(limit.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        })
}

/// Whether a directory, whose path ends with a slash, can have something that was asked for.
pub(super) fn may_hold_wanted(directory: &[u8], limit_to: &[&str]) -> bool {
    is_wanted(directory.strip_suffix(b"/").unwrap_or(directory), limit_to)
        || limit_to.iter().any(|limit| limit.as_bytes().starts_with(directory))
}

impl Sides {
    /// Of the entries of one path, and what the work tree has there.
    pub(super) fn of(entries: &[Entry], work_tree: Version) -> Self {
        let side = |stage| {
            let entry = entries.iter().find(|entry| entry.stage == stage);
            entry.map_or(Version::NONE, |entry| Version::new(entry.mode, entry.id))
        };
        Self { ancestor: side(1), ours: side(2), theirs: side(3), work_tree }
    }
}
