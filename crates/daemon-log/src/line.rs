//! Makes each event one line.

use std::borrow::Cow;
use std::io::{self, Write};

use text::clean::escape_json;
use text::one_line;
use tracing_subscriber::fmt::MakeWriter;

/// Way to escape characters that do not belong into a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Escape {
    Text,
    /// Text with the colors of a terminal. The formatter has escaped other control sequences.
    ColoredText,
    Json,
}

/// Maker of writers that write one line for each event.
pub(crate) struct OneLine<M> {
    pub(crate) make: M,
    pub(crate) escape: Escape,
}

/// Writer of one event. The formatter writes an event as a whole.
pub(crate) struct Line<W> {
    to: W,
    escape: Escape,
}

impl<'a, W: Write, M: Fn() -> W> MakeWriter<'a> for OneLine<M> {
    type Writer = Line<W>;

    fn make_writer(&'a self) -> Line<W> {
        Line { to: (self.make)(), escape: self.escape }
    }
}

impl<W: Write> Write for Line<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let mut line = escaped(text.trim_end_matches('\n'), self.escape).into_owned();
        line.push('\n');
        self.to.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn escaped(text: &str, escape: Escape) -> Cow<'_, str> {
    match escape {
        Escape::Text => one_line(text),
        Escape::ColoredText => {
            text.split('\x1b').map(one_line).collect::<Vec<Cow<'_, str>>>().join("\x1b").into()
        }
        Escape::Json => escape_json(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(event: &str, escape: Escape) -> String {
        let mut written = Vec::new();
        Line { to: &mut written, escape }.write_all(event.as_bytes()).unwrap();
        String::from_utf8(written).unwrap()
    }

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        let event = "WARN a: x\nERROR forged\r\x1b[2J \u{202e}x\n";
        assert_eq!(written(event, Escape::Text), "WARN a: x\\nERROR forged\\r\\u{1b}[2J \\u{202e}x\n");
        assert_eq!(written("\x1b[33mWARN\x1b[0m a\nb\n", Escape::ColoredText), "\x1b[33mWARN\x1b[0m a\\nb\n");
        let json = written("{\"message\":\"a\\nb \u{202e}x\"}\n", Escape::Json);
        assert!(json.ends_with("}\n") && json.matches('\n').count() == 1, "{json}");
        assert!(!json.contains('\u{202e}'), "{json}");
    }
}
