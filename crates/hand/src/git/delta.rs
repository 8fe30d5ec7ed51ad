//! One changed path, with everything that the output formats need.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use git2::{Delta, Diff, DiffDelta, DiffFile, FileMode, ObjectType, Oid, Patch, Repository};

use super::error::GitError;
use super::rename::{self, Candidate, Pair};
use super::repository::WORKSPACE;
use super::similarity::is_text;

/// Larger files are shown as binary.
pub(super) const LARGEST: u64 = 64 * 1024 * 1024;
const LINK: u32 = 0o120_000;
const TYPE: u32 = 0o170_000;

/// One side of a change.
#[derive(Debug, Clone)]
pub(super) struct Side {
    /// Relative to the work tree.
    pub(super) path: Vec<u8>,
    /// Of the content; zero where there is none.
    pub(super) id: Oid,
    /// Permission and type bits, such as `0o100644`; 0 where there is none.
    pub(super) mode: u32,
    /// Size of the content, bytes.
    pub(super) size: u64,
}

/// What happened to the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Added,
    Deleted,
    Modified,
    Renamed {
        /// Percent.
        similarity: u64,
    },
    TypeChanged,
    Unmerged,
}

impl Kind {
    /// As in `--name-status`.
    pub(super) fn letter(self) -> char {
        match self {
            Self::Added => 'A',
            Self::Deleted => 'D',
            Self::Modified => 'M',
            Self::Renamed { .. } => 'R',
            Self::TypeChanged => 'T',
            Self::Unmerged => 'U',
        }
    }
}

/// A changed path.
pub(super) struct Change<'d> {
    pub(super) kind: Kind,
    pub(super) old: Side,
    pub(super) new: Side,
    pub(super) content: Content<'d>,
}

/// How the content differs.
pub(super) enum Content<'d> {
    /// Not at all, or there is none.
    Same,
    /// In bytes that are no text.
    Binary,
    /// In lines.
    Text { patch: Patch<'d>, added: usize, deleted: usize },
    /// A file became a link, or the reverse.
    Replaced { old: Vec<u8>, new: Vec<u8>, added: usize, deleted: usize },
}

impl Change<'_> {
    /// Lines added and deleted.
    pub(super) fn lines(&self) -> (usize, usize) {
        match &self.content {
            Content::Text { added, deleted, .. } | Content::Replaced { added, deleted, .. } => {
                (*added, *deleted)
            }
            Content::Same | Content::Binary => (0, 0),
        }
    }

    /// Whether lines are no measure of it.
    pub(super) fn is_binary(&self) -> bool {
        match &self.content {
            Content::Binary => true,
            Content::Replaced { old, new, .. } => !is_text(old) || !is_text(new),
            Content::Same | Content::Text { .. } => false,
        }
    }
}

