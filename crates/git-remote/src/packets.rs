//! Pkt-lines of a response, and the bands of a sideband in them.

use git_wire::Packet;

use crate::error::{RemoteError, shown};
use crate::server::Response;

/// Most bytes that are kept of a server's messages.
const MESSAGES: usize = 8 * 1024;

/// The packets of a response.
#[derive(Debug)]
pub(crate) struct Packets {
    response: Response,
    buffer: Vec<u8>,
    taken: usize,
    /// Messages of the server for people, cut.
    messages: Vec<u8>,
}

/// One packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Owned {
    Data(Vec<u8>),
    Flush,
}

impl Packets {
    pub(crate) fn new(response: Response) -> Self {
        Self { response, buffer: Vec::new(), taken: 0, messages: Vec::new() }
    }

    /// Returns the next packet; `None` at the end of the response.
    pub(crate) fn next(&mut self) -> Result<Option<Owned>, RemoteError> {
        loop {
            let rest = self.buffer.get(self.taken..).unwrap_or_default();
            if let Some((packet, length)) = Packet::read(rest)? {
                let owned = match packet {
                    Packet::Data(data) => Owned::Data(data.to_vec()),
                    Packet::Flush => Owned::Flush,
                    Packet::Delimiter | Packet::ResponseEnd => {
                        return Err(RemoteError::Malformed("a packet of another version of the protocol"));
                    }
                };
                self.taken += length;
                return Ok(Some(owned));
            }
            self.buffer.drain(..self.taken);
            self.taken = 0;
            if !self.response.read(&mut self.buffer)? {
                return if self.buffer.is_empty() { Ok(None) } else { Err(RemoteError::Closed) };
            }
        }
    }

    /// Returns the bytes of the first band in a packet, which are none for a message. The third band is an error.
    pub(crate) fn band(&mut self, packet: &[u8]) -> Result<Vec<u8>, RemoteError> {
        match packet.split_first() {
            Some((1, data)) => Ok(data.to_vec()),
            Some((2, message)) => {
                let space = MESSAGES.saturating_sub(self.messages.len()).min(message.len());
                self.messages.extend_from_slice(message.get(..space).unwrap_or_default());
                Ok(Vec::new())
            }
            Some((3, message)) => Err(RemoteError::Said(shown(&String::from_utf8_lossy(message)))),
            _ => Err(RemoteError::Malformed("a packet of no band")),
        }
    }

    /// Returns the messages of the server as they may be shown.
    pub(crate) fn messages(&self) -> String {
        shown(&String::from_utf8_lossy(&self.messages))
    }
}

/// Appends a line as one packet.
pub(crate) fn line(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(format!("{:04x}{text}\n", text.len() + 5).as_bytes());
}

/// Returns the error that a packet says.
pub(crate) fn said(packet: &[u8]) -> Option<RemoteError> {
    let words = packet.strip_prefix(b"ERR ")?;
    Some(RemoteError::Said(shown(&String::from_utf8_lossy(words))))
}
