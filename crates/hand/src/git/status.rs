//! `git status --porcelain=v1 --branch`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use git2::{Branch, BranchType, ErrorCode, Repository};

use super::beneath::Beneath;
use super::contents::Contents;
use super::delta::Renames;
use super::diff::head_tree;
use super::difference::{Difference, Sides, What};
use super::error::GitError;
use super::index::Index;
use super::output::Output;
use super::quote::{Spaces, quoted};
use super::staged;
use super::worktree::{self, Survey, Wanted};
use crate::threads::Threads;

/// What one line says of a path: a letter for the index, one for the work tree, and another path where it came from.
struct Line {
    codes: [char; 2],
    from: Option<Vec<u8>>,
}

type Lines = BTreeMap<Vec<u8>, Line>;

/// Writes the branch, then tracked paths in order, then untracked ones.
pub(super) fn write(repository: &Repository, threads: &Threads, output: &mut Output) -> Result<(), GitError> {
    output.push_str(&format!("## {}\n", branch(repository)?));
    let workspace = Beneath::workspace()?;
    let index = Arc::new(Index::read(&workspace)?);
    let wanted = Wanted { paths: &[], untracked: true };
    let survey = Survey::begin(repository, &workspace, &index, wanted, threads)?;
    let odb = repository.odb()?;
    let contents = Contents::new(repository, &odb, &index)?;
    let staged = staged::differences(repository, head_tree(repository)?.as_ref(), &index)?;
    let found = worktree::differences(&contents, &workspace, &index, wanted, survey)?;

    let mut lines = Lines::new();
    column(0, &contents, &staged, &mut lines)?;
    column(1, &contents, &found.differences, &mut lines)?;
    for (path, Line { codes: [index, work_tree], from }) in lines {
        let from = from.map(|from| format!("{} -> ", quoted(&from, Spaces::Quoted))).unwrap_or_default();
        output.push_str(&format!("{index}{work_tree} {from}{}\n", quoted(&path, Spaces::Quoted)));
    }
    for path in BTreeSet::from_iter(found.untracked) {
        output.push_str(&format!("?? {}\n", quoted(&path, Spaces::Quoted)));
    }
    Ok(())
}

/// Adds what one comparison found.
fn column(
    column: usize,
    contents: &Contents<'_>,
    differences: &[Difference],
    lines: &mut Lines,
) -> Result<(), GitError> {
    let renames = Renames::find(contents, differences)?;
    for (index, difference) in differences.iter().enumerate() {
        if renames.gone.contains(&index) {
            continue;
        }
        let line =
            lines.entry(difference.path.clone()).or_insert_with(|| Line { codes: [' ', ' '], from: None });
        if let What::Unmerged(sides) = difference.what {
            line.codes = conflict(&sides);
        } else if !is_conflict(line.codes) {
            let source = renames.sources.get(&index).and_then(|(_, source)| differences.get(*source));
            line.codes[column] = if source.is_some() { 'R' } else { difference.letter() };
            line.from = source.map(|source| source.path.clone()).or(line.from.take());
        }
    }
    Ok(())
}

/// Two letters for an unmerged path, by the sides that have it.
fn conflict(sides: &Sides) -> [char; 2] {
    let [ancestor, ours, theirs] = [sides.ancestor, sides.ours, sides.theirs].map(|side| !side.is_none());
    match (ancestor, ours, theirs) {
        (true, false, false) => ['D', 'D'],
        (false, true, false) => ['A', 'U'],
        (false, false, true) => ['U', 'A'],
        (true, true, false) => ['U', 'D'],
        (true, false, true) => ['D', 'U'],
        (false, true, true) => ['A', 'A'],
        _ => ['U', 'U'],
    }
}

/// Such a line stays as it is, whatever the work tree has.
fn is_conflict(codes: [char; 2]) -> bool {
    codes.contains(&'U') || matches!(codes, ['D', 'D'] | ['A', 'A'])
}

fn branch(repository: &Repository) -> Result<String, GitError> {
    match repository.head() {
        Ok(head) if head.is_branch() => {
            let name = String::from_utf8_lossy(head.shorthand_bytes()).into_owned();
            Ok(format!("{name}{}", upstream(repository, &Branch::wrap(head), &name)?))
        }
        Ok(_) => Ok("HEAD (no branch)".to_owned()),
        Err(error) if error.code() == ErrorCode::UnbornBranch => {
            let head = repository.find_reference("HEAD")?;
            let target = head.symbolic_target_bytes().unwrap_or_default();
            let name = target.strip_prefix(b"refs/heads/").unwrap_or(target);
            Ok(format!("No commits yet on {}", String::from_utf8_lossy(name)))
        }
        Err(error) => Err(error.into()),
    }
}

/// `...origin/main [ahead 1, behind 2]`, or nothing when the branch follows none.
fn upstream(repository: &Repository, branch: &Branch<'_>, name: &str) -> Result<String, GitError> {
    let Some(local) = branch.get().target() else { return Ok(String::new()) };
    let full = format!("refs/heads/{name}");
    let Ok(upstream) = repository.branch_upstream_name(&full) else { return Ok(String::new()) };
    let upstream = upstream.as_str().unwrap_or_default();
    let short =
        upstream.strip_prefix("refs/remotes/").or(upstream.strip_prefix("refs/heads/")).unwrap_or(upstream);
    let kind = if upstream.starts_with("refs/remotes/") { BranchType::Remote } else { BranchType::Local };
    let Some(remote) = repository.find_branch(short, kind).ok().and_then(|found| found.get().target()) else {
        return Ok(format!("...{short} [gone]"));
    };
    let distance = match repository.graph_ahead_behind(local, remote)? {
        (0, 0) => String::new(),
        (ahead, 0) => format!(" [ahead {ahead}]"),
        (0, behind) => format!(" [behind {behind}]"),
        (ahead, behind) => format!(" [ahead {ahead}, behind {behind}]"),
    };
    Ok(format!("...{short}{distance}"))
}
