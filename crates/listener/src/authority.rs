//! Replaces the value of `:authority` on a Unix socket, where it has no meaning.
//!
//! grpcurl before 1.9, grpc-python, grpc-java and others send the socket's path there, plain or percent-encoded. RFC
//! 3986 does not permit such an authority, and h2 ends the stream with `PROTOCOL_ERROR` before our code sees it (h2's
//! pull request 487 is open since 2020). So the bytes from a client pass through this filter, which sets the value of
//! every `:authority` that is sent as a literal to [`LOCAL`]. The name can be an entry of the static table, letters
//! (grpcio and everything that is built on gRPC's C core), or an entry that the client made before. All other bytes
//! stay as they are.
//!
//! HPACK (RFC 7541) makes this safe without decoding. A literal is replaced in place, so both sides insert entries at
//! the same times. The new value is never longer than the old one, so every entry in the table of the client's encoder
//! is in the decoder's table, too. A block that is split over frames, or that cannot be parsed, passes unchanged, and
//! h2 judges it. Its entries are not counted. From then on, names that refer to entries of the client are no longer
//! looked up.

use std::collections::VecDeque;

pub(super) const PREFACE: usize = 24;
const FRAME_HEADER: usize = 9;
/// Largest HEADERS frame that is held back, bytes: the largest that h2 accepts. A longer one passes unchanged.
const MAX_FRAME: usize = crate::MAX_FRAME as usize;

const HEADERS: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// Authority of a local client, as h2 sees it.
const LOCAL: &[u8] = b"local";
/// `:authority` as a string literal, plain and Huffman-coded (RFC 7541, 5.2 and appendix B).
const NAMES: [&[u8]; 2] = [b"\x0a:authority", b"\x88\xb8\x3b\x53\x39\xec\x32\x7d\x7f"];
/// Index of `:authority` in the static table.
const STATIC: usize = 1;
/// Index of the first entry of the dynamic table, which is the last one that was made (RFC 7541, 2.3.3).
const DYNAMIC: usize = 62;
/// Maximum number of entries in a table of 4,096 bytes, the largest that h2 grants (RFC 7541, 4.1).
const ENTRIES: u64 = 128;

/// Filter of a client's bytes on their way to h2. Holds at most one HEADERS frame.
pub(super) struct AuthorityFilter {
    /// Number of bytes that pass unread: the rest of the preface or of a frame's payload.
    passing: usize,
    greeted: bool,
    /// A frame's header, and the payload of a HEADERS frame, as far as they have arrived.
    held: Vec<u8>,
    made: Made,
}

/// The entries that the client made in its dynamic table, as far as that is needed to find authorities.
#[derive(Default)]
struct Made {
    count: u64,
    /// Numbers of the entries that are authorities, oldest first.
    authorities: VecDeque<u64>,
    /// True after a block whose entries were not counted.
    lost: bool,
}

impl Made {
    fn insert(&mut self, is_authority: bool) {
        self.count += 1;
        if is_authority {
            self.authorities.push_back(self.count);
        }
        while self.authorities.front().is_some_and(|oldest| oldest + ENTRIES <= self.count) {
            self.authorities.pop_front();
        }
    }

    /// Returns true if the entry at this index is an authority.
    fn is_authority(&self, index: usize) -> bool {
        let number = index.checked_sub(DYNAMIC).and_then(|back| self.count.checked_sub(back as u64));
        !self.lost && number.is_some_and(|number| self.authorities.contains(&number))
    }
}

impl AuthorityFilter {
    pub(super) fn new() -> Self {
        Self { passing: PREFACE, greeted: false, held: Vec::new(), made: Made::default() }
    }

    /// Returns true if the client has sent the preface of HTTP/2.
    pub(super) fn is_greeted(&self) -> bool {
        self.greeted
    }

