//! Reads the tokens that a response of a model says, while the response passes.
//!
//! Two shapes are common. Their fields tell which one it is:
//!
//! - `usage: { prompt_tokens, completion_tokens, prompt_tokens_details: { cached_tokens } }`, also with `input_tokens`, `output_tokens` and
//!   `input_tokens_details`. The input includes what was read from a cache;
//! - `usage: { input_tokens, output_tokens, cache_read_input_tokens, cache_creation_input_tokens }`. The input excludes it.
//!
//! `usage` and `model` are fields of a JSON body or of an event's data, or of the object `message` or `response` in it. Deeper ones are
//! not read, because a model writes the arguments of a tool call there. The greatest number of each field in all reports counts,
//! because the reports of a stream are cumulative.
//!
//! A compressed response is not read. Where a rule meters, the process asks the server for `identity`.
//!
//! The server is not trusted with memory: a response may be of any size, and at most one value of 16 KiB is kept of it.

mod counts;
mod events;
mod object;

pub use counts::Reported;

use counts::Counts;
use events::Events;
use object::Scanner;

/// The tokens that a response says so far.
pub struct Usage {
    format: Format,
    counts: Counts,
}

enum Format {
    /// A JSON body, or several one after the other.
    Json(Scanner),
    Events(Events),
    /// A response that is not read.
    Other,
}

impl Usage {
    /// Begins with the headers of a response. `content_type` is empty if it has none.
    pub fn for_response(content_type: &str, content_encoding: Option<&str>) -> Self {
        let is_plain = content_encoding.is_none_or(|encoding| {
            let encoding = encoding.trim();
            encoding.is_empty() || encoding.eq_ignore_ascii_case("identity")
        });
        let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let format = match media_type.as_str() {
            "text/event-stream" if is_plain => Format::Events(Events::default()),
            other if is_plain && is_json(other) => Format::Json(Scanner::default()),
            _ => Format::Other,
        };
        Self { format, counts: Counts::default() }
    }

    /// Takes the next piece of the body.
    pub fn push(&mut self, piece: &[u8]) {
        match &mut self.format {
            Format::Json(scanner) => scanner.push(piece, &mut self.counts),
            Format::Events(events) => events.push(piece, &mut self.counts),
            Format::Other => {}
        }
    }

    /// Returns true if a stream of events has said that it is at its end. Its report came before.
    pub fn is_over(&self) -> bool {
        matches!(&self.format, Format::Events(events) if events.is_over())
    }

    /// Returns what the body said. The body may have ended before its end.
    pub fn finish(self) -> Reported {
        self.counts.reported()
    }
}

fn is_json(media_type: &str) -> bool {
    matches!(media_type, "application/json" | "application/x-ndjson" | "application/jsonl")
        || media_type.ends_with("+json")
}

#[cfg(test)]
mod tests;
