//! Bounds the frames of a client that carry neither a request nor much data.
//!
//! h2 answers or drops PING, PRIORITY, SETTINGS, WINDOW_UPDATE and unknown frames without a limit, and they cost a client
//! almost nothing: a frame of 9 to 17 bytes, before any token is shown. DATA of a few bytes and requests without a good token are
//! as cheap. Each connection therefore has a budget. It refills with time, with the bytes that the server sends, because a client
//! answers those with WINDOW_UPDATE, and with each request of a client that has been let in.
//!
//! A connection that spends more gets GOAWAY with ENHANCE_YOUR_CALM (RFC 9113, 6.8 and 7), unless h2 has written a part of a
//! frame, and is closed.

use std::net::IpAddr;
use std::time::Instant;

use admission::Occurrences;
use parking_lot::Mutex;

use crate::authority::PREFACE;

const HEADER: usize = 9;
const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const END_STREAM: u8 = 0x1;

/// Frames within a second, and at most at once, before the connection belongs to a principal.
///
/// gRPC clients send about five: SETTINGS, its acknowledgement, a WINDOW_UPDATE, and a PING that measures the bandwidth. With
/// them come the first requests, as many as a connection has streams, and their WINDOW_UPDATEs.
const UNPROVEN: Bound = Bound { per_second: 100, at_once: 256 };
/// Frames within a second, and at most at once, of a connection that belongs to a principal.
///
/// A client that reads 16 MiB in one window answers at most two WINDOW_UPDATE for each frame of 16 KiB, thus 2,048 at once.
const PROVEN: Bound = Bound { per_second: 1_000, at_once: 8_192 };
/// Frames that a request allows: its reset, an empty end, and a WINDOW_UPDATE of its stream and of the connection.
const PER_REQUEST: u64 = 4;
/// Sent bytes that allow one more frame: 32 for each full frame of 16 KiB, of which clients use two.
const SENT: u64 = 512;
/// Payload of DATA that is counted, bytes. A unary request ends its stream with DATA and is not counted.
const TINY: usize = 64;
/// Cost of such a frame, in parts: a stream may have 10,000 small messages a second.
const TINY_COST: u64 = PARTS / 10;
/// Frames after which the connection lets other tasks run.
const YIELD: usize = 256;

/// GOAWAY of a server that may have processed any stream, with ENHANCE_YOUR_CALM (0xb).
pub(super) const GOAWAY: [u8; HEADER + 8] =
    [0, 0, 8, 0x7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0xb];

/// Frames are counted in these parts, so that short times refill as well.
const PARTS: u64 = 1_000;

struct Bound {
    per_second: u64,
    at_once: u64,
}

/// Reader of the headers of frames in one direction of a connection.
struct Headers {
    /// Bytes that are left of the preface or of a payload.
    passing: usize,
    header: [u8; HEADER],
    held: usize,
}

impl Headers {
    fn after(passing: usize) -> Self {
        Self { passing, header: [0; HEADER], held: 0 }
    }

    /// Takes bytes off `input` up to the end of the next header, and returns the header if it is whole.
    fn next(&mut self, input: &mut &[u8]) -> Option<[u8; HEADER]> {
        let passed = self.passing.min(input.len());
        self.passing -= passed;
        *input = &input[passed..];
        let (taken, rest) = input.split_at((HEADER - self.held).min(input.len()));
        self.header[self.held..self.held + taken.len()].copy_from_slice(taken);
        self.held += taken.len();
        *input = rest;
        if self.held < HEADER {
            return None;
        }
        self.held = 0;
        let [high, middle, low, ..] = self.header;
        self.passing = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        Some(self.header)
    }

    fn is_between_frames(&self) -> bool {
        self.passing == 0 && self.held == 0
    }
}

