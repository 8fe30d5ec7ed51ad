//! git's measure of how much of a file survives a rename: bytes in chunks (lines, cut at 64 bytes) that both files
//! have, as a share of the larger file. The percentage is part of the output, so the arithmetic is git's to the bit (of 2.44
//! and later: before, an unterminated last line did not count).

use std::collections::HashMap;

/// The score of equal contents.
pub(super) const MAX_SCORE: u64 = 60_000;
const CHUNK: u32 = 64;
const BUCKETS: u32 = 107_927;

/// What is compared of a content.
pub(super) struct Fingerprint {
    size: u64,
    chunks: HashMap<u32, u64>,
}

impl Fingerprint {
    /// In text, the two characters that end a line count as one.
    pub(super) fn of(content: &[u8], is_text: bool) -> Self {
        Self { size: content.len() as u64, chunks: chunks(content, is_text) }
    }

    /// From 0 to [`MAX_SCORE`]; 0 as soon as the sizes alone rule `minimum` out.
    pub(super) fn score(&self, new: &Self, minimum: u64) -> u64 {
        let (larger, smaller) = (self.size.max(new.size), self.size.min(new.size));
        if new.size == 0 || larger * (MAX_SCORE - minimum) < (larger - smaller) * MAX_SCORE {
            return 0;
        }
        let kept: u64 =
            self.chunks.iter().map(|(hash, bytes)| *bytes.min(new.chunks.get(hash).unwrap_or(&0))).sum();
        kept * MAX_SCORE / larger
    }
}

/// Bytes by hash of their chunk.
fn chunks(content: &[u8], is_text: bool) -> HashMap<u32, u64> {
    let mut counts = HashMap::new();
    let (mut length, mut first, mut second) = (0_u32, 0_u32, 0_u32);
    for (index, byte) in content.iter().enumerate() {
        if is_text && *byte == b'\r' && content.get(index + 1) == Some(&b'\n') {
            continue;
        }
        let before = first;
        first = (first << 7) ^ (second >> 25);
        second = (second << 7) ^ (before >> 25);
        first = first.wrapping_add(u32::from(*byte));
        length += 1;
        if length >= CHUNK || *byte == b'\n' {
            *counts.entry(hash(first, second)).or_insert(0) += u64::from(length);
            (length, first, second) = (0, 0, 0);
        }
    }
    if length > 0 {
        *counts.entry(hash(first, second)).or_insert(0) += u64::from(length);
    }
    counts
}

fn hash(first: u32, second: u32) -> u32 {
    first.wrapping_add(second.wrapping_mul(0x61)) % BUCKETS
}

/// git's guess: no NUL in the beginning.
pub(crate) fn is_text(content: &[u8]) -> bool {
    const LOOK_AT: usize = 8000;
    !content[..content.len().min(LOOK_AT)].contains(&0)
}

#[cfg(test)]
mod tests {
    use super::{Fingerprint, MAX_SCORE};

    #[test]
    fn counts_bytes_of_common_lines() {
        let score = |old: &[u8], new: &[u8]| {
            Fingerprint::of(old, true).score(&Fingerprint::of(new, true), MAX_SCORE / 2)
        };
        assert_eq!(score(b"a\nb\nc\nd\n", b"a\nb\nc\nd\n"), MAX_SCORE);
        assert_eq!(score(b"a\nb\nc\nd\n", b"a\nb\nc\nx\n"), MAX_SCORE * 3 / 4);
        assert_eq!(score(b"a\n", b"b\n"), 0);
        assert_eq!(score(b"a\r\nb\r\n", b"a\nb\n"), MAX_SCORE * 2 / 3);
        assert_eq!(score(b"a\nb\nc\n", b"a\n"), 0, "too different in size");
        assert_eq!(score(b"", b""), 0);
    }
}
