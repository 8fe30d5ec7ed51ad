//! Reads the ClientHello at the beginning of a TLS connection. The server gets the same bytes.
//!
//! Trust boundary: any program of the run sends these bytes. rustls parses them; this module finds one extension that rustls does not
//! show, and takes the message out of its records.
//!
//! The server name in the clear is the one that counts. Browsers send an `encrypted_client_hello` without content in every ClientHello,
//! made so that only the server can tell it from a real one. It is accepted and reported (decision 59).

use rustls::server::Acceptor;
use wire::worker::v1::connection_ended::Cause;

/// Most bytes until the ClientHello is complete.
pub const MOST: usize = 16 * 1024;

/// Type of a record that has a part of a handshake (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;
const RECORD_HEADER: usize = 5;
/// Length of the header of a handshake message, and of the ClientHello's version and random.
const MESSAGE_HEADER: usize = 4;
const VERSION_AND_RANDOM: usize = 2 + 32;
/// The extension `encrypted_client_hello` (RFC 9849).
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

/// Facts of a complete ClientHello.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Server name in the clear; empty if it has none.
    pub server_name: String,
    /// True if it has the extension `encrypted_client_hello`, with another ClientHello or with random bytes.
    pub has_encrypted: bool,
}

/// The bytes of a connection until its ClientHello is complete.
#[derive(Default)]
pub struct Collector {
    acceptor: Acceptor,
    bytes: Vec<u8>,
}

impl Collector {
    /// Takes further bytes. Returns the facts when the ClientHello is complete.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<Option<Hello>, Cause> {
        self.bytes.extend_from_slice(bytes);
        while !bytes.is_empty() {
            match self.acceptor.read_tls(&mut bytes) {
                Ok(read) if read > 0 => {}
                _ => return Err(Cause::WrongScheme),
            }
            let accepted = self.acceptor.accept().map_err(|_| Cause::WrongScheme)?;
            if let Some(accepted) = accepted {
                // Where the two parsers disagree, neither is believed.
                let has_encrypted = has_encrypted(&self.bytes).ok_or(Cause::WrongScheme)?;
                let server_name = accepted.client_hello().server_name().unwrap_or_default().to_owned();
                return Ok(Some(Hello { server_name, has_encrypted }));
            }
        }
        if self.bytes.len() >= MOST { Err(Cause::WrongScheme) } else { Ok(None) }
    }

    /// Returns the bytes that it still takes.
    pub fn remaining(&self) -> usize {
        MOST.saturating_sub(self.bytes.len())
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns all bytes, for the server.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Returns true if the ClientHello has the extension for an encrypted ClientHello; `None` if this module cannot find the extensions.
fn has_encrypted(records: &[u8]) -> Option<bool> {
    let message = message(records)?;
    let mut rest = message.get(MESSAGE_HEADER + VERSION_AND_RANDOM..)?;
    // Session id, cipher suites, compression methods.
    take_list::<1>(&mut rest)?;
    take_list::<2>(&mut rest)?;
    take_list::<1>(&mut rest)?;
    if rest.is_empty() {
        return Some(false);
    }
    let mut extensions = take_list::<2>(&mut rest)?;
    while !extensions.is_empty() {
        let (kind, after) = extensions.split_first_chunk::<2>()?;
        extensions = after;
        take_list::<2>(&mut extensions)?;
        if u16::from_be_bytes(*kind) == ENCRYPTED_CLIENT_HELLO {
            return Some(true);
        }
    }
    Some(false)
}

/// Takes the first handshake message out of its records.
fn message(mut records: &[u8]) -> Option<Vec<u8>> {
    let mut message = Vec::new();
    loop {
        if let Some([_, length @ ..]) = message.first_chunk::<MESSAGE_HEADER>() {
            let length = length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            if let Some(whole) = message.get(..MESSAGE_HEADER + length) {
                return Some(whole.to_vec());
            }
        }
        let ([kind, _, _, high, low], rest) = records.split_first_chunk::<RECORD_HEADER>()?;
        let (fragment, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))?;
        if *kind != HANDSHAKE {
            return None;
        }
        message.extend_from_slice(fragment);
        records = rest;
    }
}

/// Takes a list that has its length before it, in `N` bytes.
fn take_list<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk::<N>()?;
    let length = length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let (list, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some(list)
}

#[cfg(test)]
mod tests;
