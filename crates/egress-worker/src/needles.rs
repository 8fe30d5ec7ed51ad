//! Finds several byte strings in a stream, by the algorithm of Knuth, Morris and Pratt for each of them.
//!
//! An automaton for all strings at once would be faster. This one keeps the strings in memory that is wiped, and it knows how many
//! bytes at the end of a piece may be the beginning of a string.

use zeroize::Zeroizing;

/// The byte strings to find.
pub(crate) struct Needles {
    needles: Vec<Needle>,
    /// True for each byte that a string begins with.
    begins: Box<[bool; 256]>,
}

struct Needle {
    text: Zeroizing<Vec<u8>>,
    /// For each length of a matched part: the length of its longest proper prefix that is also its suffix.
    borders: Vec<usize>,
}

/// The position within a stream.
pub(crate) struct Position {
    /// For each string: the length of its beginning that the stream ends with.
    matched: Vec<usize>,
}

/// An occurrence of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Occurrence {
    /// Index of the string.
    pub(crate) index: usize,
    /// Length of the string.
    pub(crate) length: usize,
    /// Index of the byte after the occurrence, in the piece that completes it.
    pub(crate) end: usize,
}

impl Needles {
    /// An empty string keeps its index and is never found.
    pub(crate) fn new(texts: Vec<Zeroizing<Vec<u8>>>) -> Self {
        let mut begins = Box::new([false; 256]);
        for first in texts.iter().filter_map(|text| text.first()) {
            begins[usize::from(*first)] = true;
        }
        Self { needles: texts.into_iter().map(Needle::new).collect(), begins }
    }

    /// Returns the position at the beginning of a stream.
    pub(crate) fn start(&self) -> Position {
        Position { matched: vec![0; self.needles.len()] }
    }

    /// Returns the length of the longest string.
    pub(crate) fn longest(&self) -> usize {
        self.needles.iter().map(|needle| needle.text.len()).max().unwrap_or_default()
    }

    /// Reads the next piece of a stream. Reports every occurrence that ends in it, also those that overlap.
    pub(crate) fn scan(&self, position: &mut Position, piece: &[u8], mut found: impl FnMut(Occurrence)) {
        let mut is_idle = position.longest() == 0;
        let mut at = 0;
        loop {
            let rest = piece.get(at..).unwrap_or_default();
            let skipped = if is_idle { rest.iter().position(|byte| self.begins(*byte)) } else { Some(0) };
            let Some(skipped) = skipped else { return };
            let Some(byte) = rest.get(skipped) else { return };
            at += skipped + 1;
            is_idle = true;
            for (index, (needle, matched)) in self.needles.iter().zip(&mut position.matched).enumerate() {
                *matched = needle.step(*matched, *byte);
                if *matched > 0 && *matched == needle.text.len() {
                    found(Occurrence { index, length: *matched, end: at });
                    *matched = needle.border(*matched);
                }
                is_idle &= *matched == 0;
            }
        }
    }

    fn begins(&self, byte: u8) -> bool {
        self.begins[usize::from(byte)]
    }
}

impl Needle {
    fn new(text: Zeroizing<Vec<u8>>) -> Self {
        let mut needle = Self { text, borders: Vec::new() };
        let mut border = 0;
        for at in 0..needle.text.len() {
            // The part of length 1 has no proper prefix but the empty one.
            if at > 0 {
                border = needle.step(border, needle.text[at]);
            }
            needle.borders.push(border);
        }
        needle
    }

    /// Returns the length of the beginning that a stream ends with after one more byte. `matched` is the length before it.
    fn step(&self, mut matched: usize, byte: u8) -> usize {
        loop {
            if self.text.get(matched) == Some(&byte) {
                return matched + 1;
            }
            if matched == 0 {
                return 0;
            }
            matched = self.border(matched);
        }
    }

    fn border(&self, matched: usize) -> usize {
        matched.checked_sub(1).and_then(|at| self.borders.get(at)).copied().unwrap_or_default()
    }
}

impl Position {
    /// Returns the number of bytes at the end of the stream that may be the beginning of a string.
    pub(crate) fn longest(&self) -> usize {
        self.matched.iter().copied().max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn needles(texts: &[&[u8]]) -> Needles {
        Needles::new(texts.iter().map(|text| Zeroizing::new(text.to_vec())).collect())
    }

    fn occurrences(needles: &Needles, bytes: &[u8]) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        needles.scan(&mut needles.start(), bytes, |one| found.push((one.end, one.index)));
        found
    }

    #[test]
    fn occurrences_that_overlap_are_all_found() {
        let needles = needles(&[b"aba", b"ba", b""]);
        assert_eq!(occurrences(&needles, b"xababa"), [(4, 0), (4, 1), (6, 0), (6, 1)]);
    }

    #[test]
    fn the_end_of_a_piece_is_held_only_while_it_may_begin_a_string() {
        let needles = needles(&[b"abcabd", b"bcx"]);
        let mut position = needles.start();
        for (piece, longest) in
            [("zab", 2), ("ca", 4), ("b", 5), ("c", 3), ("y", 0), ("\n\n", 0), ("abcabd", 0)]
        {
            needles.scan(&mut position, piece.as_bytes(), |_| ());
            assert_eq!(position.longest(), longest, "{piece}");
        }
    }

    proptest! {
        #[test]
        fn the_same_occurrences_are_found_as_by_comparing_everywhere(
            texts in prop::collection::vec("[ab]{1,5}", 1..5),
            bytes in "[abc]{0,60}",
        ) {
            let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
            let mut expected = Vec::new();
            for end in 0..=bytes.len() {
                for (index, text) in texts.iter().enumerate() {
                    if bytes.as_bytes()[..end].ends_with(text) {
                        expected.push((end, index));
                    }
                }
            }
            prop_assert_eq!(occurrences(&needles(&texts), bytes.as_bytes()), expected);
        }
    }
}
