//! The lines of a recording: [asciicast v2](https://docs.asciinema.org/manual/asciicast/v2/).
//!
//! A header is followed by one line for each event: `[seconds, "o", "text"]` for output, `"i"` for input, `"r"` for a new size and `"m"`, a
//! marker, for a signal. The format contains text, but a terminal has bytes. A character that is cut by the end of an event is moved to the
//! next event of the same direction. Invalid UTF-8 becomes U+FFFD. The audit log has the true number of bytes.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

/// Size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub rows: u16,
    pub columns: u16,
}

/// First line of a recording.
pub struct Header<'a> {
    pub size: Size,
    pub term: &'a str,
    /// Seconds since 1970-01-01 UTC.
    pub timestamp: u64,
    /// Title for people who browse recordings.
    pub title: &'a str,
}

/// An event of a terminal.
#[derive(Debug)]
pub enum Entry {
    Output(Bytes),
    Input(Bytes),
    Resize(Size),
    /// Number of a signal that was sent to the terminal.
    Signal(u32),
}

/// Encodes events as lines. It holds at most one incomplete character for each direction.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    output: Text,
    input: Text,
}

impl Header<'_> {
    pub fn line(&self) -> String {
        let header = json!({
            "version": 2,
            "width": self.size.columns,
            "height": self.size.rows,
            "timestamp": self.timestamp,
            "title": self.title,
            "env": { "TERM": self.term },
        });
        format!("{header}\n")
    }
}

impl Encoder {
    /// Returns the line of an event, or an empty string if there is no complete character yet.
    pub(super) fn line(&mut self, at: Duration, entry: &Entry) -> String {
        match entry {
            Entry::Output(bytes) => text_line(at, "o", &self.output.next(bytes)),
            Entry::Input(bytes) => text_line(at, "i", &self.input.next(bytes)),
            Entry::Resize(size) => line(at, "r", &format!("{}x{}", size.columns, size.rows)),
            Entry::Signal(signal) => line(at, "m", &format!("signal {signal}")),
        }
    }

    /// Returns the lines for incomplete characters at the end.
    pub(super) fn finish(&mut self, at: Duration) -> String {
        text_line(at, "o", self.output.finish()) + &text_line(at, "i", self.input.finish())
    }
}

fn text_line(at: Duration, kind: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { line(at, kind, text) }
}

fn line(at: Duration, kind: &str, text: &str) -> String {
    let text = serde_json::Value::from(text);
    format!("[{}.{:06}, \"{kind}\", {text}]\n", at.as_secs(), at.subsec_micros())
}

/// Decoder for the bytes of one direction.
#[derive(Debug, Default)]
struct Text {
    /// Beginning of a character, at most three bytes.
    incomplete: Vec<u8>,
}

impl Text {
    fn next(&mut self, bytes: &[u8]) -> String {
        let mut left = std::mem::take(&mut self.incomplete);
        left.extend_from_slice(bytes);
        let mut rest = left.as_slice();
        let mut text = String::with_capacity(rest.len());
        loop {
            let error = match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    return text;
                }
                Err(error) => error,
            };
            let (valid, invalid) = rest.split_at(error.valid_up_to());
            text.push_str(&String::from_utf8_lossy(valid));
            let Some(length) = error.error_len() else {
                self.incomplete = invalid.to_vec();
                return text;
            };
            text.push(char::REPLACEMENT_CHARACTER);
            rest = &invalid[length..];
        }
    }

    fn finish(&mut self) -> &'static str {
        if std::mem::take(&mut self.incomplete).is_empty() { "" } else { "\u{fffd}" }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use serde_json::{Value, json};

    use super::{Encoder, Entry, Header, Size, Text};

    const AT: Duration = Duration::from_micros(1_250_007);

    fn parsed(line: &str) -> Value {
        assert!(line.ends_with('\n'));
        serde_json::from_str(line).unwrap()
    }

    #[test]
    fn each_event_is_a_line_of_json() {
        let size = Size { rows: 24, columns: 80 };
        let header = Header { size, term: "xterm", timestamp: 7, title: "a \"run\"" };
        assert_eq!(
            parsed(&header.line()),
            json!({ "version": 2, "width": 80, "height": 24, "timestamp": 7, "title": "a \"run\"",
                    "env": { "TERM": "xterm" } })
        );
        let mut encoder = Encoder::default();
        let mut of = |entry| parsed(&encoder.line(AT, &entry));
        assert_eq!(
            of(Entry::Output(Bytes::from_static(b"\x1b[2J\r\n"))),
            json!([1.250_007, "o", "\u{1b}[2J\r\n"])
        );
        assert_eq!(of(Entry::Input(Bytes::from_static(b"\x03"))), json!([1.250_007, "i", "\u{3}"]));
        assert_eq!(of(Entry::Resize(Size { rows: 30, columns: 100 })), json!([1.250_007, "r", "100x30"]));
        assert_eq!(of(Entry::Signal(2)), json!([1.250_007, "m", "signal 2"]));
    }

    #[test]
    fn a_character_may_arrive_in_pieces_between_the_other_direction() {
        let mut encoder = Encoder::default();
        let pump = Bytes::from_static("💧".as_bytes());
        let output = |part| Entry::Output(pump.slice(part));
        assert_eq!(encoder.line(AT, &output(0..2)), "");
        assert_eq!(parsed(&encoder.line(AT, &Entry::Input(Bytes::from_static(b"x"))))[2], "x");
        assert_eq!(parsed(&encoder.line(AT, &output(2..4)))[2], "💧");
        assert_eq!(encoder.finish(AT), "");
        assert_eq!(encoder.line(AT, &output(0..1)), "");
        assert_eq!(parsed(&encoder.finish(AT))[2], "\u{fffd}");
    }

    #[test]
    fn cut_positions_do_not_change_the_text() {
        let bytes = b"a\xff\xc3\xa4\xe2\x82\xac\xf0\x9f\x92\xa7\xe2\x82z\xc3";
        let whole = String::from_utf8_lossy(bytes);
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let mut text = Text::default();
                let mut got: String = [&bytes[..first], &bytes[first..second], &bytes[second..]]
                    .map(|part| text.next(part))
                    .concat();
                got.push_str(text.finish());
                assert_eq!(got, whole, "cut at {first} and {second}");
            }
        }
    }
}
