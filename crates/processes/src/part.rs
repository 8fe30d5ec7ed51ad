//! A bounded part of what a process has written, for readers who take no stream.

use std::sync::Arc;

use refusal::{Refusal, chain};
use wire::v1::process::State;

use crate::output::Found;
use crate::process::Process;

/// Most bytes of one read.
const PIECE: usize = 64 * 1024;

/// A part of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Bytes before it that it leaves out, and such within it that were not kept.
    pub skipped: u64,
    pub bytes: Vec<u8>,
    /// The byte after it.
    pub end: u64,
    /// Bytes after it that are there already.
    pub more: u64,
}

impl Process {
    /// At most `most` bytes of each stream, from these offsets on or, without them, the last ones. A character of which the end is
    /// still to come is left to the next part.
    pub async fn parts(self: &Arc<Self>, from: Option<[u64; 2]>, most: usize) -> Result<[Part; 2], Refusal> {
        let process = self.clone();
        let read = tokio::task::spawn_blocking(move || {
            // In this order: what has ended writes no more.
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
        let mut part =
            Part { skipped: if from.is_none() { start } else { 0 }, end: start, ..Part::default() };
        while part.end < there && part.bytes.len() < most {
            match self.output.read(at, part.end, PIECE.min(most - part.bytes.len()))? {
                Found::Bytes(data) => {
                    part.end += data.len() as u64;
                    part.bytes.extend(data);
                }
                Found::Gap(bytes) => {
                    part.end += bytes;
                    part.skipped += bytes;
                }
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

/// How many bytes there are without a last character that is cut. All, where nothing else is there.
fn whole(bytes: &[u8]) -> usize {
    let begins = |byte: &&u8| **byte & 0b1100_0000 != 0b1000_0000;
    let last = bytes.iter().rev().take(4).position(|byte| begins(&byte)).map(|back| bytes.len() - back - 1);
    let Some(last) = last.filter(|last| *last > 0) else { return bytes.len() };
    match std::str::from_utf8(&bytes[last..]) {
        Err(error) if error.error_len().is_none() => last,
        _ => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::whole;

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
}
