//! `git diff`: the index against the work tree, or HEAD against the index.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use git2::{Delta, Diff, DiffDelta, DiffFindOptions, DiffOptions, ErrorCode, Index, Repository, Tree};
use jail::SandboxPath;
use ops::GitDiffFlag;

use super::error::GitError;
use super::output::Output;
use super::{formats, paths};

/// Larger files are shown as binary, bytes.
const LARGEST: i64 = 64 * 1024 * 1024;
/// In the extended flags of an entry, by gitformat-index(5).
const SKIP_WORKTREE: u16 = 1 << 14;

/// Writes the diff in the formats that the flags ask for; without any as patches.
pub(super) fn write(
    repository: &Repository,
    flags: &[GitDiffFlag],
    limit_to: &[SandboxPath],
    output: &mut Output,
) -> Result<(), GitError> {
    let has = |flag| flags.contains(&flag);
    if has(GitDiffFlag::NameOnly) && has(GitDiffFlag::NameStatus) {
        return Err(GitError::Flags("--name-only", "--name-status"));
    }
    let is_patch = !flags.iter().any(|flag| is_format(*flag));
    let is_names = has(GitDiffFlag::NameOnly) || has(GitDiffFlag::NameStatus);
    let mut options = if is_names { changes() } else { contents() };
    let limit_to: Vec<&str> = limit_to.iter().map(paths::in_work_tree).collect::<Result<_, _>>()?;
    limit(&mut options, &limit_to);
    let diff = if has(GitDiffFlag::Cached) {
        staged(repository, options)?
    } else {
        unstaged(repository, None, options)?
    };
    let index = repository.index()?;
    let shown = is_wanted(&index);
    if is_patch {
        return formats::patches(&diff, shown, output);
    }
    if is_names {
        // As with the git command, these silence all others.
        formats::names(&diff, shown, has(GitDiffFlag::NameStatus), output);
        return Ok(());
    }
    let rows = formats::rows(&diff, shown)?;
    if has(GitDiffFlag::NumStat) {
        formats::numbers(&rows, output);
    }
    if has(GitDiffFlag::Stat) {
        formats::graph(&rows, output);
    }
    if has(GitDiffFlag::Stat) || has(GitDiffFlag::ShortStat) {
        formats::summary(&rows, output);
    }
    Ok(())
}

/// Whether the flag asks for another format than patches.
fn is_format(flag: GitDiffFlag) -> bool {
    !matches!(flag, GitDiffFlag::Cached | GitDiffFlag::NoColor)
}

/// For what is said of each path: one change a path, also where a file became a link.
pub(super) fn changes() -> DiffOptions {
    let mut options = DiffOptions::new();
    // The configuration of a repository is not asked for any of these.
    options
        .context_lines(3)
        .interhunk_lines(0)
        .indent_heuristic(true)
        .old_prefix("a")
        .new_prefix("b")
        .include_typechange(true)
        .disable_pathspec_match(true)
        .max_size(LARGEST);
    options
}

/// For what is in the files: where a file became a link, one is removed and the other made.
pub(super) fn contents() -> DiffOptions {
    let mut options = changes();
    options.include_typechange(false);
    options
}

/// Only these paths and what is beneath them. Without any, or with the work tree itself among them, all.
pub(super) fn limit(options: &mut DiffOptions, paths: &[&str]) {
    if !paths.contains(&"") {
        for path in paths {
            options.pathspec(*path);
        }
    }
}

/// HEAD against the index, with renames.
pub(super) fn staged(repository: &Repository, mut options: DiffOptions) -> Result<Diff<'_>, GitError> {
    let head = head_tree(repository)?;
    let diff = repository.diff_tree_to_index(head.as_ref(), None, Some(&mut options))?;
    with_renames(diff)
}

/// The index, or another one, against the work tree. Submodules are left out, which would be opened.
pub(super) fn unstaged<'r>(
    repository: &'r Repository,
    index: Option<&Index>,
    mut options: DiffOptions,
) -> Result<Diff<'r>, GitError> {
    options.ignore_submodules(true);
    Ok(repository.diff_index_to_workdir(index, Some(&mut options))?)
}

/// What there is to show of a diff: a file that the work tree is not to have (`skip-worktree`) is not missing in it.
pub(super) fn is_wanted(index: &Index) -> impl Fn(&DiffDelta<'_>) -> bool {
    |delta| {
        let path = Path::new(OsStr::from_bytes(formats::new_path(delta)));
        delta.status() != Delta::Deleted
            || index.get_path(path, 0).is_none_or(|entry| entry.flags_extended & SKIP_WORKTREE == 0)
    }
}

/// Files that were moved count as one change.
pub(super) fn with_renames(mut diff: Diff<'_>) -> Result<Diff<'_>, GitError> {
    diff.find_similar(Some(DiffFindOptions::new().renames(true)))?;
    Ok(diff)
}

/// The tree of HEAD; `None` before the first commit.
fn head_tree(repository: &Repository) -> Result<Option<Tree<'_>>, GitError> {
    match repository.head() {
        Ok(head) => Ok(Some(head.peel_to_tree()?)),
        Err(error) if error.code() == ErrorCode::UnbornBranch => Ok(None),
        Err(error) => Err(error.into()),
    }
}
