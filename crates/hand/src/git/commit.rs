//! `git commit -m`: the index as a new commit on HEAD. No hooks, no editor, no signature.

use git2::{Diff, DiffFile, ErrorCode, Oid, Repository, RepositoryState, Signature, message_prettify};
use ops::Bounds;

use super::abbrev::Abbreviations;
use super::beneath::Beneath;
use super::contents::Contents;
use super::delta::{Change, Kind, for_each};
use super::difference::{Difference, Version};
use super::error::{GitError, shown};
use super::index::Index;
use super::names::shown as shown_path;
use super::output::Output;
use super::quote::{Spaces, quoted, renamed};
use super::stat::Stat;
use super::{diff, staged};

/// Paths with conflicts that a refusal names, at most.
const CONFLICTS_SHOWN: usize = 20;

/// Shows what would be committed.
pub(super) fn preview(repository: &Repository, output: &mut Output) -> Result<(), GitError> {
    check(repository)?;
    let index = Index::read(&Beneath::workspace()?)?;
    let staged = staged::differences(repository, diff::head_tree(repository)?.as_ref(), &index)?;
    if staged.is_empty() {
        return Err(GitError::NothingStaged);
    }
    let odb = repository.odb()?;
    diff::write_patches(&Contents::new(repository, &odb, &index)?, &staged, output)
}

/// Commits, and returns the new commit. Says what `git commit` says.
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
    let diff = repository.diff_tree_to_tree(before.as_ref(), Some(&tree), Some(&mut diff::options()))?;
    let root = if parent.is_none() { " (root-commit)" } else { "" };
    let short = Abbreviations::of(repository)?.shorten(id);
    output.push_str(&format!("[{}{root} {short}] {}\n", place(repository), subject(&message)));
    report(repository, &differences(&diff), output)?;
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
            paths.push(quoted(&side.path, Spaces::Plain));
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

fn differences(diff: &Diff<'_>) -> Vec<Difference> {
    let version = |file: &DiffFile<'_>| match u32::from(file.mode()) {
        0 => Version::NONE,
        mode => Version::new(mode, file.id()),
    };
    let difference = |delta: git2::DiffDelta<'_>| {
        let (old, new) = (delta.old_file(), delta.new_file());
        let path = new.path_bytes().or(old.path_bytes()).unwrap_or_default();
        Difference::change(path, version(&old), version(&new))
    };
    diff.deltas().map(difference).collect()
}

fn report(repository: &Repository, differences: &[Difference], output: &mut Output) -> Result<(), GitError> {
    let odb = repository.odb()?;
    let contents = Contents::new(repository, &odb, &Index::read(&Beneath::workspace()?)?)?;
    let mut stat = Stat::default();
    let mut lines = Output::new(u64::MAX);
    for_each(&contents, differences, |change| {
        stat.add(&change);
        if let Some(line) = summary(&change) {
            lines.push_str(&line);
        }
        Ok(())
    })?;
    stat.summary(output);
    output.push_str(&lines.into_result(String::new()).output);
    Ok(())
}

/// `create mode`, `delete mode`, `rename`, `mode change`; nothing for a mere change.
fn summary(change: &Change<'_>) -> Option<String> {
    let (old, new) = (change.old.mode, change.new.mode);
    let path = || quoted(&change.new.path, Spaces::Plain);
    match change.kind {
        Kind::Added => Some(format!(" create mode {new:06o} {}\n", path())),
        Kind::Deleted => Some(format!(" delete mode {old:06o} {}\n", path())),
        Kind::Renamed { similarity } => {
            let names = renamed(&change.old.path, &change.new.path);
            let mode =
                if old == new { String::new() } else { format!(" mode change {old:06o} => {new:06o}\n") };
            Some(format!(" rename {names} ({similarity}%)\n{mode}"))
        }
        _ if old != new => Some(format!(" mode change {old:06o} => {new:06o} {}\n", shown_path(change))),
        _ => None,
    }
}
