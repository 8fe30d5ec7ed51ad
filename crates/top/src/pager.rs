//! A text that is read on the screen, and the part of it that was shown.

use std::time::{Duration, Instant};

use text::diff::{Hunk, Kind};

use crate::harmless;

/// Time that a text is on the screen before a decision counts. A key that was typed for another screen is not consent.
const GLANCE: Duration = Duration::from_secs(1);

/// A text on the screen.
#[derive(Debug)]
pub(crate) struct Pager {
    pub(crate) title: String,
    lines: Vec<Shown>,
    /// Columns for which the rows were made.
    columns: usize,
    rows: Vec<Row>,
    /// First row on the screen.
    top: usize,
    /// Rows that were on the screen at last.
    height: usize,
    opened: Instant,
}

#[derive(Debug)]
struct Shown {
    text: String,
    /// Kind of the line, if the text is a diff.
    kind: Kind,
    seen: bool,
}

#[derive(Debug)]
struct Row {
    line: usize,
    text: String,
    kind: Kind,
    seen: bool,
}

impl Pager {
    /// Creates a pager of foreign text.
    pub(crate) fn new(title: String, text: &str) -> Self {
        let mut hunk = Hunk::default();
        let lines = text.split('\n').map(|line| {
            let kind = hunk.kind_of(line);
            Shown { text: harmless::line(line), kind, seen: false }
        });
        let mut lines: Vec<_> = lines.collect();
        if lines.last().is_some_and(|line| line.text.is_empty()) && lines.len() > 1 {
            lines.pop();
        }
        Self { title, lines, columns: 0, rows: Vec::new(), top: 0, height: 0, opened: Instant::now() }
    }

    /// Returns the rows for a screen of this size with the kinds of their lines, and remembers that they were shown.
    pub(crate) fn show(&mut self, columns: usize, height: usize) -> impl Iterator<Item = (&str, Kind)> {
        self.fit(columns);
        self.height = height;
        self.top = self.top.min(self.last_top());
        let end = (self.top + height).min(self.rows.len());
        for row in &mut self.rows[self.top..end] {
            row.seen = true;
        }
        self.rows[self.top..end].iter().map(|row| (row.text.as_str(), row.kind))
    }

    /// Makes the rows anew for another width. A line of which a row was not shown yet counts as not shown.
    fn fit(&mut self, columns: usize) {
        if self.columns == columns {
            return;
        }
        let at = self.rows.get(self.top).map_or(0, |row| row.line);
        self.keep_seen();
        let rows = self.lines.iter().enumerate().flat_map(|(line, shown)| {
            let Shown { kind, seen, .. } = *shown;
            harmless::wrap(&shown.text, columns).into_iter().map(move |text| Row {
                line,
                text: text.to_owned(),
                kind,
                seen,
            })
        });
        self.rows = rows.collect();
        self.columns = columns;
        self.top = self.rows.iter().position(|row| row.line == at).unwrap_or(0);
    }

    fn keep_seen(&mut self) {
        if self.rows.is_empty() {
            return;
        }
        for line in &mut self.lines {
            line.seen = true;
        }
        for row in self.rows.iter().filter(|row| !row.seen) {
            if let Some(line) = self.lines.get_mut(row.line) {
                line.seen = false;
            }
        }
    }

    fn last_top(&self) -> usize {
        self.rows.len().saturating_sub(self.height.max(1))
    }

    /// Moves by so many rows.
    pub(crate) fn scroll(&mut self, rows: isize) {
        self.top = self.top.saturating_add_signed(rows).min(self.last_top());
    }

    /// Moves by a screen, with one row of the last one.
    pub(crate) fn page(&mut self, forward: bool) {
        let rows = isize::try_from(self.height.saturating_sub(1).max(1)).unwrap_or(1);
        self.scroll(if forward { rows } else { -rows });
    }

    pub(crate) fn go_to_start(&mut self) {
        self.top = 0;
    }

    pub(crate) fn go_to_end(&mut self) {
        self.top = self.last_top();
    }

