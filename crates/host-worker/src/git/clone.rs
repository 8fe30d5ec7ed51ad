//! The clone that begins a run: a local repository, mounted read-only at `/source`, into the empty workspace.
//!
//! What it has: the wanted branch (or a detached HEAD at a tag or commit), all tags, the history beneath. What it has
//! not: a remote, other branches, hooks, or any path of the host. Objects that the source merely borrows from a third
//! repository are out of reach in the jail, so such a source cannot be cloned.

use std::fs;
use std::path::Path;

use git2::build::{CheckoutBuilder, CloneLocal, RepoBuilder};
use git2::{BranchType, ErrorCode, ObjectType, Repository};
use thiserror::Error;

use super::error::{GitError, shown};
use super::repository::WORKSPACE;
use crate::sys;

const SOURCE: &str = "/source";

/// Why there is no clone; fit for a client.
#[derive(Debug, Error)]
pub(crate) enum CloneFailure {
    #[error("the workspace to clone into is not empty")]
    NotEmpty,
    #[error("the source is no git repository")]
    NoRepository,
    #[error("the source belongs to another user than the workspace")]
    NotOwned,
    #[error("the source has no branch, tag or commit '{0}'")]
    NoRevision(String),
    #[error("the source has no commits")]
    Empty,
    #[error("cannot clone: {0}")]
    Library(String),
}

impl From<git2::Error> for CloneFailure {
    fn from(error: git2::Error) -> Self {
        match error.code() {
            ErrorCode::Owner => Self::NotOwned,
            _ => Self::Library(match GitError::from(error) {
                GitError::Library(message) => message.replace(SOURCE, "the source"),
                other => other.to_string(),
            }),
        }
    }
}

/// Clones and checks `revision` out; empty is the source's HEAD.
pub(crate) fn clone(revision: &str) -> Result<(), CloneFailure> {
    sys::restrict_libgit2()?;
    let empty = fs::read_dir(WORKSPACE).is_ok_and(|mut entries| entries.next().is_none());
    if !empty {
        return Err(CloneFailure::NotEmpty);
    }
    check_source()?;
    let mut checkout = CheckoutBuilder::new();
    checkout.dry_run();
    // Objects are copied, not hard-linked: what the agent's side can reach must not be the source's own files.
    let repository = RepoBuilder::new()
        .clone_local(CloneLocal::NoLinks)
        .with_checkout(checkout)
        .clone(SOURCE, Path::new(WORKSPACE))?;
    check_out(&repository, revision)?;
    forget_source(&repository)
}

fn check_source() -> Result<(), CloneFailure> {
    let is_directory = |path: &str| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
    let bare = Path::new("/source/HEAD").exists() && is_directory("/source/objects");
    if is_directory("/source/.git") || bare { Ok(()) } else { Err(CloneFailure::NoRepository) }
}

fn check_out(repository: &Repository, revision: &str) -> Result<(), CloneFailure> {
    let none = || CloneFailure::NoRevision(shown(revision));
    if revision.is_empty() {
        if repository.is_empty()? {
            return Err(CloneFailure::Empty);
        }
    } else if let Ok(branch) = repository.find_branch(&format!("origin/{revision}"), BranchType::Remote) {
        let commit = branch.get().peel_to_commit()?;
        if repository.find_branch(revision, BranchType::Local).is_err() {
            repository.branch(revision, &commit, false)?;
        }
        repository.set_head(&format!("refs/heads/{revision}"))?;
    } else {
        let found = repository.revparse_single(revision).map_err(|_| none())?;
        repository.set_head_detached(found.peel(ObjectType::Commit).map_err(|_| none())?.id())?;
    }
    let mut checkout = CheckoutBuilder::new();
    checkout.force();
    repository.checkout_head(Some(&mut checkout))?;
    // The branch that the clone began with, when another one was asked for.
    let head = repository.head()?;
    for branch in repository.branches(Some(BranchType::Local))? {
        let (mut branch, _) = branch?;
        if branch.get().name_bytes() != head.name_bytes() {
            branch.delete()?;
        }
    }
    Ok(())
}

/// The remote with its references, and the note of what was fetched from where.
fn forget_source(repository: &Repository) -> Result<(), CloneFailure> {
    repository.remote_delete("origin")?;
    match fs::remove_file(repository.path().join("FETCH_HEAD")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(CloneFailure::Library(error.to_string()))
        }
        _ => Ok(()),
    }
}
