//! Guesses what a model meant when its text does not occur: the same text except for white space, or similar lines.
//!
//! Time is linear in the file, for any file and text.

use std::fmt;

use text::{Shape, excerpt_of};

use super::newline::line_numbers;

const MAX_CANDIDATES: usize = 3;
/// Bytes of a line that are compared and shown.
const MAX_COMPARED: usize = 400;
const MAX_SHOWN_CHARS: usize = 160;
/// Least similarity of a line that is worth showing, of 1000.
const LIKE: usize = 400;

/// Closest matches.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Nearest {
    /// First and last line of each match that differs only in white space.
    Whitespace(Vec<(u64, u64)>),
    /// Lines similar to the longest line of the text, the best first.
    Lines(Vec<Candidate>),
}

/// Similar line of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) line: u64,
    pub(super) text: String,
}

/// Searches `text` for passages similar to `old`, which it does not contain.
pub(super) fn nearest(text: &str, old: &str) -> Nearest {
    let spans = but_for_whitespace(text, old);
    if spans.is_empty() { Nearest::Lines(similar(text, old)) } else { Nearest::Whitespace(spans) }
}

fn but_for_whitespace(text: &str, old: &str) -> Vec<(u64, u64)> {
    let squeeze = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    let (squeezed, wanted) = (squeeze(text), squeeze(old));
    if wanted.is_empty() {
        return Vec::new();
    }
    // Offsets of the first and the last character of each match, without white space.
    let last = wanted.len() - wanted.chars().next_back().map_or(0, char::len_utf8);
    let ends: Vec<usize> = squeezed
        .match_indices(&wanted)
        .take(MAX_CANDIDATES)
        .flat_map(|(start, _)| [start, start + last])
        .collect();
    let mut wanted = ends.iter().copied().peekable();
    let (mut positions, mut at) = (Vec::new(), 0);
    for (position, c) in text.char_indices().filter(|(_, c)| !c.is_whitespace()) {
        while wanted.next_if_eq(&at).is_some() {
            positions.push(position);
        }
        at += c.len_utf8();
    }
    line_numbers(text, &positions).chunks_exact(2).map(|span| (span[0], span[1])).collect()
}

fn similar(text: &str, old: &str) -> Vec<Candidate> {
    let Some(anchor) = old.lines().map(str::trim).max_by_key(|line| line.len()) else { return Vec::new() };
    let mut pairs = Pairs::of(anchor);
    let mut best: Vec<(usize, u64, &str)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let likeness = pairs.likeness(line.trim());
        if likeness >= LIKE {
            best.push((likeness, number, line));
            // The sort is stable: of equal lines the first stays.
            best.sort_by_key(|&(likeness, ..)| std::cmp::Reverse(likeness));
            best.truncate(MAX_CANDIDATES);
        }
    }
    best.into_iter()
        .map(|(_, line, text)| Candidate { line, text: excerpt_of(text, Shape::Block, MAX_SHOWN_CHARS) })
        .collect()
}

/// Pairs of neighbouring bytes of a line, for Dice's coefficient.
struct Pairs {
    count: Vec<u16>,
    total: usize,
}

impl Pairs {
    fn of(line: &str) -> Self {
        let mut pairs = Self { count: vec![0; 1 << 16], total: 0 };
        for pair in pairs_of(line) {
            pairs.count[pair] += 1;
            pairs.total += 1;
        }
        pairs
    }

    /// Returns the similarity of `line` to this one, of 1000.
    fn likeness(&mut self, line: &str) -> usize {
        let (mut common, mut total) = (Vec::new(), 0);
        for pair in pairs_of(line) {
            total += 1;
            if self.count[pair] > 0 {
                self.count[pair] -= 1;
                common.push(pair);
            }
        }
        for &pair in &common {
            self.count[pair] += 1;
        }
        (2000 * common.len()).checked_div(self.total + total).unwrap_or(0)
    }
}

fn pairs_of(line: &str) -> impl Iterator<Item = usize> {
    let bytes = line.as_bytes();
    let bytes = &bytes[..bytes.len().min(MAX_COMPARED)];
    bytes.windows(2).map(|pair| usize::from(pair[0]) << 8 | usize::from(pair[1]))
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.text)
    }
}
