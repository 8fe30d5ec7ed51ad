//! Output of a process that the daemon does not have yet, with its offset in the stream.

use std::collections::VecDeque;

/// Most bytes of one stream that wait. Beyond that the process blocks.
pub(super) const MOST: usize = 512 * 1024;

/// Output of one stream.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: VecDeque<u8>,
    /// Offset of the first waiting byte.
    start: u64,
    /// Offset of the next byte to send on the daemon's current stream.
    sent: u64,
}

impl Output {
    /// Returns how many more bytes fit.
    pub(super) fn free(&self) -> usize {
        MOST.saturating_sub(self.bytes.len())
    }

    /// Returns the number of bytes that the process has written in total.
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Adds output of the process. It must fit.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Drops the bytes before `offset`, which the daemon has. Returns false if `offset` is beyond the output.
    pub(super) fn acknowledged(&mut self, offset: u64) -> bool {
        if offset > self.end() {
            return false;
        }
        let gone = usize::try_from(offset.saturating_sub(self.start)).unwrap_or(0);
        self.bytes.drain(..gone);
        self.start += gone as u64;
        self.sent = self.sent.max(self.start);
        true
    }

    /// Begins another stream of the daemon, which has everything before `offset`.
    pub(super) fn attach(&mut self, offset: u64) -> bool {
        let known = self.acknowledged(offset);
        self.sent = self.start;
        known
    }

    /// Returns the next bytes to send, at most `most`, and their offset. They count as sent.
    pub(super) fn next(&mut self, most: usize) -> Option<(u64, Vec<u8>)> {
        let from = usize::try_from(self.sent - self.start).unwrap_or(usize::MAX);
        let piece: Vec<u8> = self.bytes.iter().skip(from).take(most).copied().collect();
        if piece.is_empty() {
            return None;
        }
        let at = self.sent;
        self.sent += piece.len() as u64;
        Some((at, piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_daemon_gets_unacknowledged_output() {
        let mut output = Output::default();
        output.push(b"abcdef");
        assert_eq!(output.next(4), Some((0, b"abcd".to_vec())));
        assert!(output.acknowledged(2));
        assert_eq!(output.next(9), Some((4, b"ef".to_vec())));
        assert_eq!(output.next(9), None);
        // It was sent six and kept three.
        assert!(output.attach(3));
        assert_eq!(output.next(9), Some((3, b"def".to_vec())));
        assert!(output.acknowledged(6) && !output.acknowledged(7));
        assert_eq!((output.end(), output.free()), (6, MOST));
        // A daemon that lost what it had is told where the rest begins.
        output.push(b"gh");
        assert!(output.attach(0));
        assert_eq!(output.next(9), Some((6, b"gh".to_vec())));
    }

    #[test]
    fn pending_output_is_bounded() {
        let mut output = Output::default();
        output.push(&vec![0; MOST]);
        assert_eq!(output.free(), 0);
        assert!(output.acknowledged(1));
        assert_eq!(output.free(), 1);
    }
}