/// The frames of one connection, read by their headers alone.
pub(super) struct Frames {
    received: Headers,
    written: Headers,
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
        Self {
            received: Headers::after(PREFACE),
            written: Headers::after(0),
            budget: UNPROVEN.at_once * PARTS,
            at: now,
            sent: 0,
            since_yield: 0,
        }
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
        while let Some(header) = self.received.next(&mut input) {
            self.since_yield += 1;
            let [_, _, _, kind, flags, ..] = header;
            match kind {
                HEADERS if is_proven => self.refill(PER_REQUEST * PARTS, most),
                DATA if self.received.passing >= TINY || flags & END_STREAM != 0 => {}
                DATA if self.received.passing > 0 => self.spend(TINY_COST)?,
                _ => self.spend(PARTS)?,
            }
        }
        Ok(())
    }

    fn spend(&mut self, parts: u64) -> Result<(), TooMany> {
        self.budget = self.budget.checked_sub(parts).ok_or(TooMany)?;
        Ok(())
    }

    fn refill(&mut self, parts: u64, most: u64) {
        self.budget = most.min(self.budget.saturating_add(parts));
    }

    /// Notes bytes that the server sent.
    pub(super) fn sent(&mut self, mut bytes: &[u8]) {
        self.sent = self.sent.saturating_add(bytes.len() as u64);
        while self.written.next(&mut bytes).is_some() {}
    }

    /// Returns true if the server has sent whole frames, so that another can follow.
    pub(super) fn is_between_frames(&self) -> bool {
        self.written.is_between_frames()
    }

    /// Returns true if other tasks have to run before the next read.
    pub(super) fn has_to_yield(&mut self) -> bool {
        let has_to = self.since_yield >= YIELD;
        if has_to {
            self.since_yield = 0;
        }
        has_to
    }
}

/// Logs that connections are closed for their frames, at most once a minute.
pub(super) fn report(address: Option<IpAddr>, now: Instant) {
    static CLOSED: Mutex<Occurrences> = Mutex::new(Occurrences::new());
    if let Some(count) = CLOSED.lock().add(now) {
        let address = address.map(|address| address.to_string()).unwrap_or_default();
        tracing::warn!(address, count, "connections were closed: too many frames without a request or data");
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
            for byte in one.repeat(256) {
                assert_eq!(frames.count(&[byte], false, now), Ok(()), "{kind}");
            }
            assert_eq!(frames.count(&one, false, now + Duration::from_millis(9)), Err(TooMany), "{kind}");
            let later = now + Duration::from_secs(60);
            assert_eq!(frames.count(&[], false, later), Ok(()));
            let mut frames = greeted(now);
            assert_eq!(frames.count(&one.repeat(257), true, later), Ok(()), "{kind}");
            assert_eq!(frames.count(&one.repeat(9_000), true, later), Err(TooMany), "{kind}");
        }
    }

    #[test]
    fn requests_and_sent_bytes_allow_frames_and_data_costs_none() {
        let now = Instant::now();
        let mut frames = greeted(now);
        let data = [&[0, 0x3f, 0xf7, 0, 0, 0, 0, 0, 1][..], &[0; 0x3ff7]].concat();
        for _ in 0..10_000 {
            let call = [frame(1, 4, 20), frame(0, 1, 30), frame(3, 0, 4), frame(8, 0, 4)].concat();
            assert_eq!(frames.count(&call, true, now), Ok(()));
            frames.sent(&data);
            let updates = [frame(8, 0, 4), frame(8, 0, 4)].concat();
            assert_eq!(frames.count(&updates, true, now), Ok(()));
            assert_eq!(frames.count(&frame(0, 0, 64), true, now), Ok(()));
        }
    }

    #[test]
    fn a_tiny_message_costs_a_tenth_of_a_frame() {
        let now = Instant::now();
        let (tiny, mut frames) = (frame(0, 0, 63), greeted(now));
        assert_eq!(frames.count(&tiny.repeat(2_560), false, now), Ok(()));
        assert_eq!(frames.count(&tiny, false, now), Err(TooMany));
    }

    #[test]
    fn a_connection_yields_after_a_number_of_frames() {
        let now = Instant::now();
        let mut frames = greeted(now);
        frames.count(&frame(0, 0, 64).repeat(255), false, now).unwrap();
        assert!(!frames.has_to_yield());
        frames.count(&frame(0, 0, 64), false, now).unwrap();
        assert!(frames.has_to_yield() && !frames.has_to_yield());
    }

    #[test]
    fn requests_before_admission_use_up_the_frame_budget() {
        let now = Instant::now();
        let (call, mut frames) = ([frame(1, 4, 20), frame(0, 1, 5)].concat(), greeted(now));
        assert_eq!(frames.count(&call.repeat(256), false, now), Ok(()));
        assert_eq!(frames.count(&call, false, now), Err(TooMany));
    }

    #[test]
    fn a_frame_that_the_server_has_begun_is_seen() {
        let mut frames = Frames::new(Instant::now());
        assert!(frames.is_between_frames());
        let bytes = [frame(4, 0, 6), frame(0, 0, 200)].concat();
        for end in 1..bytes.len() {
            frames.sent(&bytes[end - 1..end]);
            assert_eq!(frames.is_between_frames(), end == 15, "{end}");
        }
        frames.sent(&bytes[bytes.len() - 1..]);
        assert!(frames.is_between_frames());
    }
}
