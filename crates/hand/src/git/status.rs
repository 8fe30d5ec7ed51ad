//! `git status --porcelain=v1 --branch`.

use std::collections::{BTreeMap, BTreeSet};

use git2::{Branch, BranchType, ErrorCode, Index, Repository, Status, StatusOptions, StatusShow};

use super::delta::candidate;
use super::error::GitError;
use super::output::Output;
use super::quote::{Spaces, quoted};
use super::rename::{self, Candidate};

/// Writes the branch, then tracked paths in order, then untracked ones.
pub(super) fn write(repository: &Repository, output: &mut Output) -> Result<(), GitError> {
    output.push_str(&format!("## {}\n", branch(repository)?));
    let mut options = StatusOptions::new();
    options
        .show(StatusShow::IndexAndWorkdir)
        .include_untracked(true)
        .recurse_untracked_dirs(false)
        .exclude_submodules(true)
        .sort_case_sensitively(true);
    let statuses = repository.statuses(Some(&mut options))?;
    let conflicts = conflicts(&repository.index()?)?;
    let mut tracked = BTreeMap::new();
    let mut untracked = BTreeSet::new();
    let (mut deleted, mut added) = (Vec::new(), Vec::new());
    for entry in statuses.iter().filter(|entry| !entry.status().contains(Status::CONFLICTED)) {
        let status = entry.status();
        let path = entry.path_bytes().to_vec();
        let code = [index_code(status), work_tree_code(status)];
        if code != [' ', ' '] {
            tracked.insert(path.clone(), (code, None));
        }
        if status.contains(Status::WT_NEW) {
            untracked.insert(path);
        }
        match entry.head_to_index() {
            Some(delta) if code[0] == 'A' => added.push(candidate(&delta.new_file())),
            Some(delta) if code[0] == 'D' => deleted.push(candidate(&delta.old_file())),
            _ => {}
        }
    }
    join_renames(repository, &deleted, &added, &mut tracked);
    tracked.extend(conflicts.into_iter().map(|(path, code)| (path, (code, None))));
    for (path, (code, old)) in tracked {
        let from = old.map(|old| format!("{} -> ", quoted(&old, Spaces::Quoted))).unwrap_or_default();
        output.push_str(&format!("{}{} {from}{}\n", code[0], code[1], quoted(&path, Spaces::Quoted)));
    }
    for path in untracked {
        output.push_str(&format!("?? {}\n", quoted(&path, Spaces::Quoted)));
    }
    Ok(())
}

type Tracked = BTreeMap<Vec<u8>, ([char; 2], Option<Vec<u8>>)>;

/// Makes one line of a deletion and an addition that belong together.
fn join_renames(repository: &Repository, deleted: &[Candidate], added: &[Candidate], tracked: &mut Tracked) {
    let sources: Vec<_> = deleted.iter().collect();
    let targets: Vec<_> = added.iter().collect();
    let pairs = rename::find(repository, &sources, &targets);
    for (target, pair) in added.iter().zip(pairs) {
        let Some(source) = pair.and_then(|pair| deleted.get(pair.source)) else { continue };
        tracked.remove(&source.path);
        if let Some((code, old)) = tracked.get_mut(&target.path) {
            code[0] = 'R';
            *old = Some(source.path.clone());
        }
    }
}

fn index_code(status: Status) -> char {
    match status {
        s if s.contains(Status::INDEX_NEW) => 'A',
        s if s.contains(Status::INDEX_DELETED) => 'D',
        s if s.contains(Status::INDEX_TYPECHANGE) => 'T',
        s if s.contains(Status::INDEX_MODIFIED) => 'M',
        _ => ' ',
    }
}

fn work_tree_code(status: Status) -> char {
    match status {
        s if s.contains(Status::WT_DELETED) => 'D',
        s if s.contains(Status::WT_TYPECHANGE) => 'T',
        s if s.contains(Status::WT_MODIFIED) => 'M',
        _ => ' ',
    }
}

/// Two letters for each unmerged path, by the sides that have it.
fn conflicts(index: &Index) -> Result<BTreeMap<Vec<u8>, [char; 2]>, GitError> {
    let mut codes = BTreeMap::new();
    if !index.has_conflicts() {
        return Ok(codes);
    }
    for conflict in index.conflicts()? {
        let conflict = conflict?;
        let sides = (conflict.ancestor.is_some(), conflict.our.is_some(), conflict.their.is_some());
        let code = match sides {
            (true, false, false) => ['D', 'D'],
            (false, true, false) => ['A', 'U'],
            (false, false, true) => ['U', 'A'],
            (true, true, false) => ['U', 'D'],
            (true, false, true) => ['D', 'U'],
            (false, true, true) => ['A', 'A'],
            _ => ['U', 'U'],
        };
        if let Some(side) = conflict.our.or(conflict.their).or(conflict.ancestor) {
            codes.insert(side.path, code);
        }
    }
    Ok(codes)
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