    /// Takes bytes from the client, and appends the bytes for h2 to `output`.
    pub(super) fn filter(&mut self, mut input: &[u8], output: &mut Vec<u8>) {
        while !input.is_empty() {
            if self.passing > 0 {
                let (pass, rest) = input.split_at(self.passing.min(input.len()));
                output.extend_from_slice(pass);
                self.passing -= pass.len();
                self.greeted |= self.passing == 0;
                input = rest;
                continue;
            }
            let (taken, rest) = input.split_at((self.wanted() - self.held.len()).min(input.len()));
            self.held.extend_from_slice(taken);
            input = rest;
            if self.held.len() == self.wanted() {
                self.release(output);
            }
        }
    }

    /// Returns the number of bytes that have to be held before they can go on.
    fn wanted(&self) -> usize {
        match self.held.get(..FRAME_HEADER) {
            Some(header) if is_held(header) => FRAME_HEADER + length(header),
            _ => FRAME_HEADER,
        }
    }

    fn release(&mut self, output: &mut Vec<u8>) {
        let (header, payload) = self.held.split_at(FRAME_HEADER);
        if is_held(header) {
            if let Some(payload) = rewritten(header[4], payload, &mut self.made) {
                // The new payload is not longer, so its length fits.
                let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
                output.extend_from_slice(&length[1..]);
                // The new payload has no padding.
                output.extend_from_slice(&[header[3], header[4] & !PADDED]);
                output.extend_from_slice(&header[5..]);
                output.extend_from_slice(&payload);
            } else {
                self.made.lost = true;
                output.extend_from_slice(&self.held);
            }
        } else {
            self.made.lost |= header[3] == HEADERS;
            self.passing = length(header);
            output.extend_from_slice(header);
        }
        self.held.clear();
    }
}

fn length(header: &[u8]) -> usize {
    usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2])
}

/// Returns true if this frame is held back until it is complete, because it contains a whole header block.
fn is_held(header: &[u8]) -> bool {
    header[3] == HEADERS && header[4] & END_HEADERS != 0 && (1..=MAX_FRAME).contains(&length(header))
}

/// Returns the payload without padding and with [`LOCAL`] as authority.
///
/// Returns `None` if the block cannot be parsed. Then some of its entries may have been counted, and others not.
fn rewritten(flags: u8, payload: &[u8], made: &mut Made) -> Option<Vec<u8>> {
    let mut block = payload;
    if flags & PADDED != 0 {
        let (padding, rest) = block.split_first()?;
        block = rest.get(..rest.len().checked_sub(usize::from(*padding))?)?;
    }
    let priority = if flags & PRIORITY != 0 { 5 } else { 0 };
    let (priority, mut block) = block.split_at_checked(priority)?;
    let mut output = priority.to_vec();
    while !block.is_empty() {
        let field = Field::parse(block, made)?;
        let (bytes, rest) = block.split_at_checked(field.length)?;
        block = rest;
        if field.is_inserted {
            made.insert(field.is_authority);
        }
        // A Huffman-coded value is never longer than the plain one. Its length is therefore a lower bound of the size
        // that the client's table counts.
        match field.value_at.filter(|at| field.is_authority && field.length - at > LOCAL.len()) {
            Some(value_at) => {
                output.extend_from_slice(&bytes[..value_at]);
                output.push(u8::try_from(LOCAL.len()).ok()?);
                output.extend_from_slice(LOCAL);
            }
            None => output.extend_from_slice(bytes),
        }
    }
    Some(output)
}

/// One representation of a header field, RFC 7541, section 6.
struct Field {
    length: usize,
    /// Offset of its value, if it has one.
    value_at: Option<usize>,
    is_authority: bool,
    /// True if it becomes an entry of the dynamic table.
    is_inserted: bool,
}

impl Field {
    fn parse(bytes: &[u8], made: &Made) -> Option<Self> {
        let first = *bytes.first()?;
        let (prefix, is_inserted) = match first {
            // Indexed field (1…), or dynamic table size update (001…): only one integer.
            0x80.. => return Self::number(bytes, 7),
            0x40.. => (6, true),
            0x20.. => return Self::number(bytes, 5),
            _ => (4, false),
        };
        let (name, mut at) = integer(bytes, prefix)?;
        let is_authority = if name == 0 {
            let start = at;
            at += string(bytes.get(at..)?)?;
            NAMES.contains(&&bytes[start..at])
        } else {
            name == STATIC || made.is_authority(name)
        };
        let value = string(bytes.get(at..)?)?;
        Some(Self { length: at + value, value_at: Some(at), is_authority, is_inserted })
    }

