//! Replaces characters in foreign text that could control a terminal or deceive its reader.
//!
//! A file in a run can contain anything: escape sequences that rewrite the screen or the clipboard, a carriage return that hides the line
//! before it, or bidirectional controls that make code look different from what it does. Each such character is replaced by visible ones:
//! control characters by their picture (`␛`), and all others by their code (`<U+202E>`).

use std::borrow::Cow;
use std::fmt::Write;

pub use crate::Shape;

pub fn clean(text: &str, shape: Shape) -> Cow<'_, str> {
    crate::without_hidden(text, shape, picture)
}

/// Cleans bytes that arrive in pieces.
///
/// A character that is cut between two pieces remains whole. Bytes that are not UTF-8 become the replacement character.
#[derive(Debug, Default)]
pub struct Cleaner {
    /// Beginning of a character, at most three bytes.
    begun: Vec<u8>,
}

impl Cleaner {
    /// Cleans and returns the next piece.
    pub fn push(&mut self, piece: &[u8]) -> String {
        let mut bytes = std::mem::take(&mut self.begun);
        bytes.extend_from_slice(piece);
        let mut out = String::with_capacity(bytes.len());
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            out.push_str(&clean(chunk.valid(), Shape::Block));
            let cut = chunks.peek().is_none()
                && std::str::from_utf8(chunk.invalid()).is_err_and(|error| error.error_len().is_none());
            if cut {
                self.begun = chunk.invalid().to_vec();
            } else if !chunk.invalid().is_empty() {
                out.push(char::REPLACEMENT_CHARACTER);
            }
        }
        out
    }

    /// Ends the text, and returns the replacement character for an unfinished character.
    pub fn end(&mut self) -> &'static str {
        if std::mem::take(&mut self.begun).is_empty() { "" } else { "\u{fffd}" }
    }
}

/// Escapes all characters in a JSON text that could control a terminal.
///
/// Such characters can only occur in strings, so the value remains the same for a parser.
pub fn escape_json(json: &str) -> Cow<'_, str> {
    crate::without_hidden(json, Shape::Block, |c, out| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    })
}

fn picture(c: char, out: &mut String) {
    match c {
        '\0'..='\x1f' => out.push(char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}')),
        '\x7f' => out.push('\u{2421}'),
        c => {
            let _ = write!(out, "<U+{:04X}>", u32::from(c));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_not_copied() {
        assert!(matches!(clean("fn main() {\n\t// Grüße\n}", Shape::Block), Cow::Borrowed(_)));
    }

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(clean("\x1b[2Ja\rb\x07\x7f", Shape::Block), "␛[2Ja␍b␇␡");
        assert_eq!(clean("a\u{9b}31m", Shape::Block), "a<U+009B>31m");
        assert_eq!(clean("if \u{202e}x\u{200b}", Shape::Block), "if <U+202E>x<U+200B>");
    }

    #[test]
    fn pieces_are_cleaned_like_the_whole_at_every_cut() {
        let bytes = b"\xc3\xa4\x1b[2J\xe2\x82\xac\xff\xf0\x9f\x98\x80\xc2\x9b\xe2\x80\xaex\xe2\x82";
        let expected = "ä␛[2J€\u{fffd}😀<U+009B><U+202E>x\u{fffd}";
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let mut cleaner = Cleaner::default();
                let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                let mut text: String = pieces.map(|piece| cleaner.push(piece)).concat();
                text.push_str(cleaner.end());
                assert_eq!(text, expected, "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn a_line_stays_a_line() {
        assert_eq!(clean("a\n\tb", Shape::Line), "a␊␉b");
        assert_eq!(clean("a\n\tb", Shape::Block), "a\n\tb");
    }

    #[test]
    fn json_keeps_its_value() {
        let value = serde_json::json!({"a": "x\u{9b}y\u{7f}\u{202e}\u{e0041}\x1b"});
        let text = value.to_string();
        let safe = escape_json(&text);
        assert!(safe.is_ascii(), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
    }
}
