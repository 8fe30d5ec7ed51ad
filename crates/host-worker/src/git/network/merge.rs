//! Plans a pull: the tree and the commit that the current branch gets. It changes nothing but objects.

use git2::{Commit, Diff, ErrorCode, MergeOptions, Oid, Repository, Tree};
use operations::{Binder, Bound, GitPullMode};

use super::super::error::{GitError, shown};
use super::super::quote::quoted;
use super::super::{commit, compare, diff, repository};
use super::lfs::{demand_plain, excerpt};

/// Most files that a merge compares with each other to find renames.
const RENAMES: u32 = 1_000;

/// A pull that can be made, derived from one reading of HEAD.
pub(super) struct Planned<'r> {
    /// The reference that moves: the branch that HEAD names, or a detached HEAD itself.
    pub(super) reference: String,
    /// `None` before the first commit.
    pub(super) old: Option<Commit<'r>>,
    /// The commit of the remote's branch.
    pub(super) theirs: Commit<'r>,
    pub(super) step: Step<'r>,
}

/// The way in which the branch gets the commits.
pub(super) enum Step<'r> {
    /// It has them.
    None,
    FastForward,
    /// By a commit with this tree.
    Merge(Tree<'r>),
}

impl<'r> Planned<'r> {
    pub(super) fn of(repository: &'r Repository, mode: GitPullMode, theirs: Oid) -> Result<Self, GitError> {
        commit::check(repository)?;
        let (reference, old) = commit::head(repository)?;
        if repository::is_checked_out_elsewhere(&reference) {
            return Err(GitError::CheckedOut(shown(&reference)));
        }
        let theirs = repository.find_object(theirs, None)?.peel_to_commit()?;
        let step = match &old {
            None => Step::FastForward,
            Some(ours) => step(repository, mode, ours, &theirs)?,
        };
        let planned = Self { reference, old, theirs, step };
        demand_plain(repository, &planned.diff(repository)?)?;
        Ok(planned)
    }

    /// Returns the tree that the files have afterwards.
    pub(super) fn tree(&self) -> Result<Tree<'r>, GitError> {
        match (&self.step, &self.old) {
            (Step::Merge(tree), _) => Ok(tree.clone()),
            (Step::None, Some(old)) => Ok(old.tree()?),
            _ => Ok(self.theirs.tree()?),
        }
    }

    /// Returns the changes of the files, without renames.
    pub(super) fn diff(&self, repository: &'r Repository) -> Result<Diff<'r>, GitError> {
        let before = self.old.as_ref().map(Commit::tree).transpose()?;
        let options = Some(&mut compare::changes());
        Ok(repository.diff_tree_to_tree(before.as_ref(), Some(&self.tree()?), options)?)
    }

    /// Returns the changes for people.
    pub(super) fn shown_diff(&self, repository: &'r Repository) -> Result<Diff<'r>, GitError> {
        let before = self.old.as_ref().map(Commit::tree).transpose()?;
        let options = Some(&mut compare::contents());
        diff::with_renames(repository.diff_tree_to_tree(before.as_ref(), Some(&self.tree()?), options)?)
    }

    pub(super) fn bound(&self, url: &str) -> Result<Bound, GitError> {
        let mut binder = Binder::new("git.pull");
        binder.bytes(url.as_bytes());
        binder.bytes(self.reference.as_bytes());
        binder.bytes(self.old.as_ref().map_or(Oid::ZERO_SHA1, Commit::id).as_bytes());
        binder.bytes(self.theirs.id().as_bytes());
        binder.bytes(self.tree()?.id().as_bytes());
        Ok(binder.finish())
    }
}

fn step<'r>(
    repository: &'r Repository,
    mode: GitPullMode,
    ours: &Commit<'r>,
    theirs: &Commit<'r>,
) -> Result<Step<'r>, GitError> {
    let base = match repository.merge_base(ours.id(), theirs.id()) {
        Ok(base) => base,
        Err(error) if error.code() == ErrorCode::NotFound => return Err(GitError::Unrelated),
        Err(error) => return Err(error.into()),
    };
    if base == theirs.id() {
        return Ok(Step::None);
    }
    if base == ours.id() {
        return Ok(Step::FastForward);
    }
    if mode == GitPullMode::FastForward {
        let (ahead, behind) = repository.graph_ahead_behind(ours.id(), theirs.id())?;
        return Err(GitError::Diverged { ahead, behind });
    }
    let mut options = MergeOptions::new();
    options.find_renames(true).target_limit(RENAMES);
    let mut merged = repository.merge_commits(ours, theirs, Some(&options))?;
    if merged.has_conflicts() {
        return Err(GitError::MergeConflicts(excerpt(&conflicts(&merged)?)));
    }
    let tree = merged.write_tree_to(repository)?;
    Ok(Step::Merge(repository.find_tree(tree)?))
}

/// Returns the paths with conflicts, each once.
fn conflicts(merged: &git2::Index) -> Result<Vec<String>, GitError> {
    let mut paths = Vec::new();
    for conflict in merged.conflicts()? {
        let conflict = conflict?;
        if let Some(side) = conflict.our.or(conflict.their).or(conflict.ancestor) {
            paths.push(quoted(&side.path));
        }
    }
    paths.dedup();
    Ok(paths)
}

#[cfg(test)]
mod tests;
