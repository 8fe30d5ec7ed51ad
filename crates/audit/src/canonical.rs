//! Encodes one record as one line, with the exact bytes that are hashed and written. `docs/src/audit-format.md` specifies this for other programs.
//!
//! ```text
//! {"v":1,"log":"…","sequence":N,"time":"…","previous":"…","kind":"…" … ,"hash":"…"}
//! └───────────── hashed, closed by a `}` ────────────────────────────┘└─ 75 bytes ─┘
//! ```
//!
//! The hash is computed from bytes, so a reader never has to encode anything again to check it.

use std::io::Write;

use serde::de::IgnoredAny;
use timestamp::Timestamp;

use crate::event::Event;
use crate::hash::{Hash, LogId};
use crate::record::Record;

/// Length of the longest line with its newline, in bytes.
pub const MAX_LINE: usize = 64 * 1024;

const TAIL_OPEN: &[u8] = b",\"hash\":\"";
const TAIL_CLOSE: &[u8] = b"\"}";
const TAIL: usize = TAIL_OPEN.len() + 64 + TAIL_CLOSE.len();
const HEAD_OPEN: &[u8] = b"{\"v\":1,\"log\":\"";

/// Position of a record, which is all that the chain needs to know about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) log: LogId,
    pub(crate) sequence: u64,
    pub(crate) time: Timestamp,
    pub(crate) previous: Hash,
    pub(crate) hash: Hash,
}

/// Reason why a line is not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// It does not have the form of a record.
    Malformed,
    /// It has the form, but its hash does not match its bytes.
    HashMismatch,
}

/// Position of the next record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) log: LogId,
    pub(crate) sequence: u64,
    pub(crate) time: Timestamp,
    pub(crate) previous: Hash,
}

/// Appends the line of `event` with its newline to `out`, and returns the record's hash.
pub(crate) fn encode(out: &mut Vec<u8>, header: &Header, event: &Event) -> Result<Hash, serde_json::Error> {
    let start = out.len();
    let Header { log, sequence, time, previous } = header;
    write!(
        out,
        "{{\"v\":1,\"log\":\"{log}\",\"sequence\":{sequence},\"time\":\"{time}\",\"previous\":\"{previous}\","
    )
    .map_err(serde_json::Error::io)?;
    let opened = out.len();
    serde_json::to_writer(&mut *out, event)?;
    out.remove(opened); // removes the event's own `{`, because its keys continue the object that is already open
    let hash = Hash::of(&out[start..]);
    out.pop(); // removes `}`, which is written again after the hash
    out.extend_from_slice(TAIL_OPEN);
    write!(out, "{hash}").map_err(serde_json::Error::io)?;
    out.extend_from_slice(TAIL_CLOSE);
    out.push(b'\n');
    Ok(hash)
}

/// Parses the envelope of a line without its newline, and checks the line's own hash.
pub(crate) fn open(line: &[u8]) -> Result<Envelope, Flaw> {
    let envelope = parse(line).ok_or(Flaw::Malformed)?;
    let body = &line[..line.len() - TAIL];
    if Hash::of_parts(&[body, b"}"]) != envelope.hash {
        return Err(Flaw::HashMismatch);
    }
    let text = std::str::from_utf8(line).map_err(|_| Flaw::Malformed)?;
    serde_json::from_str::<IgnoredAny>(text).map_err(|_| Flaw::Malformed)?;
    Ok(envelope)
}

/// Returns the whole record of a line whose envelope was opened.
pub(crate) fn record(envelope: &Envelope, line: &[u8]) -> Result<Record, serde_json::Error> {
    let event = serde_json::from_slice(line)?;
    let Envelope { log, sequence, time, previous, hash } = *envelope;
    Ok(Record { log, sequence, time, previous, hash, event })
}

/// Returns the sequence number of a line, or of the beginning of one.
///
/// The line is not verified, so the result may only be used to search.
pub(crate) fn sequence_of(line: &[u8]) -> Option<u64> {
    let mut rest = line;
    skip(&mut rest, HEAD_OPEN)?;
    take(&mut rest, 32)?;
    skip(&mut rest, b"\",\"sequence\":")?;
    number(&mut rest)
}

pub(crate) fn kind_of(line: &[u8]) -> Option<&str> {
    let mut rest = line;
    skip(&mut rest, HEAD_OPEN)?;
    take(&mut rest, 32)?;
    skip(&mut rest, b"\",\"sequence\":")?;
    number(&mut rest)?;
    take(&mut rest, b",\"time\":\"".len() + Timestamp::WIDTH + b"\",\"previous\":\"".len() + 64)?;
    skip(&mut rest, b"\",\"kind\":\"")?;
    let end = rest.iter().position(|b| *b == b'"')?;
    take(&mut rest, end)
}

