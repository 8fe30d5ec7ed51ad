//! Lets the bytes of requests through only when their form has one meaning. Hyper reads after it.
//!
//! Trust boundary: any program of the run sends these bytes. Hyper alone is too lenient: where two lengths agree, or a length
//! accompanies an encoding, it takes one and goes on. Servers differ in what they take, so such a request is refused here. A head is
//! let through as a whole, when it is complete and well-formed; of a body only the framing is read.

use wire::worker::v1::connection_ended::Cause;

/// Most bytes of a head.
pub const HEAD: usize = 16 * 1024;
/// Most fields of a head.
const FIELDS: usize = 100;
/// Most bytes of a method.
const METHOD: usize = 32;
/// Most digits of the length of a chunk: it fits in 60 bits.
const DIGITS: u8 = 15;
/// The beginning of HTTP/2 without TLS (RFC 9113, section 3.4).
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n";
/// First byte of a TLS connection.
const TLS: u8 = 0x16;

/// The reader of the framing of requests.
#[derive(Debug, Default)]
pub struct Gate {
    state: State,
    head: Vec<u8>,
}

/// The part of a request that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Head,
    /// A body, of which so many bytes are missing.
    Body(u64),
    /// The length of a chunk, as far as it was read.
    Size {
        digits: u8,
        size: u64,
    },
    /// The line feed after the length of a chunk.
    SizeEnd(u64),
    /// The content of a chunk, of which so many bytes are missing.
    Chunk(u64),
    /// The line ends after a chunk and at the end of the body.
    ChunkCr,
    ChunkLf,
    LastCr,
    LastLf,
}

impl Gate {
    /// Takes bytes, and appends to `through` those that may go on.
    pub fn push(&mut self, bytes: &[u8], through: &mut Vec<u8>) -> Result<(), Cause> {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = match self.state {
                State::Head => self.push_head(rest, through)?,
                State::Body(missing) => {
                    let (rest, missing) = pass(rest, missing, through);
                    self.state = if missing == 0 { State::Head } else { State::Body(missing) };
                    rest
                }
                State::Chunk(missing) => {
                    let (rest, missing) = pass(rest, missing, through);
                    self.state = if missing == 0 { State::ChunkCr } else { State::Chunk(missing) };
                    rest
                }
                framing => {
                    let Some((byte, rest)) = rest.split_first() else { break };
                    self.state = step(framing, *byte).ok_or(Cause::Malformed)?;
                    through.push(*byte);
                    rest
                }
            };
        }
        Ok(())
    }

    /// Returns true if a part of a head is there.
    pub fn is_within_head(&self) -> bool {
        !self.head.is_empty()
    }

    /// Returns the bytes that were not let through.
    pub fn into_held(self) -> Vec<u8> {
        self.head
    }

    fn push_head<'a>(&mut self, bytes: &'a [u8], through: &mut Vec<u8>) -> Result<&'a [u8], Cause> {
        // The end can begin in the bytes that are there already.
        let from = self.head.len();
        let taken = bytes.get(..bytes.len().min(HEAD - from)).unwrap_or_default();
        self.head.extend_from_slice(taken);
        if self.head.first() == Some(&TLS) {
            return Err(Cause::WrongScheme);
        }
        let search = from.saturating_sub(3);
        let end =
            self.head.get(search..).and_then(|new| new.windows(4).position(|window| window == b"\r\n\r\n"));
        let end = end.map(|at| search + at + 4);
        let head = self.head.get(..end.unwrap_or(self.head.len())).unwrap_or_default();
        check_lines(head, from)?;
        let Some(end) = end else {
            return if self.head.len() >= HEAD { Err(Cause::Malformed) } else { Ok(&[]) };
        };
        self.state = check(head)?;
        through.extend_from_slice(head);
        self.head = Vec::new();
        Ok(bytes.get(end - from..).unwrap_or_default())
    }
}

/// Passes bytes of a body. Returns those after it, and how many are missing.
fn pass<'a>(bytes: &'a [u8], missing: u64, through: &mut Vec<u8>) -> (&'a [u8], u64) {
    let most = usize::try_from(missing).unwrap_or(usize::MAX).min(bytes.len());
    let (body, rest) = bytes.split_at(most);
    through.extend_from_slice(body);
    (rest, missing.saturating_sub(u64::try_from(most).unwrap_or(0)))
}

/// Returns the state after a byte of the framing of chunks. Extensions and trailers are refused: servers differ in how they read them.
fn step(state: State, byte: u8) -> Option<State> {
    match (state, byte) {
        (State::Size { digits, size }, byte) if byte.is_ascii_hexdigit() && digits < DIGITS => {
            let digit = char::from(byte).to_digit(16)?;
            Some(State::Size { digits: digits + 1, size: size << 4 | u64::from(digit) })
        }
        (State::Size { digits: 1.., size }, b'\r') => Some(State::SizeEnd(size)),
        (State::SizeEnd(0), b'\n') => Some(State::LastCr),
        (State::SizeEnd(size), b'\n') => Some(State::Chunk(size)),
        (State::ChunkCr, b'\r') => Some(State::ChunkLf),
        (State::ChunkLf, b'\n') => Some(State::Size { digits: 0, size: 0 }),
        (State::LastCr, b'\r') => Some(State::LastLf),
        (State::LastLf, b'\n') => Some(State::Head),
        _ => None,
    }
}

/// Returns an error if a line from `from` on does not end with CR and LF, or if the head begins with an empty one.
fn check_lines(head: &[u8], from: usize) -> Result<(), Cause> {
    let new = head.get(from.saturating_sub(1)..).unwrap_or_default();
    let is_wrong = |pair: &[u8]| (pair.first() == Some(&b'\r')) != (pair.get(1) == Some(&b'\n'));
    let begins = matches!(head.first(), Some(b'\r' | b'\n'));
    if begins || new.windows(2).any(is_wrong) { Err(Cause::Malformed) } else { Ok(()) }
}

/// Checks a whole head. Returns the part of the request that follows it.
fn check(head: &[u8]) -> Result<State, Cause> {
    if head.starts_with(HTTP2) {
        return Err(Cause::WrongScheme);
    }
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let parsed = request.parse(head).map_err(|_| Cause::Malformed)?;
    if parsed != httparse::Status::Complete(head.len()) {
        return Err(Cause::Malformed);
    }
    if request.method.is_none_or(|method| method.len() > METHOD) {
        return Err(Cause::Malformed);
    }
    let values = |name: &str| -> Vec<&[u8]> {
        let named = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
        named.map(|field| field.value).collect()
    };
    // A field that a server takes as one of the connection alone could be lost on the way.
    let essential = ["host", "content-length", "transfer-encoding"];
    let mut connection = values("connection").into_iter().flat_map(|value| value.split(|byte| *byte == b','));
    if connection.any(|option| {
        let option = option.trim_ascii();
        essential.iter().any(|name| option.eq_ignore_ascii_case(name.as_bytes()))
    }) {
        return Err(Cause::Malformed);
    }
    match (&values("content-length")[..], &values("transfer-encoding")[..]) {
        ([], []) => Ok(State::Head),
        ([length], []) => match self::length(length).ok_or(Cause::Malformed)? {
            0 => Ok(State::Head),
            length => Ok(State::Body(length)),
        },
        ([], [encoding]) if request.version == Some(1) && encoding.eq_ignore_ascii_case(b"chunked") => {
            Ok(State::Size { digits: 0, size: 0 })
        }
        _ => Err(Cause::Malformed),
    }
}

/// Reads a length, which is digits alone.
fn length(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|length| *length < u64::MAX / 2)
}

#[cfg(test)]
mod tests;
