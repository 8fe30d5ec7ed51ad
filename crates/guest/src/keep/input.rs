//! Input of a process that it has not read yet.

use std::collections::VecDeque;

/// Most bytes that wait.
const MOST: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Input {
    bytes: VecDeque<u8>,
    /// Bytes that were accepted in total.
    taken: u64,
    /// True if more input may come.
    open: bool,
    /// True if some bytes did not fit. The daemon gets a message when there is space again.
    short: bool,
}

impl Input {
    pub(super) fn new(open: bool) -> Self {
        Self { bytes: VecDeque::new(), taken: 0, open, short: false }
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Accepts as many bytes as fit, and skips those before the current position. Returns false if `offset` leaves a gap.
    pub(super) fn put(&mut self, offset: u64, data: &[u8], close: bool) -> bool {
        let Some(before) = self.taken.checked_sub(offset) else { return false };
        let data = usize::try_from(before).ok().and_then(|before| data.get(before..)).unwrap_or_default();
        if !self.open {
            return true;
        }
        let fits = data.len().min(MOST - self.bytes.len());
        self.bytes.extend(&data[..fits]);
        self.taken += fits as u64;
        self.short = fits < data.len();
        if close && !self.short {
            self.open = false;
        }
        true
    }

    /// Returns the bytes that can be written now.
    pub(super) fn next(&self) -> &[u8] {
        self.bytes.as_slices().0
    }

    /// Records that the process has read so many bytes. Returns true if the daemon waits for space.
    pub(super) fn read(&mut self, count: usize) -> bool {
        self.bytes.drain(..count);
        std::mem::take(&mut self.short)
    }

    /// Records that the process no longer reads.
    pub(super) fn close(&mut self) {
        self.open = false;
        self.bytes.clear();
    }

    /// Returns true if no bytes wait and none will come.
    pub(super) fn is_done(&self) -> bool {
        !self.open && self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_input_is_delivered_once() {
        let mut input = Input::new(true);
        assert!(input.put(0, b"abc", false));
        assert!(input.put(0, b"abc", false) && input.put(1, b"bcd", false));
        assert_eq!((input.next(), input.taken()), (&b"abcd"[..], 4));
        assert!(!input.put(5, b"x", false), "a gap");
        assert!(!input.read(3));
        assert!(input.put(4, b"e", true));
        assert!(input.next().starts_with(b"d") && !input.is_open() && !input.is_done());
        assert!(input.put(5, b"more", false));
        assert_eq!(input.taken(), 5, "closed");
        input.read(1);
        input.read(1);
        assert!(input.is_done());
    }

    #[test]
    fn excess_input_is_left_for_a_retry() {
        let mut input = Input::new(true);
        assert!(input.put(0, &vec![1; MOST + 1], true));
        assert_eq!((input.taken(), input.is_open()), (MOST as u64, true));
        assert!(input.read(10), "there is space again");
        assert!(input.put(0, &vec![1; MOST + 1], true));
        assert_eq!((input.taken(), input.is_open()), (MOST as u64 + 1, false));
    }
}
