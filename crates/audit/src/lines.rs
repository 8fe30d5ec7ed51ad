//! Reads the lines of a segment.
//!
//! It reads by position and never through a shared cursor. It never keeps an unfinished line: if the tail is repaired while a reader is in
//! it, the reader reads the line again from its beginning.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::canonical::{MAX_LINE, sequence_of};

/// A source of bytes that can be read by position.
pub(crate) trait ReadAt {
    /// Reads some bytes at `offset`. Returns 0 if there are none.
    fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// A line that ends in a newline: its position in the segment, and its range in the buffer without the newline.
    Line { offset: u64, at: Range<usize> },
    /// More bytes than a line may have, without a newline.
    TooLong { offset: u64 },
    /// The segment ends in `bytes` bytes without a newline.
    Unfinished { offset: u64, bytes: usize },
    /// The segment ends with a newline, or is empty.
    End,
}

/// Reader of a segment's lines, with memory for two of the longest.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    source: R,
    /// End of the part that is read, in bytes.
    limit: u64,
    buffer: Vec<u8>,
    unread: Range<usize>,
    /// Position in the segment where `unread` begins.
    offset: u64,
}

impl<R: ReadAt> Lines<R> {
    /// Creates a reader of the lines from `offset`, which must be the beginning of one.
    pub(crate) fn new(source: R, offset: u64) -> Self {
        Self::limited(source, offset, u64::MAX)
    }

    /// Creates a reader like [`Lines::new`] that treats `limit` as the end of the segment.
    pub(crate) fn limited(source: R, offset: u64, limit: u64) -> Self {
        Self { source, limit, buffer: vec![0; 2 * MAX_LINE], unread: 0..0, offset }
    }

    /// Returns the bytes of a line that was just returned.
    pub(crate) fn bytes(&self, at: &Range<usize>) -> &[u8] {
        &self.buffer[at.clone()]
    }

    /// Returns the position of the next line in the segment.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn into_source(self) -> R {
        self.source
    }

    /// Returns the next line. After `Unfinished` and `End` it can be called again, and reads the lines that were appended since.
    pub(crate) fn next(&mut self) -> io::Result<Next> {
        let mut searched = 0;
        loop {
            let unread = &self.buffer[self.unread.clone()];
            if let Some(found) = unread[searched..].iter().position(|b| *b == b'\n') {
                let length = searched + found;
                let at = self.unread.start..self.unread.start + length;
                let offset = self.offset;
                self.advance(length + 1);
                // The newline counts, so that reader and writer have the same limit.
                return Ok(if length < MAX_LINE {
                    Next::Line { offset, at }
                } else {
                    Next::TooLong { offset }
                });
            }
            searched = unread.len();
            if searched >= MAX_LINE {
                return Ok(Next::TooLong { offset: self.offset });
            }
            if self.fill()? == 0 {
                self.unread = 0..0;
                return Ok(match searched {
                    0 => Next::End,
                    bytes => Next::Unfinished { offset: self.offset, bytes },
                });
            }
        }
    }

    fn advance(&mut self, bytes: usize) {
        self.unread.start += bytes;
        self.offset += bytes as u64;
    }

    fn fill(&mut self) -> io::Result<usize> {
        if self.buffer.len() - self.unread.end < MAX_LINE {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        let position = self.offset + self.unread.len() as u64;
        let free = self.buffer.len() - self.unread.end;
        let allowed = usize::try_from(self.limit.saturating_sub(position)).unwrap_or(usize::MAX).min(free);
        let end = self.unread.end;
        let count = retry(|| self.source.read_at(&mut self.buffer[end..end + allowed], position))?;
        self.unread.end += count;
        Ok(count)
    }
}

/// Repeats a system call while a signal interrupts it.
pub(crate) fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Returns the beginning of a line at or before the record `sequence`.
///
/// It uses bisection, so that a reader that resumes in a large segment does not read all of it. If it finds malformed data, it returns a
/// position that is known to be before the record.
pub(crate) fn seek(source: &mut impl ReadAt, length: u64, sequence: u64) -> io::Result<u64> {
    let window = 2 * MAX_LINE as u64;
    let mut buffer = vec![0; 2 * MAX_LINE];
    let (mut low, mut high) = (0, length);
    while high - low > window {
        let middle = low + (high - low) / 2;
        let count = retry(|| source.read_at(&mut buffer, middle))?;
        let Some(newline) = buffer[..count].iter().position(|b| *b == b'\n') else { break };
        let Some(found) = sequence_of(&buffer[newline + 1..count]) else { break };
        if found <= sequence {
            low = middle + newline as u64 + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl ReadAt for &[u8] {
        fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let rest = self.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
            let count = rest.len().min(buffer.len()).min(7000); // short reads
            buffer[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        }
    }

    #[test]
    fn lines_of_every_length_are_found_at_their_offset() {
        let lengths = [0, 1, 6999, 7000, 7001, 65_535, 0, 65_535, 65_534, 3, 40_000, 40_000, 40_000];
        let mut text = Vec::new();
        let mut expected = Vec::new();
        for length in lengths {
            expected.push((text.len() as u64, length));
            text.extend(std::iter::repeat_n(b'x', length));
            text.push(b'\n');
        }
        text.extend_from_slice(b"tail");
        let mut lines = Lines::new(&text[..], 0);
        for (offset, length) in expected {
            match lines.next().unwrap() {
                Next::Line { offset: at, at: range } => {
                    assert_eq!((at, lines.bytes(&range).len()), (offset, length));
                }
                other => panic!("{other:?}"),
            }
        }
        let tail = text.len() as u64 - 4;
        for _ in 0..2 {
            assert_eq!(lines.next().unwrap(), Next::Unfinished { offset: tail, bytes: 4 });
        }
    }

    #[test]
    fn a_line_over_the_limit_is_reported() {
        for extra in [0, 1, 100_000] {
            let text = [vec![b'x'; MAX_LINE + extra], b"\nnext\n".to_vec()].concat();
            assert_eq!(Lines::new(&text[..], 0).next().unwrap(), Next::TooLong { offset: 0 });
        }
    }
}
