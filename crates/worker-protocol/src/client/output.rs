//! Keeps the beginning and the end of a stream of any length in bounded memory.

use std::collections::VecDeque;

use text::{cut_beginning, without_cut_end};

/// The first and the last bytes of a stream, and its total length.
#[derive(Debug)]
pub(super) struct HeadTail {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_limit: usize,
    tail_limit: usize,
    total: u64,
}

/// A stream as text.
#[derive(Debug, PartialEq, Eq)]
pub struct Clipped {
    /// UTF-8 with replacement characters. A line in brackets marks omitted bytes.
    pub text: String,
    /// Number of omitted bytes.
    pub omitted: u64,
}

/// Returns the text of a stream of `total` bytes, of which these are the first and the last ones.
pub fn clipped(mut head: Vec<u8>, tail: &[u8], total: u64) -> Clipped {
    if (head.len() + tail.len()) as u64 >= total {
        head.extend_from_slice(tail);
        return Clipped { text: String::from_utf8_lossy(&head).into_owned(), omitted: 0 };
    }
    // Characters that the cut went through are omitted as a whole.
    head.truncate(without_cut_end(&head));
    let tail = &tail[cut_beginning(tail)..];
    let omitted = total - (head.len() + tail.len()) as u64;
    let (head, tail) = (String::from_utf8_lossy(&head), String::from_utf8_lossy(tail));
    Clipped { text: format!("{head}\n[… {omitted} bytes left out …]\n{tail}"), omitted }
}

impl HeadTail {
    /// Keeps at most `limit` bytes: half from the beginning, half from the end.
    pub(super) fn new(limit: u64) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let head_limit = limit.div_ceil(2);
        let (head, tail) = (Vec::new(), VecDeque::new());
        Self { head, tail, head_limit, tail_limit: limit - head_limit, total: 0 }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Adds the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at((self.head_limit - self.head.len()).min(bytes.len()));
        self.head.extend_from_slice(head);
        let kept = &rest[rest.len().saturating_sub(self.tail_limit)..];
        let overflow = (self.tail.len() + kept.len()).saturating_sub(self.tail_limit);
        self.tail.drain(..overflow);
        self.tail.extend(kept);
    }

    /// Returns the text of a stream of `total` bytes, of which this has seen the first ones.
    pub(super) fn into_text(mut self, total: u64) -> Clipped {
        // Without the bytes after them, the last ones that came are not the end.
        if self.total < total {
            self.tail.clear();
        }
        clipped(self.head, self.tail.make_contiguous(), total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clipped(limit: u64, chunks: &[&[u8]]) -> Clipped {
        let mut stream = HeadTail::new(limit);
        for chunk in chunks {
            stream.push(chunk);
        }
        let total = stream.total();
        stream.into_text(total)
    }

    #[test]
    fn fitting_output_is_complete_for_every_split() {
        for limit in 8..12 {
            for cut in 0..=8 {
                let (a, b) = b"abcdefgh".split_at(cut);
                assert_eq!(clipped(limit, &[a, b]), Clipped { text: "abcdefgh".to_owned(), omitted: 0 });
            }
        }
    }

    #[test]
    fn long_output_keeps_its_beginning_and_end() {
        let expected = Clipped { text: "abc\n[… 4 bytes left out …]\nhij".to_owned(), omitted: 4 };
        assert_eq!(clipped(6, &[b"abcdefghij"]), expected);
        for cut in 0..=10 {
            let (a, b) = b"abcdefghij".split_at(cut);
            assert_eq!(clipped(6, &[a, b]), expected, "cut at {cut}");
        }
    }

    #[test]
    fn characters_are_left_out_whole() {
        // Two bytes each: the cut at 3 and the one 3 from the end go through characters.
        let got = clipped(6, &["äöüäöü".as_bytes()]);
        assert_eq!(got, Clipped { text: "ä\n[… 8 bytes left out …]\nü".to_owned(), omitted: 8 });
    }

    #[test]
    fn bytes_that_are_not_text_are_replaced() {
        assert_eq!(clipped(10, &[b"a\xffb"]).text, "a\u{fffd}b");
        assert_eq!(
            clipped(0, &[b"abc"]),
            Clipped { text: "\n[… 3 bytes left out …]\n".to_owned(), omitted: 3 }
        );
    }

    #[test]
    fn memory_is_bounded_and_the_count_is_not() {
        let mut stream = HeadTail::new(1000);
        for _ in 0..10_000 {
            stream.push(&[b'x'; 4096]);
        }
        assert!(stream.head.capacity() + stream.tail.capacity() < 4096);
        assert_eq!(stream.total(), 40_960_000);
        assert_eq!(stream.into_text(40_960_000).omitted, 40_959_000);
    }

    #[test]
    fn bytes_that_never_came_are_left_out_too() {
        let mut stream = HeadTail::new(100);
        stream.push(b"abc");
        let got = stream.into_text(10);
        assert_eq!(got, Clipped { text: "abc\n[… 7 bytes left out …]\n".to_owned(), omitted: 7 });
    }
}
