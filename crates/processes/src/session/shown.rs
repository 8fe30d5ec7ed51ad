//! Keeps the output of a session that no caller has yet: the beginning and the end, if it is too much.

use text::{cut_beginning, without_cut_end};

use super::expect::Expect;

/// Most bytes that are kept of a session before its first command.
const LIMIT: usize = 16 * 1024;
/// Bytes beyond the limit that are kept before a cut, so that a flood does not move the kept bytes each time.
const SLACK: usize = 256 * 1024;
/// Longest match that is found if its bytes come one after the other.
const OVERLAP: usize = 4 * 1024;

#[derive(Debug)]
pub(super) struct Shown {
    bytes: Vec<u8>,
    limit: usize,
    /// Offset of the first byte in the stream.
    offset: u64,
    /// Number of bytes that are left out after the first half.
    omitted: u64,
    /// No match begins and ends before this offset.
    searched: usize,
}

/// Output as the caller gets it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// UTF-8 with replacement characters; a line in brackets marks a gap.
    pub(super) text: String,
    pub(super) bytes: u64,
    pub(super) omitted: u64,
    pub(super) offset: u64,
}

/// The match of an expected pattern.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) which: u32,
    pub(super) text: String,
    pub(super) before: Told,
}

impl Default for Shown {
    fn default() -> Self {
        Self::new(LIMIT)
    }
}

impl Shown {
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit, offset: 0, omitted: 0, searched: 0 }
    }

    /// Adds bytes that begin at this offset of the stream.
    pub(super) fn push(&mut self, bytes: &[u8], at: u64) {
        if self.bytes.is_empty() {
            self.offset = at;
        }
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > self.limit + SLACK {
            self.cut();
        }
    }

    fn half(&self) -> usize {
        self.limit.div_ceil(2)
    }

    fn cut(&mut self) {
        let Some(gone) = self.bytes.len().checked_sub(self.limit) else { return };
        let half = self.half();
        self.bytes.drain(half..half + gone);
        self.omitted += gone as u64;
        if self.searched > half {
            self.searched = self.searched.saturating_sub(gone).max(half);
        }
    }

    /// Takes all output. If more may come (`goes_on`), a character whose end is still to come stays for later.
    pub(super) fn take(&mut self, goes_on: bool) -> Told {
        self.cut();
        let whole = if goes_on { without_cut_end(&self.bytes) } else { self.bytes.len() };
        let told = self.told(whole);
        let later = self.bytes.split_off(whole);
        let offset = if later.is_empty() { 0 } else { self.offset + told.bytes };
        *self = Self { offset, bytes: later, ..Self::new(self.limit) };
        told
    }

    /// Takes the first match, and the output before it.
    pub(super) fn matched(&mut self, expect: &Expect) -> Option<Match> {
        let joint = if self.omitted > 0 { self.half() } else { 0 };
        let from = self.searched.saturating_sub(OVERLAP).max(joint);
        let Some((which, found)) = expect.find(&self.bytes[from..]) else {
            self.searched = self.bytes.len();
            return None;
        };
        let (start, end) = (from + found.start, from + found.end);
        let text = String::from_utf8_lossy(&self.bytes[start..end]).into_owned();
        let before = self.told(start);
        self.offset += end as u64 + self.omitted;
        self.bytes.drain(..end);
        (self.omitted, self.searched) = (0, 0);
        Some(Match { which, text, before })
    }

    fn told(&self, end: usize) -> Told {
        let bytes = end as u64 + self.omitted;
        let text = |bytes| String::from_utf8_lossy(bytes);
        let (text, omitted) = if self.omitted == 0 {
            (text(&self.bytes[..end]).into_owned(), 0)
        } else {
            let (head, tail) = self.bytes[..end].split_at(self.half().min(end));
            // Characters that the cut goes through are left out whole.
            let (head, tail) = (&head[..without_cut_end(head)], &tail[cut_beginning(tail)..]);
            let omitted = bytes - (head.len() + tail.len()) as u64;
            (format!("{}\n[… {omitted} bytes left out …]\n{}", text(head), text(tail)), omitted)
        };
        Told { text, bytes, omitted, offset: self.offset }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_and_the_end_are_kept_and_the_rest_is_counted() {
        let mut shown = Shown::new(10);
        shown.push(b"01234", 7);
        for _ in 0..100_000 {
            shown.push(b"abcdefghij", 12);
            assert!(shown.bytes.len() <= 10 + SLACK);
        }
        let told = shown.take(false);
        let expected = Told {
            text: "01234\n[… 999995 bytes left out …]\nfghij".to_owned(),
            bytes: 1_000_005,
            omitted: 999_995,
            offset: 7,
        };
        assert_eq!(told, expected);
        assert_eq!(shown.take(false), Told::default());
    }

    #[test]
    fn no_character_is_cut_in_two() {
        let text = "aé€😀".repeat(40_000);
        for (limit, goes_on) in (1..40).flat_map(|limit| [(limit, false), (limit, true)]) {
            let mut shown = Shown::new(limit);
            text.as_bytes().chunks(7).for_each(|piece| shown.push(piece, 0));
            let told = shown.take(goes_on);
            assert!(!told.text.contains('\u{fffd}'), "{limit}: {told:?}");
            assert_eq!(told.bytes, text.len() as u64);
            let (head, tail) =
                told.text.split_once(&format!("\n[… {} bytes left out …]\n", told.omitted)).unwrap();
            assert_eq!((head.len() + tail.len()) as u64 + told.omitted, told.bytes);
            assert!(text.starts_with(head) && text.ends_with(tail), "{limit}: {told:?}");
        }
    }

    #[test]
    fn a_character_is_shown_with_its_last_byte() {
        let euro = "€".as_bytes();
        let mut shown = Shown::new(100);
        shown.push(b"a", 50);
        shown.push(&euro[..2], 51);
        let first = shown.take(true);
        assert_eq!((first.text.as_str(), first.bytes, first.offset), ("a", 1, 50));
        shown.push(&euro[2..], 53);
        let second = shown.take(true);
        assert_eq!((second.text.as_str(), second.bytes, second.offset), ("€", 3, 51));
        shown.push(&euro[..2], 54);
        assert_eq!(shown.take(false).text, "\u{fffd}", "no more comes");
    }

    #[test]
    fn a_match_ends_one_answer_and_begins_the_next() {
        let expect = Expect::compile("f", &["b+".to_owned(), ">>> ".to_owned()]).unwrap();
        let mut shown = Shown::new(100);
        shown.push(b"1 >>", 50);
        assert_eq!(shown.matched(&expect), None);
        shown.push(b"> 2", 54);
        let found = shown.matched(&expect).unwrap();
        assert_eq!((found.which, found.text.as_str(), found.before.text.as_str()), (1, ">>> ", "1 "));
        assert_eq!(shown.take(false), Told { text: "2".to_owned(), bytes: 1, omitted: 0, offset: 56 });
    }

    #[test]
    fn a_match_is_found_after_a_flood_and_not_across_omitted_output() {
        let expect = Expect::compile("f", &["ab".to_owned()]).unwrap();
        let mut shown = Shown::new(4);
        shown.push(b"xxxxa", 0);
        shown.push(&vec![b'-'; SLACK], 5);
        shown.push(b"bbbb", 0);
        assert_eq!(shown.matched(&expect), None);
        shown.push(b"ab!", 0);
        let found = shown.matched(&expect).unwrap();
        assert!(found.before.omitted > 0);
        assert_eq!(shown.take(false).text, "!");
    }
}
