//! Implements `git commit -m`: the index as a new commit on HEAD. No hooks, no editor, no signature.

use git2::{Commit, Diff, ErrorCode, Oid, Repository, RepositoryState, Signature, Tree, message_prettify};
use operations::{Binder, Bound, Bounds};

use super::error::{GitError, shown};
use super::output::Output;
use super::quote::quoted;
use super::{compare, diff, formats, index, repository};

/// Most paths with conflicts that a refusal names.
const CONFLICTS_SHOWN: usize = 20;

/// A commit that can be made, derived from one reading of HEAD and the index.
struct Planned<'r> {
    /// The reference that moves: the branch that HEAD names, or a detached HEAD itself.
    reference: String,
    parent: Option<Commit<'r>>,
    tree: Tree<'r>,
    message: String,
    author: Signature<'static>,
}

/// Shows the commit that would be made, and its branch. The repository makes its objects in memory.
pub(super) fn preview(
    repository: &Repository,
    message: &str,
    bounds: &Bounds,
    output: &mut Output,
) -> Result<Bound, GitError> {
    let planned = Planned::of(repository, message, bounds)?;
    let plain = repository::plain(repository)?;
    formats::patches(&[planned.diff(&plain)?], |_| true, output)?;
    let after = match &planned.parent {
        Some(parent) => format!("after {}", parent.id()),
        None => "as its first commit".to_owned(),
    };
    let author = String::from_utf8_lossy(planned.author.name_bytes()).into_owned();
    let remarks = vec![format!("on {}, {after}", planned.place()), format!("by {}", shown(&author))];
    Ok(Bound { remarks, ..planned.bound() })
}

/// Commits, and returns the new commit. The output has its branch, its id, its subject and the size of the change.
pub(super) fn commit(
    repository: &Repository,
    message: &str,
    bounds: &Bounds,
    output: &mut Output,
) -> Result<Oid, GitError> {
    let held_to = bounds.held_to.as_ref();
    let planned = Planned::of(repository, message, bounds).map_err(|error| error.before_effect(held_to))?;
    planned.bound().demand(held_to).map_err(GitError::Consent)?;
    let Planned { reference, parent, tree, message, author } = &planned;
    let parents: Vec<_> = parent.iter().collect();
    let id = repository.commit(None, author, author, message, tree, &parents)?;
    let subject = subject(message);
    let moved = match parent {
        // Moves the reference only if it still has the value that was read: it is locked meanwhile.
        Some(parent) => {
            let log = format!("commit: {subject}");
            repository.reference_matching(reference, id, true, parent.id(), &log)
        }
        None => repository.reference(reference, id, false, &format!("commit (initial): {subject}")),
    };
    moved.map_err(|error| match error.code() {
        ErrorCode::Modified | ErrorCode::Exists => GitError::Moved.before_effect(held_to),
        _ => error.into(),
    })?;
    let root = if parent.is_none() { " (root-commit)" } else { "" };
    let short = repository.find_object(id, None)?.short_id()?;
    let short = String::from_utf8_lossy(&short).into_owned();
    output.push_str(&format!("[{}{root} {short}] {subject}\n", planned.place()));
    let diffs = [planned.diff(repository)?];
    formats::summary(&formats::rows(&diffs, |_| true)?, output);
    formats::modes(&diffs, |_| true, output);
    Ok(id)
}

impl<'r> Planned<'r> {
    fn of(repository: &'r Repository, message: &str, bounds: &Bounds) -> Result<Self, GitError> {
        check(repository)?;
        let message = message_prettify(message, None)?;
        if message.trim().is_empty() {
            return Err(GitError::EmptyMessage);
        }
        let (reference, parent) = head(repository)?;
        if repository::is_checked_out_elsewhere(&reference) {
            return Err(GitError::CheckedOut(shown(&reference)));
        }
        let mut index = repository.index()?;
        index::forget_announced(&mut index)?;
        let tree = repository.find_tree(index.write_tree()?)?;
        let nothing = match &parent {
            Some(parent) => tree.id() == parent.tree_id(),
            None => tree.is_empty(),
        };
        if nothing {
            return Err(GitError::NothingStaged);
        }
        let author = Signature::now(&bounds.author_name, &bounds.author_email)?;
        Ok(Self { reference, parent, tree, message, author })
    }

    fn bound(&self) -> Bound {
        let mut binder = Binder::new("git.commit");
        binder.bytes(self.reference.as_bytes());
        binder.bytes(self.parent.as_ref().map_or(Oid::ZERO_SHA1, Commit::id).as_bytes());
        binder.bytes(self.tree.id().as_bytes());
        binder.bytes(self.message.as_bytes());
        binder.bytes(self.author.name_bytes());
        binder.bytes(self.author.email_bytes());
        binder.finish()
    }

    fn diff(&self, repository: &'r Repository) -> Result<Diff<'r>, GitError> {
        let before = self.parent.as_ref().map(Commit::tree).transpose()?;
        let options = Some(&mut compare::contents());
        diff::with_renames(repository.diff_tree_to_tree(before.as_ref(), Some(&self.tree), options)?)
    }

    /// Returns the branch's name, for people.
    fn place(&self) -> String {
        match self.reference.as_str() {
            "HEAD" => "detached HEAD".to_owned(),
            branch => shown(branch.strip_prefix("refs/heads/").unwrap_or(branch)),
        }
    }
}

/// Returns the reference that a commit moves, and its commit; `None` before the first one.
pub(super) fn head(repository: &Repository) -> Result<(String, Option<Commit<'_>>), GitError> {
    let unnamed = || GitError::Library("HEAD names a reference that is not UTF-8".to_owned());
    let head = repository.find_reference("HEAD")?;
    match head.resolve() {
        Ok(direct) => {
            let name = direct.name().map_err(|_| unnamed())?.to_owned();
            Ok((name, Some(direct.peel_to_commit()?)))
        }
        Err(error) if error.code() == ErrorCode::NotFound => {
            let target = head.symbolic_target().map_err(|_| unnamed())?.ok_or_else(unnamed)?;
            Ok((target.to_owned(), None))
        }
        Err(error) => Err(error.into()),
    }
}

/// Refuses a repository with unresolved conflicts, or in the middle of a merge or a rebase.
pub(super) fn check(repository: &Repository) -> Result<(), GitError> {
    let in_progress = match repository.state() {
        // During a bisection, HEAD can take a commit.
        RepositoryState::Clean | RepositoryState::Bisect => return conflicts(repository),
        RepositoryState::Merge => "merge",
        RepositoryState::Revert | RepositoryState::RevertSequence => "revert",
        RepositoryState::CherryPick | RepositoryState::CherryPickSequence => "cherry-pick",
        RepositoryState::Rebase | RepositoryState::RebaseInteractive | RepositoryState::RebaseMerge => {
            "rebase"
        }
        RepositoryState::ApplyMailbox | RepositoryState::ApplyMailboxOrRebase => "git am",
    };
    Err(GitError::InProgress(in_progress))
}

fn conflicts(repository: &Repository) -> Result<(), GitError> {
    let index = repository.index()?;
    if !index.has_conflicts() {
        return Ok(());
    }
    let mut paths = Vec::new();
    for conflict in index.conflicts()?.take(CONFLICTS_SHOWN) {
        let conflict = conflict?;
        if let Some(side) = conflict.our.or(conflict.their).or(conflict.ancestor) {
            paths.push(quoted(&side.path));
        }
    }
    Err(GitError::Conflicts(paths.join("\n")))
}

/// Returns the first paragraph on one line.
fn subject(message: &str) -> String {
    let lines: Vec<&str> =
        message.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
    lines.join(" ")
}
