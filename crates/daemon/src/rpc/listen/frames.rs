//! Bounds the frames of a client that carry neither a request nor data.
//!
//! h2 answers or drops PING, PRIORITY, SETTINGS, WINDOW_UPDATE and unknown frames without a limit, and they cost a client
//! almost nothing: a frame of 9 to 17 bytes, in front of any token. Each connection therefore has a budget. It refills with
//! time, with each request, and with the bytes that the server sends, because a client answers those with WINDOW_UPDATE.

use std::time::Instant;

use crate::rpc::authority::PREFACE;

const HEADER: usize = 9;
const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const END_STREAM: u8 = 0x1;

/// Frames within a second, and at most at once, before the connection belongs to a principal.
///
/// gRPC clients send about five: SETTINGS, its acknowledgement, a WINDOW_UPDATE, and a PING that measures the bandwidth.
const UNPROVEN: Bound = Bound { per_second: 100, at_once: 100 };
/// Frames within a second, and at most at once, of a connection that belongs to a principal.
///
/// A client that reads 16 MiB in one window answers at most two WINDOW_UPDATE for each frame of 16 KiB, thus 2,048 at once.
const PROVEN: Bound = Bound { per_second: 1_000, at_once: 8_192 };
/// Frames that a request allows: its reset, an empty end, and a WINDOW_UPDATE of its stream and of the connection.
const PER_REQUEST: u64 = 4;
/// Sent bytes that allow one more frame: 32 for each full frame of 16 KiB, of which clients use two.
const SENT: u64 = 512;
/// Frames after which the connection lets other tasks run.
const YIELD: usize = 256;

/// Frames are counted in these parts, so that short times refill as well.
const PARTS: u64 = 1_000;

struct Bound {
    per_second: u64,
    at_once: u64,
}

/// The frames of one connection, read by their headers alone.
pub(super) struct Frames {
    /// Bytes that are left of the preface or of a payload.
    passing: usize,
    header: [u8; HEADER],
    held: usize,
    /// Frames that are left, in parts.
    budget: u64,
    at: Instant,
    /// Sent bytes that have not yet allowed a frame.
    sent: u64,
    since_yield: usize,
}

/// The client sent more frames than its connection may.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMany;

impl Frames {
    pub(super) fn new(now: Instant) -> Self {
        let budget = UNPROVEN.at_once * PARTS;
        Self { passing: PREFACE, header: [0; HEADER], held: 0, budget, at: now, sent: 0, since_yield: 0 }
    }

    /// Counts the frames that begin in `input`.
    pub(super) fn count(&mut self, mut input: &[u8], is_proven: bool, now: Instant) -> Result<(), TooMany> {
        let bound = if is_proven { PROVEN } else { UNPROVEN };
        let most = bound.at_once * PARTS;
        let since = u64::try_from(now.duration_since(self.at).as_millis()).unwrap_or(u64::MAX);
        if since > 0 {
            // A thousandth of a second refills a thousandth of the frames.
            self.refill(since.saturating_mul(bound.per_second), most);
            self.at = now;
        }
        let sent = self.sent / SENT;
        self.sent %= SENT;
        self.refill(sent.saturating_mul(PARTS), most);
        while !input.is_empty() {
            if self.passing > 0 {
                let count = self.passing.min(input.len());
                self.passing -= count;
                input = &input[count..];
                continue;
            }
            let count = (HEADER - self.held).min(input.len());
            let (taken, rest) = input.split_at(count);
            self.header[self.held..self.held + count].copy_from_slice(taken);
            self.held += count;
            input = rest;
            if self.held == HEADER {
                self.held = 0;
                self.frame(most)?;
            }
        }
        Ok(())
    }

    fn frame(&mut self, most: u64) -> Result<(), TooMany> {
        let [high, middle, low, kind, flags, ..] = self.header;
        self.passing = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        self.since_yield += 1;
        match kind {
            HEADERS => self.refill(PER_REQUEST * PARTS, most),
            DATA if self.passing > 0 || flags & END_STREAM != 0 => {}
            _ => self.budget = self.budget.checked_sub(PARTS).ok_or(TooMany)?,
        }
        Ok(())
    }

    fn refill(&mut self, parts: u64, most: u64) {
        self.budget = most.min(self.budget.saturating_add(parts));
    }

    /// Notes that the server sent so many bytes.
    pub(super) fn sent(&mut self, count: usize) {
        self.sent = self.sent.saturating_add(count as u64);
    }

    /// Returns whether other tasks have to run before the next read.
    pub(super) fn has_to_yield(&mut self) -> bool {
        let has_to = self.since_yield >= YIELD;
        if has_to {
            self.since_yield = 0;
        }
        has_to
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Frames, HEADER, PREFACE, TooMany};

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let mut bytes = vec![0, 0, length, kind, flags, 0, 0, 0, 1];
        bytes.resize(HEADER + usize::from(length), 0);
        bytes
    }

    fn greeted(now: Instant) -> Frames {
        let mut frames = Frames::new(now);
        frames.count(&[0; PREFACE], false, now).unwrap();
        frames
    }

    #[test]
    fn frames_without_a_request_have_a_budget_of_each_second() {
        let now = Instant::now();
        // Empty DATA, PRIORITY, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION, unknown.
        for (kind, length) in [(0, 0), (2, 5), (3, 4), (4, 0), (6, 8), (8, 4), (9, 1), (0xfa, 3)] {
            let (one, mut frames) = (frame(kind, 0, length), greeted(now));
            // A byte at a time: a header is read however it is cut.
            for byte in one.repeat(100) {
                assert_eq!(frames.count(&[byte], false, now), Ok(()), "{kind}");
            }
            assert_eq!(frames.count(&one, false, now + Duration::from_millis(9)), Err(TooMany), "{kind}");
            let later = now + Duration::from_secs(60);
            assert_eq!(frames.count(&[], false, later), Ok(()));
            let mut frames = greeted(now);
            assert_eq!(frames.count(&one.repeat(101), true, later), Ok(()), "{kind}");
            assert_eq!(frames.count(&one.repeat(9_000), true, later), Err(TooMany), "{kind}");
        }
    }

    #[test]
    fn requests_and_sent_bytes_allow_frames_and_data_costs_none() {
        let now = Instant::now();
        let mut frames = greeted(now);
        for _ in 0..100_000 {
            let call = [frame(1, 4, 20), frame(0, 1, 30), frame(3, 0, 4), frame(8, 0, 4)].concat();
            assert_eq!(frames.count(&call, true, now), Ok(()));
            frames.sent(16 * 1024);
            let updates = [frame(8, 0, 4), frame(8, 0, 4)].concat();
            assert_eq!(frames.count(&updates, true, now), Ok(()));
            assert_eq!(frames.count(&frame(0, 0, 1), true, now), Ok(()));
        }
    }

    #[test]
    fn a_connection_yields_after_a_number_of_frames() {
        let now = Instant::now();
        let mut frames = greeted(now);
        frames.count(&frame(0, 0, 1).repeat(255), false, now).unwrap();
        assert!(!frames.has_to_yield());
        frames.count(&frame(0, 0, 1), false, now).unwrap();
        assert!(frames.has_to_yield() && !frames.has_to_yield());
    }
}
