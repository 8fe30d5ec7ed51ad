//! Reads a bounded part of a process's output, for readers that take no stream.

use std::sync::Arc;

use refusal::{Refusal, chain};
use text::{cut_beginning, without_cut_end};
use wire::v1::process::State;

use crate::output::Found;
use crate::process::Process;

/// Most bytes of one read.
const PIECE: usize = 64 * 1024;

/// A part of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Bytes left out before the part, and bytes within it that were not kept.
    pub skipped: u64,
    pub bytes: Vec<u8>,
    /// Offset of the byte after it.
    pub end: u64,
    /// Bytes that the stream has after the part.
    pub more: u64,
    is_after_gap: bool,
}

impl Part {
    /// Adds the next bytes. Drops the rest of a character that begins in a gap.
    fn add(&mut self, data: &[u8]) {
        let cut = if self.is_after_gap { cut_beginning(data) } else { 0 };
        self.is_after_gap = false;
        self.skipped += cut as u64;
        self.end += data.len() as u64;
        self.bytes.extend_from_slice(&data[cut..]);
    }

    /// Skips the next bytes, and drops the beginning of a character that ends in the gap.
    fn skip(&mut self, bytes: u64) {
        let kept = without_cut_end(&self.bytes);
        self.skipped += (self.bytes.len() - kept) as u64 + bytes;
        self.bytes.truncate(kept);
        self.end += bytes;
        self.is_after_gap = true;
    }
}

impl Process {
    /// Returns at most `most` bytes of each stream, from these offsets on or, without them, the last ones.
    ///
    /// A character whose end is still to come is left to the next part.
    pub async fn parts(self: &Arc<Self>, from: Option<[u64; 2]>, most: usize) -> Result<[Part; 2], Refusal> {
        let process = self.clone();
        let read = tokio::task::spawn_blocking(move || {
            // In this order: a process that has ended writes no further output.
            let over = process.status.borrow().state() != State::Running;
            let part = |at: usize| process.part(at, from.map(|from| from[at]), most, over);
            Ok::<_, std::io::Error>([part(0)?, part(1)?])
        });
        let read = read.await.map_err(std::io::Error::other).and_then(|parts| parts);
        read.map_err(|error| Refusal::internal("reading the output of a process", &chain(&error)))
    }

    fn part(&self, at: usize, from: Option<u64>, most: usize, over: bool) -> std::io::Result<Part> {
        let there = self.output.ends()[at];
        let start = from.unwrap_or_else(|| there.saturating_sub(most as u64)).min(there);
        let mut part = Part::default();
        match from {
            None if start > 0 => part.skip(start),
            _ => part.end = start,
        }
        while part.end < there && part.bytes.len() < most {
            match self.output.read(at, part.end, PIECE.min(most - part.bytes.len()))? {
                Found::Bytes(data) => part.add(&data),
                Found::Gap(bytes) => part.skip(bytes),
                Found::End => break,
            }
        }
        part.more = there.saturating_sub(part.end);
        if part.more > 0 || !over {
            let kept = whole(&part.bytes);
            let later = part.bytes.len() - kept;
            part.bytes.truncate(kept);
            part.end -= later as u64;
            part.more += later as u64;
        }
        Ok(part)
    }
}

/// Returns the number of bytes without a truncated last character; all bytes if there is only that character.
fn whole(bytes: &[u8]) -> usize {
    match without_cut_end(bytes) {
        0 => bytes.len(),
        whole => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::{Part, whole};

    #[test]
    fn only_a_cut_character_is_left_for_later() {
        for (bytes, kept) in [
            (&b"abc"[..], 3),
            ("aé".as_bytes(), 3),
            (&"aé".as_bytes()[..2], 1),
            (&"a€".as_bytes()[..3], 1),
            (&"a😀".as_bytes()[..4], 1),
            (&"€".as_bytes()[..2], 2),
            (b"a\xff", 2),
            (b"\x80\x80\x80\x80\x80", 5),
            (b"", 0),
        ] {
            assert_eq!(whole(bytes), kept, "{bytes:?}");
        }
    }

    #[test]
    fn omission_keeps_characters_whole() {
        let text = "é€😀".as_bytes();
        for (head, tail) in
            (0..=text.len()).flat_map(|head| (head..=text.len()).map(move |tail| (head, tail)))
        {
            let mut part = Part::default();
            part.add(&text[..head]);
            part.skip((tail - head) as u64);
            part.add(&text[tail..]);
            let shown = String::from_utf8(part.bytes.clone()).unwrap();
            assert_eq!(shown.len() as u64 + part.skipped, text.len() as u64, "{head} {tail}: {shown}");
            assert_eq!(part.end, text.len() as u64);
        }
    }
}
