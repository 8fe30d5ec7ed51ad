//! Reads the ClientHello at the beginning of a TLS connection. The server gets the same bytes.
//!
//! Trust boundary: any program of the run sends these bytes. A server must not find another name in them than this module does, so it
//! refuses what RFC 8446 leaves no place for: a second extension of a kind, a second name, bytes after the last field. It needs no
//! extension that TLS 1.2 can do without, because small clients such as busybox send few.
//!
//! The server name in the clear is the one that counts. Browsers send an `encrypted_client_hello` without content in every ClientHello,
//! made so that only the server can tell it from a real one. It is accepted and reported (decision 59).

use std::net::IpAddr;

use wire::worker::v1::connection_ended::Cause;

/// Most bytes until the ClientHello is complete.
pub const MOST: usize = 16 * 1024;

/// Type of a record that has a part of a handshake (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;
/// First byte of the version of records and messages, from SSL 3 to TLS 1.3.
const MAJOR_VERSION: u8 = 3;
const RECORD_HEADER: usize = 5;
/// Type of the message (RFC 8446, section 4).
const CLIENT_HELLO: u8 = 1;
const MESSAGE_HEADER: usize = 4;
const RANDOM: usize = 32;
/// Longest session id.
const SESSION_ID: usize = 32;
/// The extension `server_name`, and its only type of name (RFC 6066, section 3).
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// The extension `encrypted_client_hello`, and its two types (RFC 9849, section 5).
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
const OUTER: u8 = 0;
const INNER: u8 = 1;

/// Facts of a complete ClientHello.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Server name in the clear; empty if it has none, or an address in its place.
    pub server_name: String,
    /// True if it has the extension `encrypted_client_hello`, with another ClientHello or with random bytes.
    pub has_encrypted: bool,
}

/// The bytes of a connection until its ClientHello is complete.
#[derive(Default)]
pub struct Collector {
    bytes: Vec<u8>,
}

impl Collector {
    /// Takes further bytes. Returns the facts when the ClientHello is complete.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Option<Hello>, Cause> {
        self.bytes.extend_from_slice(bytes);
        match message(&self.bytes)? {
            Some(message) => client_hello(&message).map(Some).ok_or(Cause::WrongScheme),
            None if self.bytes.len() >= MOST => Err(Cause::WrongScheme),
            None => Ok(None),
        }
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

/// Takes a ClientHello, without its header, out of its records. `None` if it is not complete.
fn message(mut records: &[u8]) -> Result<Option<Vec<u8>>, Cause> {
    let mut message = Vec::new();
    loop {
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(Cause::WrongScheme);
        }
        if let Some(([_, length @ ..], content)) = message.split_first_chunk::<MESSAGE_HEADER>() {
            let length = number(length);
            // The messages that follow a ClientHello wait for the server.
            if length > MOST || content.len() > length {
                return Err(Cause::WrongScheme);
            }
            if content.len() == length {
                return Ok(Some(content.to_vec()));
            }
        }
        let begins_as_one = |at: usize, expected| records.get(at).is_none_or(|byte| *byte == expected);
        if !begins_as_one(0, HANDSHAKE) || !begins_as_one(1, MAJOR_VERSION) {
            return Err(Cause::WrongScheme);
        }
        let Some(([_, _, _, length @ ..], rest)) = records.split_first_chunk::<RECORD_HEADER>() else {
            return Ok(None);
        };
        let length = number(length);
        if length == 0 || length > MOST {
            return Err(Cause::WrongScheme);
        }
        // Also the beginning of a record is looked at.
        let (fragment, rest) = rest.split_at(length.min(rest.len()));
        message.extend_from_slice(fragment);
        if fragment.len() < length && message.first().is_none_or(|kind| *kind == CLIENT_HELLO) {
            return Ok(None);
        }
        records = rest;
    }
}

/// Parses the content of a ClientHello (RFC 8446, section 4.1.2). `None` if it is malformed.
fn client_hello(mut rest: &[u8]) -> Option<Hello> {
    let version = take(&mut rest, 2)?;
    take(&mut rest, RANDOM)?;
    let session_id = take_list::<1>(&mut rest)?;
    let cipher_suites = take_list::<2>(&mut rest)?;
    let compression_methods = take_list::<1>(&mut rest)?;
    if version.first() != Some(&MAJOR_VERSION)
        || session_id.len() > SESSION_ID
        || cipher_suites.is_empty()
        || cipher_suites.len() % 2 != 0
        || compression_methods.is_empty()
    {
        return None;
    }
    let mut hello = Hello::default();
    if rest.is_empty() {
        return Some(hello);
    }
    let mut extensions = take_list::<2>(&mut rest)?;
    if !rest.is_empty() {
        return None;
    }
    let mut kinds = Vec::new();
    while !extensions.is_empty() {
        let kind = number(take(&mut extensions, 2)?);
        let content = take_list::<2>(&mut extensions)?;
        if kinds.contains(&kind) {
            return None;
        }
        kinds.push(kind);
        if kind == usize::from(SERVER_NAME) {
            hello.server_name = server_name(content)?;
        } else if kind == usize::from(ENCRYPTED_CLIENT_HELLO) {
            if !is_encrypted_client_hello(content) {
                return None;
            }
            hello.has_encrypted = true;
        }
    }
    Some(hello)
}

/// Parses a `server_name`, which has exactly one name.
fn server_name(mut content: &[u8]) -> Option<String> {
    let mut names = take_list::<2>(&mut content)?;
    let kind = take(&mut names, 1)?;
    let name = take_list::<2>(&mut names)?;
    let name = std::str::from_utf8(name).ok()?;
    if kind != [HOST_NAME] || name.is_empty() || !name.is_ascii() || !names.is_empty() || !content.is_empty()
    {
        return None;
    }
    Some(if name.parse::<IpAddr>().is_ok() { String::new() } else { name.to_owned() })
}

/// Returns true if an `encrypted_client_hello` has the fields of its type.
fn is_encrypted_client_hello(mut content: &[u8]) -> bool {
    match take(&mut content, 1) {
        Some([OUTER]) => has_payload(&mut content).unwrap_or_default() && content.is_empty(),
        Some([INNER]) => content.is_empty(),
        _ => false,
    }
}

/// Takes a cipher suite, the number of a configuration, a key and the payload. Returns true if the payload is not empty.
fn has_payload(bytes: &mut &[u8]) -> Option<bool> {
    take(bytes, 5)?;
    take_list::<2>(bytes)?;
    Some(!take_list::<2>(bytes)?.is_empty())
}

/// Reads a number of at most four bytes.
fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}

/// Takes bytes.
fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

/// Takes a list that has its length before it, in `N` bytes.
fn take_list<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = number(take(bytes, N)?);
    take(bytes, length)
}

#[cfg(test)]
mod tests;