/// Returns the time of a line, or of the beginning of one. The line is not verified.
pub(crate) fn time_of(line: &[u8]) -> Option<Timestamp> {
    let mut rest = line;
    skip(&mut rest, HEAD_OPEN)?;
    take(&mut rest, 32)?;
    skip(&mut rest, b"\",\"sequence\":")?;
    number(&mut rest)?;
    skip(&mut rest, b",\"time\":\"")?;
    take(&mut rest, Timestamp::WIDTH)?.parse().ok()
}

fn parse(line: &[u8]) -> Option<Envelope> {
    let (body, mut tail) = line.split_at_checked(line.len().checked_sub(TAIL)?)?;
    skip(&mut tail, TAIL_OPEN)?;
    let hash = take(&mut tail, 64)?.parse().ok()?;
    skip(&mut tail, TAIL_CLOSE)?;

    let mut rest = body;
    skip(&mut rest, HEAD_OPEN)?;
    let log = take(&mut rest, 32)?.parse().ok()?;
    skip(&mut rest, b"\",\"sequence\":")?;
    let sequence = number(&mut rest)?;
    skip(&mut rest, b",\"time\":\"")?;
    let time = take(&mut rest, Timestamp::WIDTH)?.parse().ok()?;
    skip(&mut rest, b"\",\"previous\":\"")?;
    let previous = take(&mut rest, 64)?.parse().ok()?;
    skip(&mut rest, b"\",\"kind\":\"")?;
    Some(Envelope { log, sequence, time, previous, hash })
}

fn skip(rest: &mut &[u8], literal: &[u8]) -> Option<()> {
    *rest = rest.strip_prefix(literal)?;
    Some(())
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a str> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    std::str::from_utf8(taken).ok()
}

/// Parses a decimal number without sign or leading zero that is followed by another character.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let digits = rest.iter().position(|b| !b.is_ascii_digit())?;
    let text = take(rest, digits)?;
    if text.starts_with('0') {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Kind;
    use crate::testing::{any_event, header, log_id};
    use proptest::prelude::*;

    fn line(event: &Event) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, &header(7), event).unwrap();
        assert_eq!(out.pop(), Some(b'\n'));
        out
    }

    #[test]
    fn a_line_is_plain_json_with_its_hash_last() {
        let line = line(&Event::new(Kind::DaemonStarted).principal("uid:0"));
        let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(value["sequence"], 7);
        assert_eq!(value["principal"], "uid:0");
        let envelope = open(&line).unwrap();
        assert_eq!(envelope.log, log_id());
        assert_eq!(value["hash"], envelope.hash.to_string());
        assert_eq!(sequence_of(&line), Some(7));
        assert_eq!(kind_of(&line), Some("daemon_started"));
        assert_eq!(time_of(&line), Some(envelope.time));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let line = line(&Event::new(Kind::CallIntent).run("r").input(serde_json::json!({"path": "a"})));
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut bad = line.clone();
                bad[at] ^= 1 << bit;
                assert!(open(&bad).is_err(), "byte {at} bit {bit}");
            }
        }
    }

    #[test]
    fn a_true_hash_over_nonsense_is_not_a_record() {
        for body in ["{\"v\":1}", "{\"v\":1,\"log\":\"00\"}", "[]", "{}"] {
            let hash = Hash::of(body.as_bytes());
            let bad = format!("{},\"hash\":\"{hash}\"}}", &body[..body.len() - 1]);
            assert_eq!(open(bad.as_bytes()), Err(Flaw::Malformed), "{bad}");
        }
        let mut cut = line(&Event::new(Kind::Alert));
        cut.truncate(cut.len() - TAIL);
        let mut open_string = cut.clone();
        open_string.extend_from_slice(b",\"x\":\"");
        let hash = Hash::of_parts(&[&open_string, b"}"]);
        open_string.extend_from_slice(format!(",\"hash\":\"{hash}\"}}").as_bytes());
        assert_eq!(open(&open_string), Err(Flaw::Malformed));
    }

    #[test]
    fn kinds_and_fields_of_later_versions_are_read() {
        let mut body = line(&Event::new(Kind::Alert));
        body.truncate(body.len() - TAIL);
        let text = String::from_utf8(body).unwrap().replace("\"alert\"", "\"of_tomorrow\",\"key\":\"k1\"");
        let hash = Hash::of(format!("{text}}}").as_bytes());
        let line = format!("{text},\"hash\":\"{hash}\"}}");
        let record = record(&open(line.as_bytes()).unwrap(), line.as_bytes()).unwrap();
        assert_eq!(record.event, Event::new(Kind::Unknown));
    }

    proptest! {
        #[test]
        fn written_lines_parse_back(event in any_event()) {
            let line = line(&event);
            let envelope = open(&line).unwrap();
            prop_assert_eq!(record(&envelope, &line).unwrap().event, event);
            prop_assert!(!line.contains(&b'\n'));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(open(&bytes).is_err());
        }
    }
}
