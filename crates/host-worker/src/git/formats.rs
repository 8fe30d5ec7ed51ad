//! Formats the changes of a diff.

use std::collections::HashSet;

use git2::{Delta, Diff, DiffDelta, DiffOptions, Patch};
use operations::GitFormat;

use super::compare::{changes, contents};
use super::error::GitError;
use super::output::Output;
use super::quote::quoted;

/// Most signs in a line of `--stat`.
const SIGNS: usize = 40;

/// The formats in which the changes are written.
pub(super) struct Formats(Vec<GitFormat>);

impl Formats {
    /// Returns the formats that the flags ask for; without flags, patches.
    pub(super) fn of(chosen: impl Iterator<Item = GitFormat>) -> Result<Self, GitError> {
        let formats = Self(chosen.collect());
        if formats.has(GitFormat::NameOnly) && formats.has(GitFormat::NameStatus) {
            return Err(GitError::Flags("--name-only", "--name-status"));
        }
        Ok(formats)
    }

    fn has(&self, format: GitFormat) -> bool {
        self.0.contains(&format)
    }

    fn are_names(&self) -> bool {
        self.has(GitFormat::NameOnly) || self.has(GitFormat::NameStatus)
    }

    pub(super) fn are_patches(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the options of a comparison for these formats.
    pub(super) fn options(&self) -> DiffOptions {
        if self.are_names() { changes() } else { contents() }
    }

    /// Writes the changes that `shown` selects.
    pub(super) fn write(
        &self,
        diffs: &[Diff<'_>],
        shown: impl Fn(&DiffDelta<'_>) -> bool,
        output: &mut Output,
    ) -> Result<(), GitError> {
        if self.are_patches() {
            return patches(diffs, shown, output);
        }
        if self.are_names() {
            // As with the git command, these replace all others.
            return names(diffs, shown, self.has(GitFormat::NameStatus), output);
        }
        let rows = rows(diffs, shown)?;
        if self.has(GitFormat::NumStat) {
            numbers(&rows, output);
        }
        if self.has(GitFormat::Stat) {
            graph(&rows, output);
        }
        if self.has(GitFormat::Stat) || self.has(GitFormat::ShortStat) {
            summary(&rows, output);
        }
        Ok(())
    }

    /// Names the files that were not compared, and the reason.
    pub(super) fn unseen<'u>(
        &self,
        unseen: impl Iterator<Item = (&'u Vec<u8>, &'u String)>,
        output: &mut Output,
    ) {
        for (path, conversion) in unseen {
            let path = quoted(path);
            output.push_str(&if self.has(GitFormat::NameStatus) {
                format!("?\t{path}\n")
            } else if self.has(GitFormat::NameOnly) {
                format!("{path}\n")
            } else {
                format!("* Not looked at {path} ({conversion} does not run here, so it may have changed)\n")
            });
        }
    }
}

/// Writes the changes that `shown` selects as unified diffs.
pub(super) fn patches(
    diffs: &[Diff<'_>],
    shown: impl Fn(&DiffDelta<'_>) -> bool,
    output: &mut Output,
) -> Result<(), GitError> {
    // A file that replaces another can be created only after that one is gone.
    let deltas = diffs.iter().flat_map(Diff::deltas);
    let gone: HashSet<&[u8]> =
        deltas.filter(|delta| leaves(delta.status())).map(|delta| old_path(&delta)).collect();
    let is_late = |delta: &DiffDelta<'_>| delta.status() == Delta::Added && gone.contains(new_path(delta));
    for late in [false, true] {
        for (diff, number, delta) in each(diffs) {
            if is_late(&delta) == late && shown(&delta) {
                patch(diff, number, &delta, output)?;
            }
        }
    }
    Ok(())
}

/// Returns each change, with its number in its diff.
fn each<'d>(diffs: &'d [Diff<'d>]) -> impl Iterator<Item = (&'d Diff<'d>, usize, DiffDelta<'d>)> {
    diffs.iter().flat_map(|diff| diff.deltas().enumerate().map(move |(number, delta)| (diff, number, delta)))
}

pub(super) fn patch(
    diff: &Diff<'_>,
    number: usize,
    delta: &DiffDelta<'_>,
    output: &mut Output,
) -> Result<(), GitError> {
    if delta.status() == Delta::Conflicted {
        output.push_str(&format!("* Unmerged path {}\n", path(delta)));
    } else if let Some(mut patch) = Patch::from_diff(diff, number)? {
        patch.print(&mut |_, _, line| {
            // The content of a changed file that attributes make binary is not loaded, so libgit2 takes it for a deleted one.
            if line.origin() == 'B' && delta.status() == Delta::Modified {
                let [old, new] = [("a/", old_path(delta)), ("b/", new_path(delta))]
                    .map(|(side, path)| quoted(&[side.as_bytes(), path].concat()));
                output.push_str(&format!("Binary files {old} and {new} differ\n"));
                return true;
            }
            let sign = matches!(line.origin(), ' ' | '+' | '-').then_some(line.origin() as u8);
            output.push(&[sign.as_slice(), line.content()].concat());
            true
        })?;
    }
    Ok(())
}

/// Returns true if the change removes the file from its old path.
fn leaves(status: Delta) -> bool {
    matches!(status, Delta::Deleted | Delta::Renamed)
}

/// Writes `--name-only`, or `--name-status` with a letter in front.
fn names(
    diffs: &[Diff<'_>],
    shown: impl Fn(&DiffDelta<'_>) -> bool,
    with_status: bool,
    output: &mut Output,
) -> Result<(), GitError> {
    for (diff, number, delta) in each(diffs).filter(|(_, _, delta)| shown(delta)) {
        // Only size or time have changed; after the conversion of line endings the content may be the same.
        let is_uncertain = delta.status() == Delta::Modified && delta.new_file().id().is_zero();
        if is_uncertain && is_same(diff, number, Patch::from_diff(diff, number)?.as_ref()) {
            continue;
        }
        if with_status {
            output.push_str(&format!("{}\t", letter(delta.status())));
            if delta.status() == Delta::Renamed {
                output.push_str(&format!("{}\t", quoted(old_path(&delta))));
            }
        }
        output.push_str(&format!("{}\n", path(&delta)));
    }
    Ok(())
}

/// Returns true if a file proved to be unchanged after its content was loaded.
fn is_same(diff: &Diff<'_>, number: usize, patch: Option<&Patch<'_>>) -> bool {
    let Some(patch) = patch else {
        return diff.get_delta(number).is_some_and(|delta| !delta.flags().is_binary());
    };
    let delta = patch.delta();
    let [old, new] = [delta.old_file(), delta.new_file()].map(|file| (file.id(), file.mode()));
    delta.status() == Delta::Unmodified || delta.status() == Delta::Modified && old == new
}

/// The amount of change of a path.
pub(super) struct Row {
    name: String,
    amount: Amount,
}

enum Amount {
    Lines { added: usize, deleted: usize },
    Binary,
    Unmerged,
}

/// Returns the amounts of the changes that `shown` selects, in their order.
pub(super) fn rows(diffs: &[Diff<'_>], shown: impl Fn(&DiffDelta<'_>) -> bool) -> Result<Vec<Row>, GitError> {
    let mut rows: Vec<Row> = Vec::new();
    for (diff, number, delta) in each(diffs).filter(|(_, _, delta)| shown(delta)) {
        let Some(amount) = amount(diff, number, &delta)? else { continue };
        let name = names_of(&delta);
        match (rows.last_mut().filter(|last| last.name == name), amount) {
            // A file that became a link has two changes: a removal and a creation.
            (
                Some(Row { amount: Amount::Lines { added, deleted }, .. }),
                Amount::Lines { added: more, deleted: less },
            ) => {
                *added += more;
                *deleted += less;
            }
            (Some(last), amount) => last.amount = amount,
            (None, amount) => rows.push(Row { name, amount }),
        }
    }
    Ok(rows)
}

/// Returns the amount of a change; `None` if the content is the same.
fn amount(diff: &Diff<'_>, number: usize, delta: &DiffDelta<'_>) -> Result<Option<Amount>, GitError> {
    if delta.status() == Delta::Conflicted {
        return Ok(Some(Amount::Unmerged));
    }
    let patch = Patch::from_diff(diff, number)?;
    if is_same(diff, number, patch.as_ref()) {
        return Ok(None);
    }
    // libgit2 knows only now, with the contents loaded, if a file is binary.
    Ok(Some(match patch.filter(|patch| !patch.delta().flags().is_binary()) {
        Some(patch) => {
            let (_, added, deleted) = patch.line_stats()?;
            Amount::Lines { added, deleted }
        }
        None => Amount::Binary,
    }))
}

/// Writes the lines of `git diff --numstat`.
fn numbers(rows: &[Row], output: &mut Output) {
    for Row { name, amount } in rows {
        output.push_str(&match amount {
            Amount::Lines { added, deleted } => format!("{added}\t{deleted}\t{name}\n"),
            Amount::Binary => format!("-\t-\t{name}\n"),
            Amount::Unmerged => format!("0\t0\t{name}\n"),
        });
    }
}

/// Writes the lines of `--stat`.
fn graph(rows: &[Row], output: &mut Output) {
    let lines = |row: &Row| match row.amount {
        Amount::Lines { added, deleted } => added + deleted,
        _ => 0,
    };
    let most = rows.iter().map(lines).max().unwrap_or_default();
    let scale = |count: usize| if most > SIGNS { (count * SIGNS).div_ceil(most) } else { count };
    for Row { name, amount } in rows {
        output.push_str(&match *amount {
            Amount::Lines { added: 0, deleted: 0 } => format!(" {name} | 0\n"),
            Amount::Lines { added, deleted } => {
                let signs = ["+".repeat(scale(added)), "-".repeat(scale(deleted))].concat();
                format!(" {name} | {} {signs}\n", added + deleted)
            }
            Amount::Binary => format!(" {name} | Bin\n"),
            Amount::Unmerged => format!(" {name} | Unmerged\n"),
        });
    }
}

/// Writes ` 2 files changed, 3 insertions(+), 1 deletion(-)`; without changes, no line.
pub(super) fn summary(rows: &[Row], output: &mut Output) {
    if rows.is_empty() {
        return;
    }
    let (mut inserted, mut removed) = (0, 0);
    for row in rows {
        if let Amount::Lines { added, deleted } = row.amount {
            inserted += added;
            removed += deleted;
        }
    }
    let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let files = count(rows.len(), "file");
    let (insertions, deletions) = (count(inserted, "insertion"), count(removed, "deletion"));
    output.push_str(&format!(" {files} changed, {insertions}(+), {deletions}(-)\n"));
}

/// Lists the files that a commit created, removed, renamed or gave another mode, of those that `shown` selects.
pub(super) fn modes(diffs: &[Diff<'_>], shown: impl Fn(&DiffDelta<'_>) -> bool, output: &mut Output) {
    for delta in diffs.iter().flat_map(Diff::deltas).filter(|delta| shown(delta)) {
        let [old, new] = [delta.old_file(), delta.new_file()].map(|file| u32::from(file.mode()));
        let name = names_of(&delta);
        output.push_str(&match delta.status() {
            Delta::Added => format!(" create mode {new:06o} {name}\n"),
            Delta::Deleted => format!(" delete mode {old:06o} {name}\n"),
            Delta::Renamed => format!(" rename {name}\n"),
            _ if old != new => format!(" mode change {old:06o} => {new:06o} {name}\n"),
            _ => continue,
        });
    }
}

/// Returns the letter of a change, as `--name-status` has it.
pub(super) fn letter(status: Delta) -> char {
    match status {
        Delta::Added | Delta::Untracked => 'A',
        Delta::Deleted => 'D',
        Delta::Renamed => 'R',
        Delta::Copied => 'C',
        Delta::Typechange => 'T',
        Delta::Conflicted => 'U',
        _ => 'M',
    }
}

/// Returns the path of the file now, or its last one.
pub(super) fn new_path<'d>(delta: &DiffDelta<'d>) -> &'d [u8] {
    delta.new_file().path_bytes().or(delta.old_file().path_bytes()).unwrap_or_default()
}

pub(super) fn old_path<'d>(delta: &DiffDelta<'d>) -> &'d [u8] {
    delta.old_file().path_bytes().unwrap_or_default()
}

fn path(delta: &DiffDelta<'_>) -> String {
    quoted(new_path(delta))
}

fn names_of(delta: &DiffDelta<'_>) -> String {
    match delta.status() {
        Delta::Renamed => format!("{} => {}", quoted(old_path(delta)), path(delta)),
        _ => path(delta),
    }
}
