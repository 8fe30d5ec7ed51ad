//! Applies an edit to a text: pure, so that it can be tested against the standard library.
//!
//! Only the bytes of the change differ afterwards. A byte order mark, line endings, and the presence or absence of the last newline stay.
//! A model writes `\n` for any file. So in a file whose lines all end in `\r\n`, a `\n` in the edit means `\r\n`, unless the edit has a
//! `\r` itself. If line endings are mixed, the exact text is tried first.

use super::nearest::{Nearest, nearest};
use super::newline::{Newlines, line_numbers};

/// Most line numbers that a failure names.
const MAX_LINES: usize = 100;
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Text after the change.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) text: String,
    /// Number of passages that were changed.
    pub(super) replacements: u32,
}

/// Reason for which the change does not fit the text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mismatch {
    /// The text to replace does not occur.
    Absent(Nearest),
    /// The text to replace occurs more than once.
    Ambiguous {
        count: usize,
        /// 1-based lines of the first matches.
        lines: Vec<u64>,
    },
    /// The line to insert after does not exist.
    NoSuchLine { lines: u64 },
    /// The result would be longer than `most`.
    TooLong { size: u64 },
}

/// Replaces `old` if it occurs exactly once, or replaces every occurrence.
pub(super) fn replace(
    text: &str,
    old: &str,
    new: &str,
    everywhere: bool,
    most: u64,
) -> Result<Changed, Mismatch> {
    let newlines = Newlines::of(text);
    let converts = !old.contains('\r') && !new.contains('\r');
    let in_crlf = || (Newlines::Crlf.fit(old), Newlines::Crlf.fit(new));
    let (mut from, mut to) =
        if newlines == Newlines::Crlf && converts { in_crlf() } else { (old.to_owned(), new.to_owned()) };
    let mut count = text.matches(&from).count();
    if count == 0 && newlines == Newlines::Mixed && converts {
        (from, to) = in_crlf();
        count = text.matches(&from).count();
    }
    if count == 0 {
        return Err(Mismatch::Absent(nearest(text, old)));
    }
    if !everywhere {
        unique(text, &from, count)?;
    }
    let size = (text.len() - count * from.len()) as u64 + count as u64 * to.len() as u64;
    if size > most {
        return Err(Mismatch::TooLong { size });
    }
    Ok(Changed { text: text.replace(&from, &to), replacements: u32::try_from(count).unwrap_or(u32::MAX) })
}

/// Refuses several matches. Two that overlap are ambiguous as well, although replacing would see only one.
fn unique(text: &str, from: &str, count: usize) -> Result<(), Mismatch> {
    let mut starts: Vec<usize> = text.match_indices(from).map(|(start, _)| start).take(MAX_LINES).collect();
    let mut count = count;
    if let [only] = starts[..] {
        let next = only + text[only..].chars().next().map_or(1, char::len_utf8);
        if let Some(overlapping) = text[next..].find(from) {
            starts.push(next + overlapping);
            count += 1;
        }
    }
    if count == 1 { Ok(()) } else { Err(Mismatch::Ambiguous { count, lines: line_numbers(text, &starts) }) }
}

/// Inserts `added` after line `after`, as separate lines.
pub(super) fn insert(text: &str, after: u64, added: &str, most: u64) -> Result<Changed, Mismatch> {
    let newlines = Newlines::of(text);
    let mut added = newlines.fit(added);
    let Some(position) = end_of_line(text, after) else {
        return Err(Mismatch::NoSuchLine { lines: text.split_inclusive('\n').count() as u64 });
    };
    let (before, behind) = text.split_at(position);
    if !behind.is_empty() && !added.ends_with('\n') {
        added.push_str(newlines.as_str());
    }
    if !before.is_empty() && before != BYTE_ORDER_MARK && !before.ends_with('\n') {
        added.insert_str(0, newlines.as_str());
    }
    let size = (text.len() + added.len()) as u64;
    if size > most {
        return Err(Mismatch::TooLong { size });
    }
    Ok(Changed { text: [before, &added, behind].concat(), replacements: 1 })
}

/// Returns the offset after line `line` and its newline. A byte order mark stays before everything.
fn end_of_line(text: &str, line: u64) -> Option<usize> {
    let Some(index) = line.checked_sub(1) else {
        return Some(if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 });
    };
    let mut end = 0;
    let mut lines = text.split_inclusive('\n').map(|line| {
        end += line.len();
        end
    });
    lines.nth(usize::try_from(index).ok()?)
}
