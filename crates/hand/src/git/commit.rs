//! `git commit -m`: the index as a new commit on HEAD. No hooks, no editor, no signature.

use git2::{ErrorCode, Oid, Repository, RepositoryState, Signature, message_prettify};
use ops::Bounds;

use super::error::{GitError, shown};
use super::output::Output;
use super::quote::quoted;
use super::{diff, formats, index};

/// Paths with conflicts that a refusal names, at most.
const CONFLICTS_SHOWN: usize = 20;

/// Shows what would be committed.
pub(super) fn preview(repository: &Repository, output: &mut Output) -> Result<(), GitError> {
    check(repository)?;
    let staged = diff::staged(repository, diff::contents())?;
    if staged.deltas().len() == 0 {
        return Err(GitError::NothingStaged);
    }
    formats::patches(&[staged], |_| true, output)
}

/// Commits, and returns the new commit. Says where, what, and how much.
pub(super) fn commit(
    repository: &Repository,
    message: &str,
    bounds: &Bounds,
    output: &mut Output,
) -> Result<Oid, GitError> {
    check(repository)?;
    let message = message_prettify(message, None)?;
    if message.trim().is_empty() {
        return Err(GitError::EmptyMessage);
    }
    let parent = match repository.head() {
        Ok(head) => Some(head.peel_to_commit()?),
        Err(error) if error.code() == ErrorCode::UnbornBranch => None,
        Err(error) => return Err(error.into()),
    };
    let mut index = repository.index()?;
    index::forget_announced(&mut index)?;
    let nothing = match &parent {
        Some(parent) => index.write_tree()? == parent.tree_id(),
        None => index.is_empty(),
    };
    if nothing {
        return Err(GitError::NothingStaged);
    }
    let tree = repository.find_tree(index.write_tree()?)?;
    let author = Signature::now(&bounds.author_name, &bounds.author_email)?;
    let parents: Vec<_> = parent.iter().collect();
    let id = repository.commit(Some("HEAD"), &author, &author, &message, &tree, &parents)?;
    let before = parent.as_ref().map(git2::Commit::tree).transpose()?;
    let diff = repository.diff_tree_to_tree(before.as_ref(), Some(&tree), Some(&mut diff::contents()))?;
    let diffs = [diff::with_renames(diff)?];
    let root = if parent.is_none() { " (root-commit)" } else { "" };
    let short = repository.find_object(id, None)?.short_id()?;
    let short = String::from_utf8_lossy(&short).into_owned();
    output.push_str(&format!("[{}{root} {short}] {}\n", place(repository), subject(&message)));
    formats::summary(&formats::rows(&diffs, |_| true)?, output);
    formats::modes(&diffs, output);
    Ok(id)
}

fn check(repository: &Repository) -> Result<(), GitError> {
    let in_progress = match repository.state() {
        // Bisecting leaves HEAD where a commit can be made.
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

fn place(repository: &Repository) -> String {
    match repository.head() {
        Ok(head) if head.is_branch() => shown(&String::from_utf8_lossy(head.shorthand_bytes())),
        _ => "detached HEAD".to_owned(),
    }
}

/// The first paragraph on one line.
fn subject(message: &str) -> String {
    let lines: Vec<&str> =
        message.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
    lines.join(" ")
}
