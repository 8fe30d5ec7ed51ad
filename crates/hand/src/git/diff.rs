//! `git diff` and its formats.

use std::sync::Arc;

use git2::{DiffOptions, ErrorCode, Repository, Tree};
use jail::SandboxPath;
use ops::GitDiffFlag;

use super::abbrev::Abbreviations;
use super::beneath::Beneath;
use super::contents::{Contents, LARGEST};
use super::delta::for_each;
use super::difference::{Difference, is_wanted};
use super::error::GitError;
use super::index::Index;
use super::output::Output;
use super::stat::Stat;
use super::worktree::{self, Survey, Wanted};
use super::{combined, hunks, names, paths, staged};
use crate::threads::Threads;

/// Writes the diff in the formats that the flags ask for, in git's order; without any as patches.
pub(super) fn write(
    repository: &Repository,
    flags: &[GitDiffFlag],
    limit_to: &[SandboxPath],
    threads: &Threads,
    output: &mut Output,
) -> Result<(), GitError> {
    let has = |flag| flags.contains(&flag);
    if has(GitDiffFlag::NameOnly) && has(GitDiffFlag::NameStatus) {
        return Err(GitError::Flags("--name-only", "--name-status"));
    }
    let limit_to: Vec<&str> = limit_to.iter().map(paths::in_work_tree).collect::<Result<_, _>>()?;
    let workspace = Beneath::workspace()?;
    let index = Arc::new(Index::read(&workspace)?);
    let odb = repository.odb()?;
    let contents = Contents::new(repository, &odb, &index)?;
    let mut differences = if has(GitDiffFlag::Cached) {
        let mut staged = staged::differences(repository, head_tree(repository)?.as_ref(), &index)?;
        staged.retain(|difference| is_wanted(&difference.path, &limit_to));
        staged
    } else {
        let wanted = Wanted { paths: &limit_to, untracked: false };
        let survey = Survey::begin(repository, &workspace, &index, wanted, threads)?;
        worktree::differences(&contents, &workspace, &index, wanted, survey)?.differences
    };
    if !flags.iter().any(|flag| is_format(*flag)) {
        if !has(GitDiffFlag::Cached) {
            combined::write(&contents, &mut differences, output)?;
        }
        return write_patches(&contents, &differences, output);
    }
    write_formats(&contents, flags, &differences, output)
}

/// Whether the flag asks for another format than patches.
fn is_format(flag: GitDiffFlag) -> bool {
    !matches!(flag, GitDiffFlag::Cached | GitDiffFlag::NoColor)
}

fn write_formats(
    contents: &Contents<'_>,
    flags: &[GitDiffFlag],
    differences: &[Difference],
    output: &mut Output,
) -> Result<(), GitError> {
    let has = |flag| flags.contains(&flag);
    if has(GitDiffFlag::NameOnly) || has(GitDiffFlag::NameStatus) {
        // As in git, these silence all others.
        return for_each(contents, differences, |change| {
            if has(GitDiffFlag::NameOnly) {
                names::name_only(&change, output);
            } else {
                names::name_status(&change, output);
            }
            Ok(())
        });
    }
    let mut stat = Stat::default();
    for_each(contents, differences, |change| {
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
    contents: &Contents<'_>,
    differences: &[Difference],
    output: &mut Output,
) -> Result<(), GitError> {
    let names = Abbreviations::of(contents.repository)?;
    for_each(contents, differences, |change| hunks::write(&names, &change, output))
}

/// The tree of HEAD; `None` before the first commit.
pub(super) fn head_tree(repository: &Repository) -> Result<Option<Tree<'_>>, GitError> {
    match repository.head() {
        Ok(head) => Ok(Some(head.peel_to_tree()?)),
        Err(error) if error.code() == ErrorCode::UnbornBranch => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// git's defaults, whatever the repository's configuration says.
pub(super) fn options() -> DiffOptions {
    let mut options = DiffOptions::new();
    options
        .context_lines(3)
        .interhunk_lines(0)
        .indent_heuristic(true)
        .include_typechange(true)
        .max_size(LARGEST.cast_signed());
    options
}
