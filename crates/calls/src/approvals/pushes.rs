//! Shows pushes of git to reviewers.
//!
//! Names of refs are those that the daemon has parsed. All else is an agent's: commits, files, and the answer of the process that has read
//! them. So each text is bounded, and made visible. A line of a diff has a sign, a space or a word of the diff before the text of a
//! file, and every other line of the agent's has a bar.

use std::fmt::Write as _;

use executor::{PushPreview, PushedCommit, UpdatePreview};
use redact::Redactor;
use runs::{PushQuestion, PushUpdate};
use serde_json::{Value, json};

use crate::quote::{quote, visible};

/// Most commits of an update that are shown.
const COMMITS: usize = 50;
/// Most remarks and unknown objects of an update that are shown.
const REMARKS: usize = 16;
/// Longest line of an agent's text, characters.
const LINE: usize = 500;
/// Most bytes of the diffs of a push, and of all other lines that agents have written.
const MOST: Left = Left { diffs: 256 * 1024, lines: 128 * 1024 };
/// Digits of an id that stand for it in a line.
const DIGITS: usize = 12;

/// Bytes that a preview may still have.
#[derive(Debug, Clone, Copy)]
struct Left {
    diffs: usize,
    lines: usize,
}

/// Returns the push as JSON, for programs and the record.
pub(super) fn json(push: &PushQuestion) -> Value {
    let updates = push.updates.iter().map(|update| {
        json!({
            "ref": update.name, "old": update.old, "new": update.new, "change": update.change.as_str(),
            "forced": update.is_forced,
        })
    });
    json!({
        "repository": push.repository,
        "updates": updates.collect::<Vec<_>>(),
        "atomic": push.is_atomic,
        "options": push.options,
    })
}

/// Writes the push in words, with its commits and its diff.
pub(super) fn describe(
    push: &PushQuestion,
    preview: Option<&PushPreview>,
    redactor: &Redactor,
    to: &mut String,
) {
    let _ = writeln!(
        to,
        "Consent is for exactly these refs and ids. The diffs are those of the run's own repository."
    );
    if push.is_atomic {
        to.push_str("Either all refs change or none.\n");
    }
    for option in &push.options {
        to.push_str("Option for the hooks of the server:\n");
        quote(to, &redactor.text(option).0);
    }
    let mut left = MOST;
    for (number, update) in push.updates.iter().enumerate() {
        head(update, to);
        match preview.and_then(|preview| preview.updates.get(number)) {
            Some(effects) => self::effects(effects, redactor, &mut left, to),
            None => {
                to.push_str("!! THE RUN'S REPOSITORY COULD NOT BE READ: nothing is known of this content.\n");
            }
        }
    }
}

/// Writes the ref and its ids.
fn head(update: &PushUpdate, to: &mut String) {
    let PushUpdate { name, old, new, change, is_forced } = update;
    let word = if *is_forced { "FORCED UPDATE" } else { change.as_str() };
    let name: String = name.chars().flat_map(visible).collect();
    let _ = write!(to, "\n{word} {name}\n  old {old}\n  new {new}\n");
    if *is_forced {
        to.push_str(
            "!! The new object is not known to come after the old one, so commits of the ref may be lost.\n",
        );
    }
}

fn effects(effects: &UpdatePreview, redactor: &Redactor, left: &mut Left, to: &mut String) {
    if !effects.unknown.is_empty() {
        to.push_str("!! UNKNOWN TO THE RUN'S REPOSITORY, so the content of this is not shown:\n");
        lines(&effects.unknown, REMARKS, false, redactor, left, to);
    }
    lines(&effects.remarks, REMARKS, false, redactor, left, to);
    commits("Commits that it gains", &effects.gained, effects.gains_more, redactor, left, to);
    commits("Commits that it loses", &effects.lost, effects.loses_more, redactor, left, to);
    if effects.diff.is_empty() && !effects.is_cut {
        return;
    }
    to.push_str("Changes:\n");
    // Secrets are hidden in the whole text, because some have several lines.
    let diff = redactor.whole(&effects.diff).0;
    let mut is_cut = effects.is_cut;
    for line in diff.strip_suffix('\n').unwrap_or(&diff).split('\n') {
        let from = to.len();
        to.extend(line.chars().flat_map(visible));
        to.push('\n');
        let length = to.len() - from;
        if length > left.diffs {
            to.truncate(from);
            (left.diffs, is_cut) = (0, true);
            break;
        }
        left.diffs -= length;
    }
    if is_cut {
        to.push_str("!! THE DIFF IS NOT WHOLE: a part of it is left out.\n");
    }
}

fn commits(
    title: &str,
    commits: &[PushedCommit],
    has_more: bool,
    redactor: &Redactor,
    left: &mut Left,
    to: &mut String,
) {
    if commits.is_empty() {
        return;
    }
    let _ = writeln!(to, "{title}, the nearest first:");
    let line = |commit: &PushedCommit| {
        let PushedCommit { id, author, date, subject } = commit;
        let id: String = id.chars().take(DIGITS).collect();
        format!("{id} {date} {}: {}", bounded(author), bounded(subject))
    };
    let texts: Vec<String> = commits.iter().take(COMMITS + 1).map(line).collect();
    lines(&texts, COMMITS, has_more, redactor, left, to);
}

/// Writes lines that an agent may have written, and says if there are more.
fn lines(
    texts: &[String],
    most: usize,
    has_more: bool,
    redactor: &Redactor,
    left: &mut Left,
    to: &mut String,
) {
    let mut has_more = has_more || texts.len() > most;
    for text in texts.iter().take(most) {
        let from = to.len();
        quote(to, &bounded(&redactor.text(text).0));
        let length = to.len() - from;
        if length > left.lines {
            to.truncate(from);
            (left.lines, has_more) = (0, true);
            break;
        }
        left.lines -= length;
    }
    if has_more {
        to.push_str("!! and more, which is not shown.\n");
    }
}

/// Returns the beginning of the first line of a text.
fn bounded(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(LINE).collect()
}

#[cfg(test)]
#[path = "pushes_tests.rs"]
mod tests;