    fn number(bytes: &[u8], bits: u32) -> Option<Self> {
        let length = integer(bytes, bits)?.1;
        Some(Self { length, value_at: None, is_authority: false, is_inserted: false })
    }
}

/// Returns the number of bytes of a string literal, its length included.
fn string(bytes: &[u8]) -> Option<usize> {
    let (length, at) = integer(bytes, 7)?;
    at.checked_add(length).filter(|end| *end <= bytes.len())
}

/// Reads an integer with a prefix of `bits`, RFC 7541, 5.1. Returns its value and its number of bytes.
fn integer(bytes: &[u8], bits: u32) -> Option<(usize, usize)> {
    let most = (1_usize << bits) - 1;
    let mut value = usize::from(*bytes.first()?) & most;
    if value < most {
        return Some((value, 1));
    }
    // Three more bytes hold every length that fits into a frame.
    for (i, byte) in bytes.iter().skip(1).take(3).enumerate() {
        value += usize::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some((value, i + 2));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{AuthorityFilter, FRAME_HEADER, HEADERS, PREFACE};

    const PATH: &[u8] = b"/run/cofferdam/cofferd.sock";

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags, 0, 0, 0, 1]);
        frame.extend(payload);
        frame
    }

    fn literal(first: u8, value: &[u8]) -> Vec<u8> {
        let mut field = vec![first, u8::try_from(value.len()).unwrap()];
        field.extend(value);
        field
    }

    /// `:method POST`, an authority, a literal with a new name, an entry of the dynamic table.
    fn block(authority: &[u8]) -> Vec<u8> {
        let mut block = vec![0x83];
        block.extend(authority);
        block.extend([0x40, 2, b't', b'e', 8]);
        block.extend(b"trailers");
        block.push(0xbe);
        block
    }

    fn through(frames: &[u8], step: usize) -> Vec<u8> {
        let mut stream = vec![b'p'; PREFACE];
        stream.extend(frames);
        let (mut filter, mut output) = (AuthorityFilter::new(), Vec::new());
        for bytes in stream.chunks(step) {
            filter.filter(bytes, &mut output);
        }
        assert_eq!(&output[..PREFACE], [b'p'; PREFACE]);
        output.split_off(PREFACE)
    }

    #[test]
    fn a_path_as_authority_is_replaced_in_every_form_however_it_is_cut() {
        for first in [0x41, 0x01, 0x11] {
            let data = frame(0, 1, &[HEADERS; 300]);
            let stream =
                [frame(4, 0, &[]), frame(HEADERS, 4, &block(&literal(first, PATH))), data.clone()].concat();
            let wanted =
                [frame(4, 0, &[]), frame(HEADERS, 4, &block(&literal(first, b"local"))), data].concat();
            for step in [1, 2, 7, 9, 10, 4096] {
                assert_eq!(through(&stream, step), wanted, "step {step}");
            }
        }
    }

    /// A literal with a new name, which becomes an entry.
    fn in_letters(name: &[u8], value: &[u8]) -> Vec<u8> {
        [&[0x40], name, &[u8::try_from(value.len()).unwrap()], value].concat()
    }

    /// A literal with the name of the entry 63 + `more`.
    fn by_entry(more: u8, value: &[u8]) -> Vec<u8> {
        [&[0x7f, more], &literal(0, value)[1..]].concat()
    }

    /// grpcio 1.60 to 1.85 sends the name in letters first, and then that entry. Each block makes one of its own behind it.
    #[test]
    fn a_name_in_letters_and_the_entry_that_it_makes_are_authorities() {
        let grpcio = b"tmp%2Fcofferd.sock";
        for name in [&b"\x0a:authority"[..], b"\x88\xb8\x3b\x53\x39\xec\x32\x7d\x7f"] {
            let stream = |value: &[u8]| {
                let blocks = [block(&in_letters(name, value)), block(&[0xbf]), block(&by_entry(1, value))];
                blocks.map(|block| frame(HEADERS, 4, &block)).concat()
            };
            for step in [1, 9, 4096] {
                assert_eq!(through(&stream(grpcio), step), stream(b"local"), "step {step}");
            }
        }
    }

    #[test]
    fn other_header_names_and_uncounted_entries_are_untouched() {
        let other = frame(HEADERS, 4, &block(&in_letters(b"\x0ax-authorit", PATH)));
        assert_eq!(through(&other, 9), other);
        let stream = |value: &[u8]| {
            [
                frame(HEADERS, 4, &block(&in_letters(b"\x0a:authority", value))),
                // The first of two frames of a block.
                frame(HEADERS, 0, &[0x83]),
                frame(HEADERS, 4, &block(&by_entry(0, PATH))),
            ]
            .concat()
        };
        assert_eq!(through(&stream(PATH), 9), stream(b"local"));
    }

    #[test]
    fn after_a_block_that_cannot_be_parsed_no_entry_is_looked_up() {
        // The length of this value is 127, with more bytes than the filter reads. h2 makes an entry, and the entry 63 is no
        // longer the authority.
        let long = [&[0x40, 1, b'x', 0x7f, 0x80, 0x80, 0x80, 0][..], &[b'x'; 127]].concat();
        let stream = |value: &[u8]| {
            [
                frame(HEADERS, 4, &block(&in_letters(b"\x0a:authority", value))),
                frame(HEADERS, 4, &long),
                frame(HEADERS, 4, &block(&by_entry(0, PATH))),
                frame(HEADERS, 4, &block(&literal(0x41, value))),
            ]
            .concat()
        };
        assert_eq!(through(&stream(PATH), 9), stream(b"local"));
    }

    #[test]
    fn a_frame_of_the_largest_size_is_understood() {
        let stream = |value: &[u8]| {
            let long = [block(&literal(0x41, value)), vec![0x83; 200_000]].concat();
            [frame(HEADERS, 4, &long), frame(HEADERS, 4, &block(&by_entry(0, value)))].concat()
        };
        assert_eq!(through(&stream(PATH), 4096), stream(b"local"));
    }

    #[test]
    fn padding_and_priority_are_understood() {
        let priority = [0x80, 0, 0, 0, 200];
        let mut payload = vec![3];
        payload.extend(priority);
        payload.extend(block(&literal(0x41, PATH)));
        payload.extend([0; 3]);
        let wanted = [&priority[..], &block(&literal(0x41, b"local"))].concat();
        assert_eq!(
            through(&frame(HEADERS, 0x4 | 0x8 | 0x20, &payload), 5),
            frame(HEADERS, 0x4 | 0x20, &wanted)
        );
    }

    #[test]
    fn unchanged_and_malformed_frames_pass_untouched() {
        let cases = [
            frame(HEADERS, 4, &block(&[])),
            // Shorter than what would replace it.
            frame(HEADERS, 4, &block(&literal(0x41, b"unix"))),
            // Not a whole block.
            frame(HEADERS, 0, &block(&literal(0x41, PATH))),
            // A string that ends behind the block, an endless integer, padding longer than the frame, nothing at all.
            frame(HEADERS, 4, &[0x41, 99, b'x']),
            frame(HEADERS, 4, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            frame(HEADERS, 0x4 | 0x8, &[200, 0x83]),
            frame(HEADERS, 4, &[]),
            // Longer than a frame may be.
            frame(HEADERS, 4, &vec![0x83; 300_000]),
            frame(9, 4, &block(&literal(0x41, PATH))),
        ];
        for case in cases {
            for step in [1, 8, FRAME_HEADER, 100_000] {
                assert_eq!(through(&case, step), case);
            }
        }
    }
}
