//! Finds the values of a few fields in a JSON object of any size, while it passes.
//!
//! It tells strings from structure and counts how deep it is; it does not check that the text is JSON. A text that is not gives wrong
//! values at worst.

use std::mem;

use super::counts::{Counts, Field};

/// Longest value that is kept, in bytes.
const MOST_VALUE: usize = 16 * 1024;
/// Longest name of a field that is compared.
const MOST_NAME: usize = 16;

/// The state of a JSON text.
#[derive(Default)]
pub(super) struct Scanner {
    /// Number of objects and arrays that are open.
    depth: usize,
    /// Number of the objects among them, from the outermost, whose fields are read: the outermost one, and `message` or `response` in it.
    read_depth: usize,
    string: Option<InString>,
    /// True if the next string is the name of a field that is compared.
    is_name_next: bool,
    /// The last name of a field; longer than the longest if it was cut.
    name: Vec<u8>,
    /// True after the name of a field whose object is read, too.
    enters: bool,
    value: Option<(Field, Vec<u8>)>,
}

/// The state of a string.
#[derive(Clone, Copy)]
struct InString {
    is_name: bool,
    is_escaped: bool,
}

impl Scanner {
    /// Takes the next piece. Adds the values that are complete.
    pub(super) fn push(&mut self, piece: &[u8], counts: &mut Counts) {
        for byte in piece {
            self.string = match self.string {
                Some(string) => self.in_string(string, *byte),
                None => self.outside(*byte, counts),
            };
        }
    }

    /// Takes a byte of a string. Returns the state after it.
    fn in_string(&mut self, string: InString, byte: u8) -> Option<InString> {
        self.keep(byte);
        if string.is_escaped {
            return Some(InString { is_escaped: false, ..string });
        }
        if byte == b'"' {
            return None;
        }
        if string.is_name && self.name.len() <= MOST_NAME {
            self.name.push(byte);
        }
        Some(InString { is_escaped: byte == b'\\', ..string })
    }

    /// Takes a byte outside of strings. Returns the state of the string that begins with it.
    fn outside(&mut self, byte: u8, counts: &mut Counts) -> Option<InString> {
        let is_in_read_object = self.read_depth > 0 && self.depth == self.read_depth;
        if is_in_read_object
            && matches!(byte, b',' | b'}' | b']')
            && let Some((field, value)) = self.value.take()
        {
            counts.add(field, (value.len() <= MOST_VALUE).then_some(value.as_slice()));
        }
        self.keep(byte);
        match byte {
            b'"' => {
                let is_name = mem::take(&mut self.is_name_next);
                if is_name {
                    self.name.clear();
                }
                return Some(InString { is_name, is_escaped: false });
            }
            b'{' => {
                let is_outermost = self.depth == 0;
                if is_outermost || is_in_read_object && self.enters {
                    self.read_depth += 1;
                    self.is_name_next = true;
                    self.enters = false;
                }
                self.depth = self.depth.saturating_add(1);
            }
            b'[' => self.depth = self.depth.saturating_add(1),
            b'}' | b']' => {
                self.read_depth -= usize::from(is_in_read_object);
                self.depth = self.depth.saturating_sub(1);
                self.is_name_next = false;
                self.enters = false;
            }
            b',' if is_in_read_object => {
                self.is_name_next = true;
                self.enters = false;
            }
            b':' if is_in_read_object => match self.name.as_slice() {
                b"model" => self.value = Some((Field::Model, Vec::new())),
                b"type" => self.value = Some((Field::Type, Vec::new())),
                b"usage" => self.value = Some((Field::Usage, Vec::new())),
                b"message" | b"response" => self.enters = self.read_depth == 1,
                _ => {}
            },
            _ => {}
        }
        None
    }

    /// Keeps a byte of the value of a field, up to one more than the longest.
    fn keep(&mut self, byte: u8) {
        if let Some((_, value)) = &mut self.value
            && value.len() <= MOST_VALUE
        {
            value.push(byte);
        }
    }
}
