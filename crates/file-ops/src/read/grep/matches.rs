//! Receives a file's lines from the searcher and gives every match its context, even if contexts overlap.

use std::collections::VecDeque;
use std::io;

use grep_searcher::{Searcher, Sink, SinkContext, SinkFinish, SinkMatch};
use operations::{Grep, GrepMatch};

/// Most characters of a line that are shown.
const MAX_LINE_CHARS: usize = 400;

/// Matches of one file.
pub(super) struct Matches<'a> {
    path: &'a str,
    before: usize,
    after: usize,
    /// Number of matches that are still wanted.
    left: usize,
    /// Bytes that still fit into the answer.
    space: usize,
    /// Lines before the current one without a gap, at most `before`.
    recent: VecDeque<String>,
    pub(super) found: Vec<GrepMatch>,
    /// Index of the first match that may still get lines after it.
    open: usize,
    /// True if there was a match beyond the wanted number.
    pub(super) more: bool,
    /// True if a NUL byte was seen.
    pub(super) binary: bool,
}

impl<'a> Matches<'a> {
    /// Prepares for a file. `space` is the number of bytes that fit into an answer.
    pub(super) fn new(path: &'a str, grep: &Grep, space: usize) -> Self {
        let (before, after) = (grep.before as usize, grep.after as usize);
        let left = if grep.one_per_file { 1 } else { grep.max_matches as usize };
        let (recent, found) = (VecDeque::new(), Vec::new());
        Self { path, before, after, left, space, recent, found, open: 0, more: false, binary: false }
    }

    /// Adds the line as context to every earlier match that still needs some.
    fn give(&mut self, line: &str) {
        for found in &mut self.found[self.open..] {
            if found.after.len() < self.after {
                found.after.push(line.to_owned());
                self.space = self.space.saturating_sub(line.len());
            }
        }
        while self.found.get(self.open).is_some_and(|found| found.after.len() >= self.after) {
            self.open += 1;
        }
    }

    fn remember(&mut self, line: String) {
        if self.before > 0 {
            if self.recent.len() == self.before {
                self.recent.pop_front();
            }
            self.recent.push_back(line);
        }
    }

    /// Returns true if the searcher should continue.
    fn go_on(&self) -> bool {
        !self.more || self.open < self.found.len()
    }
}

impl Sink for Matches<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, line: &SinkMatch<'_>) -> io::Result<bool> {
        let text = shown(line.bytes());
        self.give(&text);
        if self.found.len() >= self.left || self.space == 0 {
            self.more = true;
        }
        if !self.more {
            let before = Vec::from(self.recent.clone());
            let size = self.path.len() + text.len() + before.iter().map(String::len).sum::<usize>();
            self.space = self.space.saturating_sub(size);
            self.found.push(GrepMatch {
                path: self.path.to_owned(),
                line: line.line_number().unwrap_or_default(),
                text: text.clone(),
                before,
                after: Vec::new(),
            });
            if self.after == 0 {
                self.open = self.found.len();
            }
        }
        self.remember(text);
        Ok(self.go_on())
    }

    fn context(&mut self, _: &Searcher, line: &SinkContext<'_>) -> io::Result<bool> {
        let text = shown(line.bytes());
        self.give(&text);
        self.remember(text);
        Ok(self.go_on())
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        self.recent.clear();
        self.open = self.found.len();
        Ok(self.go_on())
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> io::Result<()> {
        self.binary = finish.binary_byte_offset().is_some();
        Ok(())
    }
}

/// Sink that records only the first match.
#[derive(Debug, Default)]
pub(super) struct First {
    pub(super) found: bool,
    /// True if a NUL byte was seen before the match.
    pub(super) binary: bool,
}

impl Sink for First {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, _: &SinkMatch<'_>) -> io::Result<bool> {
        self.found = true;
        Ok(false)
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> io::Result<()> {
        self.binary = finish.binary_byte_offset().is_some();
        Ok(())
    }
}

/// Returns the line without its end, clipped.
fn shown(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // A character has at most four bytes; an invalid byte is shown as one character.
    let text = String::from_utf8_lossy(&line[..line.len().min(4 * MAX_LINE_CHARS + 4)]);
    match text.char_indices().nth(MAX_LINE_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_clipped_at_characters() {
        assert_eq!(shown(b"a\r\n"), "a");
        assert_eq!(shown("€".repeat(400).as_bytes()), "€".repeat(400));
        assert_eq!(shown("€".repeat(401).as_bytes()), "€".repeat(400) + "…");
        assert_eq!(shown(b"caf\xe9\n"), "caf\u{fffd}");
    }
}
