//! Replaces secrets that a server echoes by `*`, before the program of the run reads them.
//!
//! A text is also found in the forms that servers give it: base64, percent-encoded, and escaped in JSON. It is not found in a body that
//! is compressed, or in other forms. Lengths stay, so that no frame of a protocol changes.
//!
//! Every byte of every occurrence is replaced, also where occurrences overlap. So the result is the same however a body is divided into
//! pieces.
//!
//! The bytes that wait for the next piece do not depend on the texts. A program that stores bytes at a server and reads them back would
//! otherwise see how many of them a secret begins with, and find it one character after the other.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use zeroize::Zeroizing;

use crate::needles::{Needles, Position};

/// Length of the shortest text that is hidden, in bytes. Shorter ones occur in harmless bodies.
const SHORTEST: usize = 4;
const MASK: u8 = b'*';
/// Characters that no program escapes in a URL (RFC 3986, section 2.3).
const UNRESERVED: &[u8] = b"-._~";
/// Further characters that JavaScript's `encodeURIComponent` leaves as they are.
const UNRESERVED_IN_SCRIPTS: &[u8] = b"-._~!'()*";

/// The texts to hide in one response, and the state of its body.
pub struct Hide {
    needles: Needles,
    position: Position,
    /// The end of the body so far that waits. Bytes of it that are part of a text are replaced.
    held: Vec<u8>,
    /// Most bytes that wait: all of the longest text but its last.
    most: usize,
}

impl Hide {
    /// Ignores texts of less than four bytes.
    pub fn new(texts: Vec<Zeroizing<Vec<u8>>>) -> Self {
        let mut forms = Vec::new();
        for text in texts.into_iter().filter(|text| text.len() >= SHORTEST) {
            for form in encoded(&text).into_iter().chain([text]) {
                if !forms.contains(&form) {
                    forms.push(form);
                }
            }
        }
        let needles = Needles::new(forms);
        Self {
            position: needles.start(),
            most: needles.longest().saturating_sub(1),
            needles,
            held: Vec::new(),
        }
    }

    /// Replaces the texts in a header's value. `None` if it has none.
    pub fn header(&self, value: &[u8]) -> Option<Vec<u8>> {
        let mut masked = None;
        self.needles.scan(&mut self.needles.start(), value, |found| {
            let masked = masked.get_or_insert_with(|| value.to_vec());
            mask(masked, found.end, found.length);
        });
        masked
    }

    /// Takes the next piece of the body. Returns the bytes that do not wait: texts are of visible ASCII, so all that come before the
    /// last other byte can no longer be part of one.
    pub fn push(&mut self, piece: Bytes) -> Bytes {
        let before = self.held.len();
        let mut masked = None;
        let held = self.held.as_slice();
        self.needles.scan(&mut self.position, &piece, |found| {
            let masked = masked.get_or_insert_with(|| [held, &piece[..]].concat());
            mask(masked, before + found.end, found.length);
        });
        let kept = self.waiting(held, &piece);
        if masked.is_none() && before == 0 {
            let mut ready = piece;
            self.held = ready.split_off(ready.len().saturating_sub(kept)).to_vec();
            return ready;
        }
        let mut all = masked.unwrap_or_else(|| [held, &piece[..]].concat());
        self.held = all.split_off(all.len().saturating_sub(kept));
        all.into()
    }

    /// Returns the number of bytes at the end of the body so far that wait.
    fn waiting(&self, held: &[u8], piece: &[u8]) -> usize {
        let visible =
            held.iter().chain(piece).rev().take(self.most).take_while(|byte| byte.is_ascii_graphic());
        // A text of other bytes waits as long as it has to.
        visible.count().max(self.position.longest())
    }

    /// Returns the bytes that wait, after a pause. The search goes on: the rest of a text that began in them is replaced.
    pub fn release(&mut self) -> Bytes {
        std::mem::take(&mut self.held).into()
    }

    /// Returns the rest of the body.
    pub fn finish(&mut self) -> Bytes {
        self.position = self.needles.start();
        std::mem::take(&mut self.held).into()
    }
}

/// Replaces the `length` bytes before `end`.
fn mask(bytes: &mut [u8], end: usize, length: usize) {
    if let Some(text) = bytes.get_mut(end.saturating_sub(length)..end) {
        text.fill(MASK);
    }
}

/// Returns the forms in which servers repeat a text, beside the text itself.
fn encoded(text: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    // Credentials are given in base64 with its padding, which servers may leave out.
    let end = text.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let unpadded = text.get(..end).filter(|unpadded| unpadded.len() >= SHORTEST).unwrap_or(text);
    let forms = [
        unpadded.to_vec(),
        STANDARD_NO_PAD.encode(text).into_bytes(),
        URL_SAFE_NO_PAD.encode(text).into_bytes(),
        percent_encoded(text, UNRESERVED, false),
        percent_encoded(text, UNRESERVED, true),
        percent_encoded(text, UNRESERVED_IN_SCRIPTS, false),
        escaped_in_json(text, b""),
        escaped_in_json(text, b"/"),
        // Encoders whose result is safe within HTML.
        escaped_in_json(text, b"&<>"),
    ];
    forms.into_iter().map(Zeroizing::new).collect()
}

fn percent_encoded(text: &[u8], plain: &[u8], in_lower_case: bool) -> Vec<u8> {
    let mut encoded = String::with_capacity(3 * text.len());
    for byte in text {
        if byte.is_ascii_alphanumeric() || plain.contains(byte) {
            encoded.push(char::from(*byte));
        } else if in_lower_case {
            // Writing to a `String` cannot fail.
            let _ = write!(encoded, "%{byte:02x}");
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded.into_bytes()
}

/// Escapes what JSON requires, and the characters of `further`.
fn escaped_in_json(text: &[u8], further: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(6 * text.len());
    for byte in text {
        match byte {
            b'"' | b'\\' => escaped.extend([b'\\', *byte]),
            b'/' if further.contains(byte) => escaped.extend(b"\\/"),
            byte if further.contains(byte) => escaped.extend(format!("\\u{byte:04x}").bytes()),
            byte => escaped.push(*byte),
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
