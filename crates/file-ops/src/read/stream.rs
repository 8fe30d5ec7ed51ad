//! One pass over a file: hash, lines and the requested part, in constant memory for any file size.

use std::io::{self, Read};
use std::ops::Range;

use memchr::memchr_iter;
use operations::{Digest, ReadPart};

use crate::cancel::{Cancel, Stopped};

const BLOCK: usize = 128 * 1024;

/// Result of one pass.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Scan {
    pub(super) size: u64,
    pub(super) lines: u64,
    pub(super) sha256: String,
    /// Beginning of the requested part, at most the cap.
    pub(super) kept: Vec<u8>,
    /// Bytes of the file that belong to the requested part, kept or not.
    ///
    /// If the part begins beyond the end of the file, the range is empty and its start is where the part would begin.
    pub(super) part: Range<u64>,
}

/// Reason for which there is no scan.
#[derive(Debug)]
pub(super) enum ScanError {
    Stopped { stopped: Stopped, read: u64 },
    Io(io::Error),
}

/// Reads `file` to its end, which is expected after `size` bytes.
pub(super) fn scan(
    mut file: impl Read,
    size: u64,
    part: ReadPart,
    cap: usize,
    cancel: &Cancel,
) -> Result<Scan, ScanError> {
    let mut selection = Selection::new(part, cap);
    let mut digest = Digest::default();
    // Most files are small, and zeroing a block costs more than reading them.
    let mut block = vec![0; usize::try_from(size).unwrap_or(BLOCK).clamp(1, BLOCK)];
    let (mut size, mut newlines, mut last) = (0_u64, 0_u64, b'\n');
    loop {
        cancel.check().map_err(|stopped| ScanError::Stopped { stopped, read: size })?;
        let read = match file.read(&mut block) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(ScanError::Io(error)),
        };
        let bytes = &block[..read];
        digest.update(bytes);
        newlines += selection.take(bytes, size, newlines);
        size += read as u64;
        last = bytes[read - 1];
    }
    let lines = newlines + u64::from(last != b'\n');
    let part = selection.finish(size);
    Ok(Scan { size, lines, sha256: digest.hex(), kept: selection.kept, part })
}

/// The requested part, as far as it is known.
struct Selection {
    kept: Vec<u8>,
    cap: usize,
    /// First byte: known at the start for bytes, found during the pass for lines.
    start: Option<u64>,
    end: Option<u64>,
    /// 0-based lines after whose newline the part starts and ends.
    start_after: Option<u64>,
    end_after: Option<u64>,
}

impl Selection {
    fn new(part: ReadPart, cap: usize) -> Self {
        let unbounded =
            Self { kept: Vec::new(), cap, start: Some(0), end: None, start_after: None, end_after: None };
        match part {
            ReadPart::Whole => unbounded,
            ReadPart::Bytes { offset, limit } => Self {
                start: Some(offset),
                end: limit.map(|limit| offset.saturating_add(limit)),
                ..unbounded
            },
            ReadPart::Lines { first, last } => Self {
                start: (first <= 1).then_some(0),
                start_after: first.checked_sub(1).filter(|&lines| lines > 0),
                end_after: last,
                ..unbounded
            },
        }
    }

    /// Keeps the bytes that belong to the part, and returns the number of newlines in `bytes`.
    fn take(&mut self, bytes: &[u8], at: u64, before: u64) -> u64 {
        let mut newlines = 0;
        for position in memchr_iter(b'\n', bytes) {
            newlines += 1;
            let next = at + position as u64 + 1;
            if Some(before + newlines) == self.start_after {
                self.start = Some(next);
            }
            if Some(before + newlines) == self.end_after {
                self.end = Some(next);
            }
        }
        if let Some(start) = self.start {
            let inside = |position: u64| {
                usize::try_from(position.saturating_sub(at)).unwrap_or(usize::MAX).min(bytes.len())
            };
            let wanted = &bytes[inside(start)..self.end.map_or(bytes.len(), inside).max(inside(start))];
            let space = self.cap - self.kept.len();
            self.kept.extend_from_slice(&wanted[..wanted.len().min(space)]);
        }
        newlines
    }

    fn finish(&self, size: u64) -> Range<u64> {
        let start = self.start.unwrap_or(size);
        let end = self.end.unwrap_or(size).min(size);
        start..end.max(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time, so that every boundary is crossed.
    struct Drip<'a>(&'a [u8]);

    impl Read for Drip<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
            into[0] = *first;
            self.0 = rest;
            Ok(1)
        }
    }

    #[test]
    fn parts_are_the_same_in_one_block_and_byte_by_byte() {
        let text = b"one\ntwo\r\n\nfour";
        let lines = |first, last| ReadPart::Lines { first, last };
        let bytes = |offset, limit| ReadPart::Bytes { offset, limit };
        for (part, expected, range) in [
            (ReadPart::Whole, &text[..], 0..14),
            (lines(1, Some(1)), b"one\n", 0..4),
            (lines(2, Some(3)), b"two\r\n\n", 4..10),
            (lines(3, None), b"\nfour", 9..14),
            (lines(4, Some(9)), b"four", 10..14),
            (lines(5, None), b"", 14..14),
            (bytes(2, Some(3)), b"e\nt", 2..5),
            (bytes(12, None), b"ur", 12..14),
            (bytes(3, Some(0)), b"", 3..3),
            (bytes(99, Some(1)), b"", 99..99),
        ] {
            let whole = scan(&text[..], 14, part, 100, &Cancel::default()).unwrap();
            assert_eq!((whole.kept.as_slice(), whole.part.clone()), (expected, range), "{part:?}");
            assert_eq!((whole.size, whole.lines), (14, 4));
            assert_eq!(scan(Drip(text), 14, part, 100, &Cancel::default()).unwrap(), whole, "{part:?}");
        }
    }

    #[test]
    fn kept_content_is_capped() {
        let scan = scan(&b"abcdef"[..], 6, ReadPart::Whole, 4, &Cancel::default()).unwrap();
        assert_eq!((scan.kept.as_slice(), scan.part), (&b"abcd"[..], 0..6));
    }

    #[test]
    fn a_last_line_without_newline_counts() {
        for (text, lines) in [("", 0), ("\n", 1), ("a", 1), ("a\n", 1), ("a\nb", 2)] {
            let found = scan(text.as_bytes(), 0, ReadPart::Whole, 9, &Cancel::default()).unwrap();
            assert_eq!(found.lines, lines, "{text:?}");
        }
    }
}
