//! Refuses changes that need more than the objects of the repository: submodules, files of Git LFS, and converted files.

use std::path::Path;

use git2::{Delta, Diff, DiffDelta, FileMode, ObjectType, Oid, Repository};

use super::super::conversion::{Conversion, is_pointer};
use super::super::error::GitError;
use super::super::formats::new_path;
use super::super::quote::quoted;

/// Most paths that a refusal names.
const SHOWN: usize = 20;
/// Largest `.gitattributes` that is read, bytes.
const LARGEST_ATTRIBUTES: usize = 1024 * 1024;
/// Attributes that have a file pass through a program or another encoding.
const CONVERTS: [&[u8]; 2] = [b"filter=", b"working-tree-encoding="];

/// Refuses changes that cannot be checked out here.
pub(super) fn demand_plain(repository: &Repository, diff: &Diff<'_>) -> Result<(), GitError> {
    let (mut submodules, mut pointers, mut converted) = (Vec::new(), Vec::new(), Vec::new());
    for delta in diff.deltas() {
        let path = new_path(&delta);
        if is_submodule(&delta) {
            submodules.push(quoted(path));
        } else if delta.status() != Delta::Deleted {
            if is_lfs(repository, delta.new_file().id())? {
                pointers.push(quoted(path));
            } else if let Some(conversion) = Conversion::of(repository, path)? {
                converted.push(format!("{} ({conversion})", quoted(path)));
            } else if converts(repository, &delta)? {
                converted.push(format!("{} (it has a filter or an encoding)", quoted(path)));
            }
        }
    }
    match (submodules.is_empty(), pointers.is_empty(), converted.is_empty()) {
        (false, _, _) => Err(GitError::Submodules(excerpt(&submodules))),
        (_, false, _) => Err(GitError::Lfs(excerpt(&pointers))),
        (_, _, false) => Err(GitError::NotCheckedOut(excerpt(&converted))),
        _ => Ok(()),
    }
}

/// Refuses new files of Git LFS, whose content a push would not send.
pub(super) fn demand_no_pointers(repository: &Repository, diff: &Diff<'_>) -> Result<(), GitError> {
    let mut pointers = Vec::new();
    for delta in diff.deltas().filter(|delta| delta.status() != Delta::Deleted && !is_submodule(delta)) {
        if is_lfs(repository, delta.new_file().id())? {
            pointers.push(quoted(new_path(&delta)));
        }
    }
    if pointers.is_empty() { Ok(()) } else { Err(GitError::Lfs(excerpt(&pointers))) }
}

fn is_submodule(delta: &DiffDelta<'_>) -> bool {
    [delta.old_file(), delta.new_file()].iter().any(|file| file.mode() == FileMode::Commit)
}

fn is_lfs(repository: &Repository, id: Oid) -> Result<bool, GitError> {
    Ok(content(repository, id, 1024)?.is_some_and(|content| is_pointer(&content)))
}

/// Returns true if the change gives files a conversion that they may not have had.
fn converts(repository: &Repository, delta: &DiffDelta<'_>) -> Result<bool, GitError> {
    let is_attributes =
        delta.new_file().path().and_then(Path::file_name).is_some_and(|name| name == ".gitattributes");
    if !is_attributes {
        return Ok(false);
    }
    let Some(content) = content(repository, delta.new_file().id(), LARGEST_ATTRIBUTES)? else {
        return Ok(true);
    };
    Ok(CONVERTS.iter().any(|attribute| content.windows(attribute.len()).any(|part| part == *attribute)))
}

/// Returns the content of a file of at most `most` bytes.
fn content(repository: &Repository, id: Oid, most: usize) -> Result<Option<Vec<u8>>, GitError> {
    let objects = repository.odb()?;
    let (size, kind) = objects.read_header(id)?;
    if size > most || kind != ObjectType::Blob {
        return Ok(None);
    }
    Ok(Some(objects.read(id)?.data().to_vec()))
}

/// Joins the first lines, and says how many more there are.
pub(super) fn excerpt(lines: &[String]) -> String {
    let more = lines.len().saturating_sub(SHOWN);
    let shown = lines[..lines.len() - more].join("\n");
    if more == 0 { shown } else { format!("{shown}\n(and {more} more)") }
}
