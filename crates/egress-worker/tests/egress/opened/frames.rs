//! Frames of HTTP/2 as bytes, for sides that break its rules.

use std::io::{ErrorKind, Read, Write};

use super::NAME;

/// Types of frames, RFC 9113, section 6.
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;
/// Flags.
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Setting of the first window of each stream.
pub(super) const INITIAL_WINDOW: u16 = 4;

/// Returns a frame.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns a frame with one setting.
pub(super) fn setting(name: u16, value: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

/// Returns the beginning of a program's connection.
pub(super) fn preface() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

/// Returns the header fields of `GET /` as HPACK has them: four pseudo headers.
pub(super) fn get() -> Vec<u8> {
    let length = u8::try_from(NAME.len()).unwrap();
    // `:method`, `:path` and `:scheme` of the static table, and `:authority` with a literal value.
    [&[0x82, 0x84, 0x87, 0x01, length], NAME.as_bytes()].concat()
}

/// Returns a field with a new name and a value of at most 126 bytes. HPACK keeps none of it.
pub(super) fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

/// Returns fields of which few bytes stand for many: one of 4,000 bytes that HPACK keeps, and references to it.
pub(super) fn bomb() -> Vec<u8> {
    let mut fields = vec![0x40, 6];
    fields.extend_from_slice(b"x-bomb");
    // The length 4,000 in the form of section 5.1 of RFC 7541.
    fields.extend_from_slice(&[0x7f, 0xa1, 0x1e]);
    fields.extend_from_slice(&[b'y'; 4_000]);
    fields.extend_from_slice(&[0xbe; 12_000]);
    fields
}

/// Fills a buffer. `None` at the end of the connection; a silence fails the test.
fn fill(stream: &mut impl Read, bytes: &mut [u8]) -> Option<()> {
    let silent = [ErrorKind::WouldBlock, ErrorKind::TimedOut];
    stream.read_exact(bytes).map_err(|error| assert!(!silent.contains(&error.kind()), "{error}")).ok()
}

/// Reads a frame. Returns its type, its stream and its payload; `None` at the end of the connection.
pub(super) fn read_frame(stream: &mut impl Read) -> Option<(u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    fill(stream, &mut head)?;
    let number = |bytes: &[u8]| bytes.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
    let mut payload = vec![0; usize::try_from(number(&head[..3])).unwrap()];
    fill(stream, &mut payload)?;
    Some((head[3], number(&head[5..]), payload))
}

/// Reads frames up to one of these types. Returns its type and its stream; `None` at the end of the connection.
pub(super) fn read_until(stream: &mut impl Read, kinds: &[u8]) -> Option<(u8, u32)> {
    loop {
        let (kind, number, _) = read_frame(stream)?;
        if kinds.contains(&kind) {
            return Some((kind, number));
        }
    }
}

/// Begins as a server, and reads up to the first request. Returns the number of its stream.
pub(super) fn accept(stream: &mut (impl Read + Write)) -> Option<u32> {
    let mut preface = [0; PREFACE.len()];
    stream.read_exact(&mut preface).ok()?;
    assert_eq!(preface, PREFACE);
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).ok()?;
    read_until(stream, &[HEADERS]).map(|(_, number)| number)
}
