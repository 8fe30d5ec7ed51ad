//! `git diff` and its formats.

use git2::{Diff, DiffOptions, ErrorCode, Repository, Tree};
use jail::SandboxPath;
use ops::GitDiffFlag;

use super::abbrev::Abbreviations;
use super::delta::{LARGEST, for_each};
use super::error::GitError;
use super::output::Output;
use super::stat::Stat;
use super::{hunks, names, paths};

/// Writes the diff in the formats that the flags ask for, in git's order; without any as patches.
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
    let limit_to: Vec<&str> = limit_to.iter().map(paths::in_work_tree).collect::<Result<_, _>>()?;
    let diff = if has(GitDiffFlag::Cached) {
        staged(repository, &limit_to)?
    } else {
        repository.diff_index_to_workdir(None, Some(&mut options(&limit_to)))?
    };
    write_formats(repository, flags, &diff, output)
}

fn write_formats(
    repository: &Repository,
    flags: &[GitDiffFlag],
    diff: &Diff<'_>,
    output: &mut Output,
) -> Result<(), GitError> {
    let has = |flag| flags.contains(&flag);
    let formats =
        flags.iter().filter(|flag| !matches!(flag, GitDiffFlag::Cached | GitDiffFlag::NoColor)).count();
    if formats == 0 {
        return write_patches(repository, diff, output);
    }
    if has(GitDiffFlag::NameOnly) || has(GitDiffFlag::NameStatus) {
        // As in git, these silence all others.
        return for_each(repository, diff, |change| {
            if has(GitDiffFlag::NameOnly) {
                names::name_only(&change, output);
            } else {
                names::name_status(&change, output);
            }
            Ok(())
        });
    }
    let mut stat = Stat::default();
    for_each(repository, diff, |change| {
        if has(GitDiffFlag::NumStat) {
            names::numstat(&change, output);
        }
        stat.add(&change);
        Ok(())
    })?;
    if has(GitDiffFlag::Stat) {
        stat.graph(output);
    }
    if has(GitDiffFlag::ShortStat) {
        stat.summary(output);
    }
    Ok(())
}

/// The diff as patches.
pub(super) fn write_patches(
    repository: &Repository,
    diff: &Diff<'_>,
    output: &mut Output,
) -> Result<(), GitError> {
    let names = Abbreviations::of(repository)?;
    for_each(repository, diff, |change| hunks::write(&names, &change, output))
}

/// What is staged: HEAD against the index.
pub(super) fn staged<'r>(repository: &'r Repository, limit_to: &[&str]) -> Result<Diff<'r>, GitError> {
    let head = head_tree(repository)?;
    let index = repository.index()?;
    let mut options = options(limit_to);
    Ok(repository.diff_tree_to_index(head.as_ref(), Some(&index), Some(&mut options))?)
}

/// The tree of HEAD; `None` before the first commit.
pub(super) fn head_tree(repository: &Repository) -> Result<Option<Tree<'_>>, GitError> {
    match repository.head() {
        Ok(head) => Ok(Some(head.peel_to_tree()?)),
        Err(error) if error.code() == ErrorCode::UnbornBranch => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// git's defaults, whatever the repository's configuration says. Paths are taken literally.
pub(super) fn options(limit_to: &[&str]) -> DiffOptions {
    let mut options = DiffOptions::new();
    options
        .context_lines(3)
        .interhunk_lines(0)
        .indent_heuristic(true)
        .include_typechange(true)
        .ignore_submodules(true)
        .disable_pathspec_match(true)
        .max_size(LARGEST.cast_signed())
        .old_prefix("a/")
        .new_prefix("b/");
    // The work tree itself among the paths means all of it.
    if !limit_to.contains(&"") {
        for path in limit_to {
            options.pathspec(*path);
        }
    }
    options
}
