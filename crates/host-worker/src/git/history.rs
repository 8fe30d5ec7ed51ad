//! Finds commits by name and shows them, for `git log` and `git show`.
//!
//! Commits are shown in the medium form of the git command, or in one line. Messages and names are shown as UTF-8, whatever
//! encoding a commit declares. `.mailmap` and notes are ignored.

use git2::{Commit, Diff, DiffOptions, ErrorCode, Object, Repository, Signature, Time};
use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};
use operations::{GitFormat, GitLogFlag, GitRevision};

use super::error::{GitError, shown};
use super::formats::Formats;
use super::output::Output;
use super::withheld::Withheld;
use super::{compare, diff};

pub(super) fn find<'r>(repository: &'r Repository, revision: &GitRevision) -> Result<Object<'r>, GitError> {
    repository.revparse_single(revision.as_str()).map_err(|error| match error.code() {
        _ if revision.as_str().starts_with("HEAD") && is_unborn(repository) => GitError::NoCommits,
        ErrorCode::NotFound | ErrorCode::UnbornBranch | ErrorCode::InvalidSpec | ErrorCode::Peel => {
            GitError::NoRevision(shown(revision.as_str()))
        }
        // An abbreviated id has at least four digits.
        ErrorCode::Ambiguous if revision.as_str().len() < 4 => GitError::NoRevision(shown(revision.as_str())),
        ErrorCode::Ambiguous => GitError::Ambiguous(shown(revision.as_str())),
        _ => error.into(),
    })
}

fn is_unborn(repository: &Repository) -> bool {
    repository.head().is_err_and(|error| error.code() == ErrorCode::UnbornBranch)
}

/// Returns the commit that a revision names, directly or by a tag.
pub(super) fn commit<'r>(repository: &'r Repository, revision: &GitRevision) -> Result<Commit<'r>, GitError> {
    let object = find(repository, revision)?;
    object.peel_to_commit().map_err(|_| GitError::NoRevision(shown(revision.as_str())))
}

/// The way in which commits are shown.
pub(super) struct Style {
    one_line: bool,
    /// Formats for each commit's changes; `None` shows no changes.
    pub(super) formats: Option<Formats>,
}

impl Style {
    /// Reads the flags. `patches`: show patches if no flag says otherwise.
    pub(super) fn of(flags: &[GitLogFlag], patches: bool) -> Result<Self, GitError> {
        let chosen: Vec<GitFormat> = flags
            .iter()
            .filter_map(|flag| match flag {
                GitLogFlag::Format(format) => Some(*format),
                GitLogFlag::OneLine | GitLogFlag::NoPatch | GitLogFlag::NoColor => None,
            })
            .collect();
        let none = flags.contains(&GitLogFlag::NoPatch) || chosen.is_empty() && !patches;
        let formats = if none { None } else { Some(Formats::of(chosen.into_iter())?) };
        Ok(Self { one_line: flags.contains(&GitLogFlag::OneLine), formats })
    }

    /// Writes a commit's author, date and message.
    pub(super) fn head(&self, commit: &Commit<'_>, output: &mut Output) -> Result<(), GitError> {
        if self.one_line {
            let summary = commit.summary_bytes().map(String::from_utf8_lossy).unwrap_or_default();
            output.push_str(&format!("{} {summary}\n", short(commit.as_object())?));
            return Ok(());
        }
        output.push_str(&format!("commit {}\n", commit.id()));
        if commit.parent_count() > 1 {
            output.push_str("Merge:");
            for parent in commit.parents() {
                output.push_str(&format!(" {}", short(parent.as_object())?));
            }
            output.push_str("\n");
        }
        by("Author: ", &commit.author(), output);
        said(commit.message_bytes(), "    ", output);
        Ok(())
    }

    /// Writes the changes of a commit after its head, if the flags ask for them.
    pub(super) fn changes(
        &self,
        diff: Diff<'_>,
        withheld: &Withheld<'_>,
        output: &mut Output,
    ) -> Result<(), GitError> {
        let Some(formats) = &self.formats else { return Ok(()) };
        if diff.deltas().len() == 0 {
            return Ok(());
        }
        if !self.one_line {
            output.push_str("\n");
        }
        formats.write(&[diff], |delta| withheld.shows(delta), output)
    }

    /// Writes the separator of two commits.
    pub(super) fn gap(&self, output: &mut Output) {
        if !self.one_line {
            output.push_str("\n");
        }
    }
}

/// Returns the changes of a commit against its first parent. The first commit created everything.
pub(super) fn diff<'r>(
    repository: &'r Repository,
    commit: &Commit<'r>,
    mut options: DiffOptions,
    limit_to: &[&str],
) -> Result<Diff<'r>, GitError> {
    compare::limit(&mut options, limit_to);
    let before = if commit.parent_count() > 0 { Some(commit.parent(0)?.tree()?) } else { None };
    let diff = repository.diff_tree_to_tree(before.as_ref(), Some(&commit.tree()?), Some(&mut options))?;
    diff::with_renames(diff)
}

/// Writes `Author: ` or `Tagger: `, and the date.
pub(super) fn by(what: &str, who: &Signature<'_>, output: &mut Output) {
    let text = |bytes| shown(&String::from_utf8_lossy(bytes));
    output.push_str(&format!("{what}{} <{}>\n", text(who.name_bytes()), text(who.email_bytes())));
    output.push_str(&format!("Date:   {}\n", date(who.when())));
}

/// Writes a message after an empty line, with `indent` before each of its lines.
pub(super) fn said(message: &[u8], indent: &str, output: &mut Output) {
    let message = String::from_utf8_lossy(message);
    let message = message.trim_start_matches('\n').trim_end();
    if message.is_empty() {
        return;
    }
    output.push_str("\n");
    for line in message.lines() {
        output.push_str(&format!("{}\n", [indent, line].concat().trim_end()));
    }
}

/// Returns an id in as few digits as distinguish it from all others.
pub(super) fn short(object: &Object<'_>) -> Result<String, GitError> {
    Ok(String::from_utf8_lossy(&object.short_id()?).into_owned())
}

/// Formats a date as the git command does, in its author's time zone. An invalid date is the beginning of Unix time.
pub(super) fn date(time: Time) -> String {
    let offset = Offset::from_seconds(time.offset_minutes().saturating_mul(60)).unwrap_or(Offset::UTC);
    let at = Timestamp::from_second(time.seconds()).unwrap_or(Timestamp::UNIX_EPOCH);
    at.to_zoned(TimeZone::fixed(offset)).strftime("%a %b %-d %H:%M:%S %Y %z").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_in_the_zone_of_the_author() {
        for (seconds, minutes, shown) in [
            (0, 0, "Thu Jan 1 00:00:00 1970 +0000"),
            (1_700_000_000, -210, "Tue Nov 14 18:43:20 2023 -0330"),
            (1_700_000_000, 120, "Wed Nov 15 00:13:20 2023 +0200"),
            (i64::MAX, i32::MAX, "Thu Jan 1 00:00:00 1970 +0000"),
        ] {
            assert_eq!(date(Time::new(seconds, minutes)), shown);
        }
    }
}
