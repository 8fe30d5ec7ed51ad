//! One changed path, with everything that the output formats need.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use git2::{AttrCheckFlags, AttrValue, Oid, Patch, Repository};

use super::contents::{Content as Loaded, Contents};
use super::difference::{Difference, LINK, Version, What, is_other_type};
use super::error::GitError;
use super::rename::{self, Candidate, Pair};
use super::similarity::is_text;

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
    /// The content is that of a file in the work tree.
    pub(super) in_work_tree: bool,
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
    Same { is_binary: bool },
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
            Content::Same { .. } | Content::Binary => (0, 0),
        }
    }

    /// Whether lines are no measure of it.
    pub(super) fn is_binary(&self) -> bool {
        match &self.content {
            Content::Binary => true,
            Content::Replaced { old, new, .. } => !is_text(old) || !is_text(new),
            Content::Same { is_binary } => *is_binary,
            Content::Text { .. } => false,
        }
    }
}

/// Calls `each` for every change, in the order of their paths and with renames found, one content in memory at a time.
pub(super) fn for_each(
    contents: &Contents<'_>,
    differences: &[Difference],
    mut each: impl FnMut(Change<'_>) -> Result<(), GitError>,
) -> Result<(), GitError> {
    let renames = Renames::find(contents, differences)?;
    for (index, difference) in differences.iter().enumerate() {
        if renames.gone.contains(&index) {
            continue;
        }
        let change = match (difference.what, renames.sources.get(&index)) {
            (What::Change(_, new), Some((pair, source))) => {
                let Some(source) = differences.get(*source) else { continue };
                let Some((old, _)) = source.versions() else { continue };
                let kind = Kind::Renamed { similarity: pair.similarity() };
                change(contents, kind, (&source.path, old), (&difference.path, new))?
            }
            (What::Change(old, new), None) => {
                let kind = match difference.letter() {
                    'A' => Kind::Added,
                    'D' => Kind::Deleted,
                    'T' => Kind::TypeChanged,
                    _ => Kind::Modified,
                };
                change(contents, kind, (&difference.path, old), (&difference.path, new))?
            }
            (What::Unmerged(_), _) => unmerged(&difference.path),
        };
        each(change)?;
    }
    Ok(())
}

/// Which additions are deletions under another name, by their places in the list.
pub(super) struct Renames {
    /// Of an addition its deletion.
    pub(super) sources: HashMap<usize, (Pair, usize)>,
    /// Deletions that are no longer ones.
    pub(super) gone: HashSet<usize>,
}

impl Renames {
    pub(super) fn find(contents: &Contents<'_>, differences: &[Difference]) -> Result<Self, GitError> {
        let places = |letter: char| -> Vec<usize> {
            let all = differences.iter().enumerate();
            all.filter(|(_, each)| each.letter() == letter).map(|(index, _)| index).collect()
        };
        let (added, deleted) = (places('A'), places('D'));
        let mut renames = Self { sources: HashMap::new(), gone: HashSet::new() };
        if added.is_empty() || deleted.is_empty() {
            return Ok(renames);
        }
        let candidates = |places: &[usize]| -> Result<Vec<Candidate>, GitError> {
            places.iter().filter_map(|place| candidate(contents, differences.get(*place)?)).collect()
        };
        let (targets, sources) = (candidates(&added)?, candidates(&deleted)?);
        let pairs = rename::find(contents, &sources, &targets);
        for (index, pair) in added.iter().zip(pairs) {
            let Some((pair, source)) = pair.and_then(|pair| Some((pair, *deleted.get(pair.source)?))) else {
                continue;
            };
            renames.sources.insert(*index, (pair, source));
            renames.gone.insert(source);
        }
        Ok(renames)
    }
}

/// What rename detection looks at.
fn candidate(contents: &Contents<'_>, difference: &Difference) -> Option<Result<Candidate, GitError>> {
    let (old, new) = difference.versions()?;
    let version = if new.is_none() { old } else { new };
    let path = difference.path.clone();
    Some(match version.id {
        Some(id) => Ok(Candidate { path, id, version }),
        None => contents.of(&path, version).map(|content| Candidate { path, id: content.id, version }),
    })
}

fn unmerged(path: &[u8]) -> Change<'static> {
    let side = || Side { path: path.to_vec(), id: Oid::ZERO_SHA1, mode: 0, size: 0, in_work_tree: false };
    Change { kind: Kind::Unmerged, old: side(), new: side(), content: Content::Same { is_binary: false } }
}

fn change<'r>(
    contents: &Contents<'r>,
    kind: Kind,
    (old_path, old): (&[u8], Version),
    (new_path, new): (&[u8], Version),
) -> Result<Change<'r>, GitError> {
    let (before, after) = (contents.of(old_path, old)?, contents.of(new_path, new)?);
    let content = if is_other_type(old.mode, new.mode) && kind == Kind::TypeChanged {
        replaced(&before, &after)
    } else if before.id == after.id {
        Content::Same { is_binary: is_binary(contents.repository, new_path, &after) }
    } else {
        // Attributes are of files, not of links.
        let is_link = old.mode == LINK || new.mode == LINK;
        compared((!is_link).then_some((old_path, new_path)), &before, &after)?
    };
    let side = |path: &[u8], version: Version, content: &Loaded<'_>| Side {
        path: path.to_vec(),
        id: content.id,
        mode: version.mode,
        size: content.size,
        in_work_tree: version.in_work_tree,
    };
    let (old, new) = (side(old_path, old, &before), side(new_path, new, &after));
    Ok(Change { kind, old, new, content })
}

fn compared<'r>(
    paths: Option<(&[u8], &[u8])>,
    before: &Loaded<'r>,
    after: &Loaded<'r>,
) -> Result<Content<'r>, GitError> {
    let (Some(old), Some(new)) = (&before.blob, &after.blob) else { return Ok(Content::Binary) };
    let named = |path| Path::new(OsStr::from_bytes(path));
    let (old_path, new_path) = paths.map(|(old, new)| (named(old), named(new))).unzip();
    let mut options = super::diff::options();
    let patch = Patch::from_blobs(old, old_path, new, new_path, Some(&mut options))?;
    if patch.delta().flags().is_binary() {
        return Ok(Content::Binary);
    }
    let (_, added, deleted) = patch.line_stats()?;
    Ok(if patch.num_hunks() == 0 {
        Content::Same { is_binary: false }
    } else {
        Content::Text { patch, added, deleted }
    })
}

/// Both contents, since libgit2 does not compare files of different types.
fn replaced(before: &Loaded<'_>, after: &Loaded<'_>) -> Content<'static> {
    let lines = |content: &[u8]| content.split_inclusive(|byte| *byte == b'\n').count();
    let (old, new) = (before.bytes().to_vec(), after.bytes().to_vec());
    let (deleted, added) = (lines(&old), lines(&new));
    Content::Replaced { old, new, added, deleted }
}

/// Whether git would show no lines of it: by the attribute, or by its beginning.
pub(super) fn is_binary(repository: &Repository, path: &[u8], content: &Loaded<'_>) -> bool {
    let path = Path::new(OsStr::from_bytes(path));
    let attribute = repository.get_attr_bytes(path, "diff", AttrCheckFlags::FILE_THEN_INDEX);
    match attribute.map(AttrValue::from_bytes) {
        Ok(AttrValue::True) => false,
        Ok(AttrValue::False) => true,
        _ => content.blob.is_none() || !is_text(content.bytes()),
    }
}
