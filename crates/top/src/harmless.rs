//! Makes text of agents fit for cells of the screen.
//!
//! The crate `text` replaces characters that a terminal could obey. Here marks that take no cell are replaced as well
//! if there are many of them, or nothing that they could belong to: a terminal shows such marks over other lines, or not at all.

use std::fmt::Write as _;

use text::clean::{Shape, clean};
use unicode_width::UnicodeWidthChar as _;

/// Number of characters of a table's cell.
const CELL: usize = 200;
/// Number of marks that one character may have.
const MARKS: usize = 2;
/// Cells of a tab.
const TAB: usize = 4;

/// Returns foreign text for a cell of a table.
pub(crate) fn cell(text: &str) -> String {
    let end = text.char_indices().nth(CELL).map_or(text.len(), |(end, _)| end);
    let mut shown = with_marks(&clean(&text[..end], Shape::Line));
    if end < text.len() {
        shown.push('…');
    }
    shown
}

/// Returns one line of foreign text, with visible tabs.
pub(crate) fn line(text: &str) -> String {
    let cleaned = clean(text, Shape::Block);
    let mut out = String::with_capacity(cleaned.len());
    for part in cleaned.split_inclusive('\t') {
        match part.strip_suffix('\t') {
            Some(before) => {
                out.push_str(before);
                out.push('→');
                out.extend(std::iter::repeat_n(' ', TAB - 1));
            }
            None => out.push_str(part),
        }
    }
    with_marks(&out)
}

/// Returns the number of cells that a character takes, at most.
pub(crate) fn width(c: char) -> usize {
    // A selector can make the character before it wide.
    if c == '\u{fe0f}' { 1 } else { c.width().unwrap_or(1) }
}

fn with_marks(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // No mark may begin a text.
    let mut marks = MARKS;
    for c in text.chars() {
        if c.width() != Some(0) {
            marks = if c == ' ' { MARKS } else { 0 };
            out.push(c);
        } else if marks < MARKS {
            marks += 1;
            out.push(c);
        } else {
            let _ = write!(out, "<U+{:04X}>", u32::from(c));
        }
    }
    out
}

/// Divides a line into rows of at most `columns` cells. No character is left out.
pub(crate) fn wrap(line: &str, columns: usize) -> Vec<&str> {
    let columns = columns.max(2);
    let (mut rows, mut start, mut used) = (Vec::new(), 0, 0);
    for (at, c) in line.char_indices() {
        let wide = width(c);
        if used + wide > columns {
            rows.push(&line[start..at]);
            (start, used) = (at, 0);
        }
        used += wide;
    }
    rows.push(&line[start..]);
    rows
}

/// Cuts or fills a text to exactly `columns` cells.
pub(crate) fn fit(text: &str, columns: usize) -> String {
    let (mut out, mut used) = (String::with_capacity(columns), 0);
    for c in text.chars() {
        if used + width(c) > columns {
            break;
        }
        used += width(c);
        out.push(c);
    }
    out.extend(std::iter::repeat_n(' ', columns.saturating_sub(used)));
    out
}

/// Returns the number of cells that a text takes, at most.
pub(crate) fn columns(text: &str) -> usize {
    text.chars().map(width).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_bounded_and_never_begin_a_text() {
        assert_eq!(cell("e\u{301}"), "e\u{301}");
        assert_eq!(cell("\u{301}e"), "<U+0301>e");
        assert_eq!(cell(" \u{301}"), " <U+0301>");
        let flood = format!("a{}", "\u{301}".repeat(5));
        assert_eq!(cell(&flood), "a\u{301}\u{301}<U+0301><U+0301><U+0301>");
    }

    #[test]
    fn cells_are_one_short_line_without_control_characters() {
        assert_eq!(cell("a\nb\x1b[2J\u{202e}"), "a␊b␛[2J<U+202E>");
        assert_eq!(cell(&"x".repeat(300)).chars().count(), CELL + 1);
        assert_eq!(line("\tx\r"), "→   x␍");
    }

    #[test]
    fn every_character_of_a_line_is_in_a_row_that_fits() {
        for (text, columns) in [("", 5), ("abcdef", 2), ("漢字かな", 3), ("a\u{301}b☝\u{fe0f}c", 2)] {
            let rows = wrap(text, columns);
            assert_eq!(rows.concat(), text);
            assert!(rows.iter().all(|row| super::columns(row) <= columns.max(2)), "{rows:?}");
        }
        assert_eq!((fit("漢字", 3).as_str(), fit("ab", 4).as_str()), ("漢 ", "ab  "));
    }
}
