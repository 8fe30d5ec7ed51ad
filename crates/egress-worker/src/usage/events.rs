//! Reads the data of server-sent events, each of which is a JSON object.

use super::counts::Counts;
use super::object::Scanner;

/// Name of the field that has the data, with its colon.
const DATA: &[u8] = b"data:";
/// Data of the last event of some streams.
const DONE: &[u8] = b"[DONE]";

/// The state of a stream of events.
#[derive(Default)]
pub(super) struct Events {
    line: Line,
    /// True if the last byte was a carriage return. A line feed after it ends no further line.
    is_after_return: bool,
    /// The data of the event so far.
    data: Scanner,
    /// Beginning of the line of data, longer than the text that ends a stream if it is another one.
    beginning: Vec<u8>,
    /// True if the last event of the stream has ended.
    is_over: bool,
}

/// The part of a line that was read.
#[derive(Clone, Copy)]
enum Line {
    /// Only bytes of `data:`, this many.
    Name(usize),
    Data,
    /// A line with another field.
    Other,
}

impl Default for Line {
    fn default() -> Self {
        Self::Name(0)
    }
}

impl Events {
    pub(super) fn push(&mut self, piece: &[u8], counts: &mut Counts) {
        for byte in piece {
            let is_second = *byte == b'\n' && self.is_after_return;
            self.is_after_return = *byte == b'\r';
            if is_second {
                continue;
            }
            if matches!(byte, b'\r' | b'\n') {
                self.end_line(counts);
                continue;
            }
            self.line = match self.line {
                Line::Name(count) if DATA.get(count) == Some(byte) && count + 1 == DATA.len() => Line::Data,
                Line::Name(count) if DATA.get(count) == Some(byte) => Line::Name(count + 1),
                Line::Name(_) | Line::Other => Line::Other,
                Line::Data => {
                    self.data.push(&[*byte], counts);
                    if self.beginning.len() <= DONE.len() + 1 {
                        self.beginning.push(*byte);
                    }
                    Line::Data
                }
            };
        }
    }

    fn end_line(&mut self, counts: &mut Counts) {
        match self.line {
            // An empty line ends the event.
            Line::Name(0) => {
                self.data = Scanner::default();
                self.is_over |= counts.is_last;
            }
            Line::Data => {
                // The data of an event may have several lines.
                self.data.push(b"\n", counts);
                counts.is_last |= is_done(&self.beginning);
            }
            Line::Name(_) | Line::Other => {}
        }
        self.line = Line::default();
        self.beginning.clear();
    }

    /// Returns true if the last event of the stream has ended.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }
}

/// Returns true for the text that ends a stream. The first space is not a part of the data.
fn is_done(line: &[u8]) -> bool {
    line.strip_prefix(b" ").unwrap_or(line) == DONE
}