/// Calls `each` for every change of the diff, in the order of their paths and with renames found, one patch in memory at
/// a time.
pub(super) fn for_each(
    repository: &Repository,
    diff: &Diff<'_>,
    mut each: impl FnMut(Change<'_>) -> Result<(), GitError>,
) -> Result<(), GitError> {
    let with = |status| diff.deltas().enumerate().filter(move |(_, delta)| delta.status() == status);
    let added: Vec<_> =
        with(Delta::Added).map(|(index, delta)| (index, candidate(&delta.new_file()))).collect();
    let deleted: Vec<_> =
        with(Delta::Deleted).map(|(index, delta)| (index, candidate(&delta.old_file()))).collect();
    let sources: Vec<_> = deleted.iter().map(|(_, candidate)| candidate).collect();
    let targets: Vec<_> = added.iter().map(|(_, candidate)| candidate).collect();
    let pairs = rename::find(repository, &sources, &targets);
    let renamed: HashMap<usize, &Pair> =
        added.iter().zip(&pairs).filter_map(|((index, _), pair)| Some((*index, pair.as_ref()?))).collect();
    let gone: HashSet<usize> =
        pairs.iter().flatten().filter_map(|pair| Some(deleted.get(pair.source)?.0)).collect();
    for index in 0..diff.deltas().len() {
        if gone.contains(&index) {
            continue;
        }
        let source = renamed.get(&index).and_then(|pair| Some((*pair, deleted.get(pair.source)?.0)));
        match source {
            Some((pair, source)) => each_renamed(repository, diff, *pair, [source, index], &mut each)?,
            None => {
                if let Some(change) = change(repository, diff, index)? {
                    each(change)?;
                }
            }
        }
    }
    Ok(())
}

/// What rename detection looks at.
pub(super) fn candidate(file: &DiffFile<'_>) -> Candidate {
    Candidate {
        path: file.path_bytes().unwrap_or_default().to_vec(),
        id: file.id(),
        mode: u32::from(file.mode()),
    }
}

/// One rename, of the deltas `source` and `target`.
fn each_renamed(
    repository: &Repository,
    diff: &Diff<'_>,
    pair: Pair,
    [source, target]: [usize; 2],
    each: &mut impl FnMut(Change<'_>) -> Result<(), GitError>,
) -> Result<(), GitError> {
    let (Some(source), Some(target)) = (diff.get_delta(source), diff.get_delta(target)) else {
        return Ok(());
    };
    let (old, new) =
        (side(repository, &source, &source.old_file()), side(repository, &target, &target.new_file()));
    let kind = Kind::Renamed { similarity: pair.similarity() };
    if old.id == new.id {
        return each(Change { kind, old, new, content: Content::Same });
    }
    let (before, after) = (repository.find_blob(old.id)?, repository.find_blob(new.id)?);
    let [old_path, new_path] = [&old.path, &new.path].map(|path| Path::new(OsStr::from_bytes(path)));
    let mut options = super::diff::options(&[]);
    let patch = Patch::from_blobs(&before, Some(old_path), &after, Some(new_path), Some(&mut options))?;
    let content = if patch.delta().flags().is_binary() { Content::Binary } else { text(patch)? };
    each(Change { kind, old, new, content })
}

fn text(patch: Patch<'_>) -> Result<Content<'_>, GitError> {
    let (_, added, deleted) = patch.line_stats()?;
    Ok(if patch.num_hunks() == 0 { Content::Same } else { Content::Text { patch, added, deleted } })
}

fn change<'d>(
    repository: &Repository,
    diff: &'d Diff<'_>,
    index: usize,
) -> Result<Option<Change<'d>>, GitError> {
    // Loading the patch first: it fills in what the delta lacks about files of the work tree.
    let patch = Patch::from_diff(diff, index)?;
    let Some(delta) = patch.as_ref().map(Patch::delta).or_else(|| diff.get_delta(index)) else {
        return Ok(None);
    };
    let Some(kind) = kind(delta.status()) else { return Ok(None) };
    let (old, mut new) =
        (side(repository, &delta, &delta.old_file()), side(repository, &delta, &delta.new_file()));
    if kind == Kind::TypeChanged {
        let content = replaced(repository, &old, &mut new)?;
        return Ok(Some(Change { kind, old, new, content }));
    }
    let binary = delta.flags().is_binary() && old.id != new.id;
    let content = match patch {
        _ if binary => Content::Binary,
        Some(patch) => text(patch)?,
        None => Content::Same,
    };
    // A file that was only touched is no change.
    let unchanged = kind == Kind::Modified && old.mode == new.mode && old.id == new.id;
    Ok((!unchanged).then_some(Change { kind, old, new, content }))
}

/// Both contents, since libgit2 does not compare files of different types. Fills in the new one's id.
fn replaced<'d>(repository: &Repository, old: &Side, new: &mut Side) -> Result<Content<'d>, GitError> {
    let blob = |id| repository.find_blob(id).map(|blob| blob.content().to_vec());
    let before = blob(old.id).unwrap_or_default();
    let after = blob(new.id).unwrap_or_else(|_| work_tree_content(new));
    new.id = Oid::hash_object(ObjectType::Blob, &after)?;
    let (_, added, deleted) = Patch::from_buffers(&before, None, &after, None, None)?.line_stats()?;
    Ok(Content::Replaced { old: before, new: after, added, deleted })
}

/// Read within the jail, so a name that turns into a link meanwhile leads to nothing new.
fn work_tree_content(side: &Side) -> Vec<u8> {
    let path = Path::new(WORKSPACE).join(OsStr::from_bytes(&side.path));
    if side.mode & TYPE == LINK {
        return fs::read_link(path).map(|target| target.into_os_string().into_vec()).unwrap_or_default();
    }
    let mut content = Vec::new();
    let _ = File::open(path).and_then(|file| file.take(LARGEST).read_to_end(&mut content));
    content
}

fn kind(status: Delta) -> Option<Kind> {
    Some(match status {
        Delta::Added => Kind::Added,
        Delta::Deleted => Kind::Deleted,
        Delta::Modified => Kind::Modified,
        Delta::Typechange => Kind::TypeChanged,
        Delta::Conflicted => Kind::Unmerged,
        _ => return None,
    })
}

fn side(repository: &Repository, delta: &DiffDelta<'_>, file: &DiffFile<'_>) -> Side {
    let fallback = delta.new_file().path_bytes().or(delta.old_file().path_bytes()).unwrap_or_default();
    let path = file.path_bytes().unwrap_or(fallback).to_vec();
    let mode = u32::from(file.mode());
    let id = file.id();
    let size = match file.mode() {
        FileMode::Unreadable | FileMode::Commit => 0,
        _ => size(repository, &path, id).unwrap_or(file.size()),
    };
    Side { path, id, mode, size }
}

/// Of the object, or of the file when the content is in the work tree only.
fn size(repository: &Repository, path: &[u8], id: Oid) -> Option<u64> {
    let object = repository.odb().ok()?.read_header(id).ok().filter(|(_, kind)| *kind == ObjectType::Blob);
    object.map(|(size, _)| size as u64).or_else(|| {
        let path = Path::new(WORKSPACE).join(OsStr::from_bytes(path));
        fs::symlink_metadata(path).ok().map(|metadata| metadata.len())
    })
}
