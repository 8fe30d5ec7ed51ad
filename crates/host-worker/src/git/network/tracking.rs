//! Writes the references that say where the branches and tags of a remote are.

use git2::{ErrorCode, Oid, Repository};
use operations::GitRefName;
use wire::v1::GitRefUpdate;

use super::super::error::{GitError, shown};
use super::super::output::Output;
use super::history::digits;

/// Result of writing a reference.
pub(super) enum Tracked {
    Updated(GitRefUpdate),
    /// The reference had the id before.
    Same,
    /// The reference stays as it is, for this reason.
    Refused(String),
}

/// Returns the name in the repository of a reference of the remote `name`: `refs/remotes/NAME/BRANCH`, or that of the tag.
pub(super) fn local_name(name: &str, reference: &GitRefName) -> String {
    match reference.branch() {
        Some(branch) => format!("refs/remotes/{name}/{branch}"),
        None => reference.to_string(),
    }
}

/// Returns the id of a reference in the repository.
pub(super) fn id_of(repository: &Repository, name: &str) -> Option<Oid> {
    repository.find_reference(name).ok()?.resolve().ok()?.target()
}

/// Moves the reference to the id that the remote has. A tag that the repository has with another id stays as it is.
pub(super) fn track(repository: &Repository, name: &str, new: Oid) -> Result<Tracked, GitError> {
    let old = id_of(repository, name);
    if old == Some(new) {
        return Ok(Tracked::Same);
    }
    if old.is_some() && name.starts_with("refs/tags/") {
        return Ok(Tracked::Refused("the tag is here with another id".to_owned()));
    }
    match repository.reference(name, new, true, "fetch") {
        Ok(_) => Ok(Tracked::Updated(update(name, old, Some(new)))),
        Err(error) if matches!(error.code(), ErrorCode::Locked | ErrorCode::Owner) => Err(error.into()),
        // Such as a branch `a/b` where an old reference `a` is in its way.
        Err(error) => Ok(Tracked::Refused(shown(error.message()))),
    }
}

/// Deletes the reference of a branch that the remote no longer has.
pub(super) fn forget(repository: &Repository, name: &str) {
    if let Ok(mut reference) = repository.find_reference(name) {
        // A stale reference does no harm: the next fetch does not change it, and the branch is gone.
        let _ = reference.delete();
    }
}

pub(super) fn update(name: &str, old: Option<Oid>, new: Option<Oid>) -> GitRefUpdate {
    let text = |id: Option<Oid>| id.map(|id| id.to_string()).unwrap_or_default();
    GitRefUpdate { name: name.to_owned(), old_id: text(old), new_id: text(new) }
}

/// Writes a line about an update.
pub(super) fn write(name: &str, old: Option<Oid>, new: Option<Oid>, output: &mut Output) {
    let name = shown(name);
    output.push_str(&match (old, new) {
        (None, Some(new)) => format!(" * [new] {name} {}\n", digits(new)),
        (Some(old), Some(new)) => format!("   {}..{} {name}\n", digits(old), digits(new)),
        (Some(old), None) => format!(" - [deleted] {name} {}\n", digits(old)),
        (None, None) => return,
    });
}