    /// Returns the number of rows that were not on the screen yet.
    pub(crate) fn unseen(&self) -> usize {
        if self.rows.is_empty() { self.lines.len() } else { self.rows.iter().filter(|row| !row.seen).count() }
    }

    /// Returns why the reader cannot have read all of it, or `None` once that is possible.
    pub(crate) fn not_read(&self, now: Instant) -> Option<String> {
        match self.unseen() {
            0 if self.is_new(now) => Some("read it first".to_owned()),
            0 => None,
            1 => Some("one line was not shown yet: go on with the space bar".to_owned()),
            more => Some(format!("{more} lines were not shown yet: go on with the space bar")),
        }
    }

    /// Returns true if the text has just appeared, so that a key may have been meant for the one before.
    pub(crate) fn is_new(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.opened) < GLANCE
    }

    /// Describes the part that is on the screen, such as `3-20 of 64`.
    pub(crate) fn part(&self) -> String {
        let end = (self.top + self.height).min(self.rows.len());
        format!("{}-{end} of {}", (self.top + 1).min(end), self.rows.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pager: &mut Pager, columns: usize, height: usize) -> Vec<String> {
        pager.show(columns, height).map(|(row, _)| row.to_owned()).collect()
    }

    #[test]
    fn consent_needs_each_line_on_the_screen_and_a_moment() {
        let mut pager = Pager::new(String::new(), "1\n2\n3\n4\n5\n6\n");
        let later = Instant::now() + GLANCE + GLANCE;
        assert!(pager.not_read(later).is_some(), "nothing was drawn");
        assert_eq!(shown(&mut pager, 10, 2), ["1", "2"]);
        pager.go_to_end();
        assert_eq!(shown(&mut pager, 10, 2), ["5", "6"]);
        assert_eq!(pager.not_read(later).unwrap(), "2 lines were not shown yet: go on with the space bar");
        pager.go_to_start();
        pager.page(true);
        assert_eq!(shown(&mut pager, 10, 2), ["2", "3"]);
        assert_eq!(pager.unseen(), 1);
        pager.scroll(1);
        assert_eq!(shown(&mut pager, 10, 2), ["3", "4"]);
        assert_eq!(pager.not_read(later), None);
        assert_eq!(pager.not_read(pager.opened).unwrap(), "read it first");
    }

    #[test]
    fn a_line_of_which_a_part_was_shown_is_not_shown_after_a_resize() {
        let mut pager = Pager::new(String::new(), "abcdef\nx");
        assert_eq!(shown(&mut pager, 2, 2), ["ab", "cd"]);
        assert_eq!(shown(&mut pager, 3, 1), ["abc"]);
        assert_eq!(pager.unseen(), 2, "the other half of the first line, and the second line");
        pager.scroll(1);
        assert_eq!(shown(&mut pager, 3, 1), ["def"]);
        pager.scroll(1);
        assert_eq!(shown(&mut pager, 3, 1), ["x"]);
        assert_eq!(shown(&mut pager, 2, 1), ["x"]);
        assert_eq!(pager.unseen(), 0, "lines that were shown whole stay so");
        assert_eq!(pager.part(), "4-4 of 4");
    }

    #[test]
    fn each_row_has_the_kind_of_its_line() {
        let mut pager = Pager::new(String::new(), "--- a\n@@ -1 +1 @@\n--- b+c\n+++ d\n");
        let rows: Vec<_> = pager.show(5, 9).map(|(row, kind)| (row.to_owned(), kind)).collect();
        let row = |text: &str, kind| (text.to_owned(), kind);
        assert_eq!(
            rows,
            [
                row("--- a", Kind::Name),
                row("@@ -1", Kind::Place),
                row(" +1 @", Kind::Place),
                row("@", Kind::Place),
                row("--- b", Kind::Gone),
                row("+c", Kind::Gone),
                row("+++ d", Kind::Come),
            ]
        );
    }

    #[test]
    fn a_text_cannot_leave_its_lines() {
        let mut pager = Pager::new(String::new(), "a\x1b[2J\r\nb\u{202e}\n");
        assert_eq!(shown(&mut pager, 20, 5), ["a␛[2J␍", "b<U+202E>"]);
    }
}
