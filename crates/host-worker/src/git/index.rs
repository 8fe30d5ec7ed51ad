//! Reads the flags of index entries, and prepares an index in memory for a comparison.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use git2::{Index, IndexEntry, IndexEntryExtendedFlag};

use super::error::GitError;

/// The mode of a submodule's entry.
pub(super) const SUBMODULE: u32 = 0o160_000;
/// The bits of an entry's flags that have the side of a conflict. A merged file has none.
const STAGE: u16 = 0x3000;

/// Entries that are not files with a content.
#[derive(Default)]
pub(super) struct Marked {
    /// Paths that `git add -N` has announced. libgit2 treats them as empty files.
    pub(super) announced: Vec<Vec<u8>>,
    pub(super) submodules: Vec<IndexEntry>,
}

impl Marked {
    pub(super) fn of(index: &Index) -> Self {
        let mut marked = Self::default();
        for entry in index.iter() {
            if entry.flags_extended & IndexEntryExtendedFlag::INTENT_TO_ADD.bits() != 0 {
                marked.announced.push(entry.path);
            } else if entry.mode == SUBMODULE && entry.flags & STAGE == 0 {
                marked.submodules.push(entry);
            }
        }
        marked
    }
}

/// Removes announced paths, which are not staged yet.
pub(super) fn forget_announced(index: &mut Index) -> Result<(), GitError> {
    for path in Marked::of(index).announced {
        index.remove(as_path(&path), 0)?;
    }
    Ok(())
}

/// Replaces each conflict by our side.
pub(super) fn take_our_sides(index: &mut Index) -> Result<(), GitError> {
    let conflicts = index.conflicts()?.collect::<Result<Vec<_>, _>>()?;
    for conflict in conflicts {
        let sides = [&conflict.our, &conflict.their, &conflict.ancestor];
        let Some(side) = sides.into_iter().flatten().next() else { continue };
        index.conflict_remove(as_path(&side.path))?;
        if let Some(mut our) = conflict.our {
            our.flags &= !STAGE;
            index.add(&our)?;
        }
    }
    Ok(())
}

/// Returns true if the work tree leaves out the file of this path.
pub(super) fn is_skipped(index: &Index, path: &[u8]) -> bool {
    merged(index, path)
        .is_some_and(|entry| entry.flags_extended & IndexEntryExtendedFlag::SKIP_WORKTREE.bits() != 0)
}

/// Returns the entry of a path that is in no conflict.
pub(super) fn merged(index: &Index, path: &[u8]) -> Option<IndexEntry> {
    let path = as_path(path);
    is_plain(path).then(|| index.get_path(path, 0)).flatten()
}

/// Returns true for a path within the work tree. A tree may hold any name, and the library panics at one that leads out.
fn is_plain(path: &Path) -> bool {
    path.components().all(|component| matches!(component, Component::Normal(_)))
}

pub(super) fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}
