//! Bodies of responses, piece by piece.

use crate::error::RemoteError;
use crate::head::Framing;
use crate::stream::Stream;

/// Most bytes of the line before a chunk, and of a trailer.
const LINE: usize = 1_024;
/// Most trailers.
const TRAILERS: usize = 64;

/// The rest of a body.
#[derive(Debug)]
pub(crate) struct Body {
    framing: Framing,
    /// Bytes of the body, or of the present chunk, that are to come.
    left: u64,
    /// True once a chunk has begun, whose end has to be read.
    is_within: bool,
    has_ended: bool,
}

impl Body {
    pub(crate) fn new(framing: Framing) -> Self {
        let left = match framing {
            Framing::Length(length) => length,
            Framing::Chunked | Framing::End => 0,
        };
        Self { framing, left, is_within: false, has_ended: framing == Framing::Length(0) }
    }

    /// Returns true once all of it was read.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Appends the next piece. Returns false at the end.
    pub(crate) fn read(&mut self, stream: &mut Stream, out: &mut Vec<u8>) -> Result<bool, RemoteError> {
        if !self.has_ended && self.framing == Framing::Chunked && self.left == 0 {
            self.next_chunk(stream)?;
        }
        if self.has_ended {
            return Ok(false);
        }
        if stream.bytes().is_empty() && !stream.fill()? {
            self.has_ended = self.framing == Framing::End;
            return if self.has_ended { Ok(false) } else { Err(RemoteError::Closed) };
        }
        let there = stream.bytes();
        let most = match self.framing {
            Framing::End => there.len(),
            _ => usize::try_from(self.left).unwrap_or(usize::MAX).min(there.len()),
        };
        out.extend_from_slice(there.get(..most).unwrap_or_default());
        stream.take(most);
        self.left = self.left.saturating_sub(most as u64);
        self.has_ended = self.left == 0 && matches!(self.framing, Framing::Length(_));
        Ok(true)
    }

    /// Reads the line before a chunk; after the last one also the trailers.
    fn next_chunk(&mut self, stream: &mut Stream) -> Result<(), RemoteError> {
        let malformed = || RemoteError::Malformed("a chunk of the response");
        if self.is_within && !line(stream)?.is_empty() {
            return Err(malformed());
        }
        let begin = line(stream)?;
        let digits = begin.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
        let length = std::str::from_utf8(digits).ok().filter(|_| is_number);
        let length = length.and_then(|digits| u64::from_str_radix(digits, 16).ok()).ok_or_else(malformed)?;
        (self.left, self.is_within) = (length, true);
        if length == 0 {
            for _ in 0..TRAILERS {
                if line(stream)?.is_empty() {
                    self.has_ended = true;
                    return Ok(());
                }
            }
            return Err(malformed());
        }
        Ok(())
    }
}

/// Reads a line without its end.
fn line(stream: &mut Stream) -> Result<Vec<u8>, RemoteError> {
    loop {
        let bytes = stream.bytes();
        if let Some(end) = bytes.windows(2).take(LINE).position(|two| two == b"\r\n") {
            let line = bytes.get(..end).unwrap_or_default().to_vec();
            stream.take(end + 2);
            return Ok(line);
        }
        if bytes.len() > LINE {
            return Err(RemoteError::Malformed("a line of the response is too long"));
        }
        if !stream.fill()? {
            return Err(RemoteError::Closed);
        }
    }
}
