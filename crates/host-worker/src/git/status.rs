//! Implements `git status --porcelain=v1 --branch`.

use std::collections::{BTreeMap, BTreeSet};

use git2::{Branch, BranchType, Delta, Diff, DiffDelta, ErrorCode, Index, IndexConflict, Repository};
use jail::Jail;

use super::conversion::Converted;
use super::error::GitError;
use super::formats::{letter, new_path, old_path};
use super::index::Marked;
use super::output::Output;
use super::quote::quoted;
use super::withheld::Withheld;
use super::{compare, diff};

/// The state of a path: a letter for the index, one for the work tree, and the old path of a rename.
struct Line {
    codes: [char; 2],
    from: Option<Vec<u8>>,
}

impl Line {
    fn new() -> Self {
        Self { codes: [' ', ' '], from: None }
    }
}

type Lines = BTreeMap<Vec<u8>, Line>;

/// Writes the branch, then tracked paths in order, then untracked ones.
pub(super) fn write(
    repository: &Repository,
    jail: &Jail,
    withheld: &Withheld<'_>,
    output: &mut Output,
) -> Result<(), GitError> {
    output.push_str(&format!("## {}\n", branch(repository)?));
    let (mut lines, mut untracked) = (Lines::new(), BTreeSet::new());
    let mut options = compare::changes();
    options.include_untracked(true);
    let index = repository.index()?;
    let files = diff::work_tree(repository, None, options)?;
    let converted = Converted::among(repository, &index, &files)?;
    let found = [files, converted.modes(repository)?, diff::submodules(repository, jail, &[])?];
    let is_wanted = diff::is_wanted(&index);
    let known = |delta: &DiffDelta<'_>| is_wanted(delta) && converted.is_known(delta);
    for delta in found.iter().flat_map(Diff::deltas).filter(known) {
        if delta.status() == Delta::Untracked {
            untracked.insert(new_path(&delta).to_vec());
        } else {
            column(1, &delta, &mut lines);
        }
    }
    announced(&index, &mut lines);
    let staged = diff::staged(repository, compare::changes())?;
    staged.deltas().for_each(|delta| column(0, &delta, &mut lines));
    conflicts(&index, &mut lines)?;

    let is_shown = |path: &[u8]| withheld.shows_path(path);
    lines.retain(|path, line| is_shown(path) && line.from.as_deref().is_none_or(is_shown));
    for (path, Line { codes: [index, work_tree], from }) in lines {
        let from = from.map(|from| format!("{} -> ", name(&from))).unwrap_or_default();
        output.push_str(&format!("{index}{work_tree} {from}{}\n", name(&path)));
    }
    for path in untracked.into_iter().filter(|path| is_shown(path)) {
        output.push_str(&format!("?? {}\n", name(&path)));
    }
    for (path, conversion) in converted.unseen.iter().filter(|(path, _)| is_shown(path)) {
        output.push_str(&format!(
            "## not looked at, may have changed ({conversion} does not run here): {}\n",
            name(path)
        ));
    }
    Ok(())
}

/// Returns the path, quoted also if it has spaces: ` -> ` separates two paths.
fn name(path: &[u8]) -> String {
    let shown = quoted(path);
    if shown.contains(' ') && !shown.starts_with('"') { format!("\"{shown}\"") } else { shown }
}

/// Adds the result of one comparison.
fn column(column: usize, delta: &DiffDelta<'_>, lines: &mut Lines) {
    let line = lines.entry(new_path(delta).to_vec()).or_insert_with(Line::new);
    line.codes[column] = letter(delta.status());
    if delta.status() == Delta::Renamed {
        line.from = Some(old_path(delta).to_vec());
    }
}

/// Adds the announced files: new in the work tree, and unchanged in the index.
fn announced(index: &Index, lines: &mut Lines) {
    for path in Marked::of(index).announced {
        let line = lines.entry(path).or_insert_with(Line::new);
        if line.codes[1] != 'D' {
            line.codes[1] = 'A';
        }
    }
}

/// Replaces the letters of unmerged paths, whatever the comparisons found.
fn conflicts(index: &Index, lines: &mut Lines) -> Result<(), GitError> {
    for conflict in index.conflicts()? {
        let conflict = conflict?;
        let codes = sides(&conflict);
        let Some(side) = conflict.our.or(conflict.their).or(conflict.ancestor) else { continue };
        lines.insert(side.path, Line { codes, from: None });
    }
    Ok(())
}

/// Returns two letters, by the sides that have the path.
fn sides(conflict: &IndexConflict) -> [char; 2] {
    match (conflict.ancestor.is_some(), conflict.our.is_some(), conflict.their.is_some()) {
        (true, false, false) => ['D', 'D'],
        (false, true, false) => ['A', 'U'],
        (false, false, true) => ['U', 'A'],
        (true, true, false) => ['U', 'D'],
        (true, false, true) => ['D', 'U'],
        (false, true, true) => ['A', 'A'],
        _ => ['U', 'U'],
    }
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

/// Returns `...origin/main [ahead 1, behind 2]`; empty if the branch has no upstream.
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
