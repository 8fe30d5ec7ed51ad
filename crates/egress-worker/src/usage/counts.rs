//! Adds up what the reports of one response say.

use serde_json::{Map, Value};

/// Greatest number of tokens that is believed.
const MOST_TOKENS: u64 = 1 << 40;
/// Longest name of a model, in bytes. A longer one is cut.
const MOST_MODEL: usize = 128;

/// A field of a response.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field {
    Model,
    Usage,
    /// Kind of an event.
    Type,
}

/// The tokens that a response says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// Name of the model, at most 128 visible characters of ASCII; empty if the response has none.
    pub model: String,
    /// Tokens of the request that were neither read from a cache nor written to one, where the response tells them apart.
    pub input_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
    /// Tokens of the request that were read from a cache.
    pub cached_input_tokens: u64,
    /// Tokens of the request that were written to a cache.
    pub cache_write_tokens: u64,
    /// False if nothing could be read, or a number was not one of tokens. The numbers are 0.
    pub is_reported: bool,
}

/// The greatest numbers of all reports so far.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools)] // independent facts
pub(super) struct Counts {
    model: String,
    input: u64,
    output: u64,
    cached: u64,
    cache_write: u64,
    /// True if the input includes what was read from a cache.
    includes_cached: bool,
    has_report: bool,
    /// True if a report could not be read.
    is_broken: bool,
    /// True if an event was the last one of its stream.
    pub(super) is_last: bool,
}

/// Kinds of the last event of a stream.
const LAST: [&str; 4] = ["message_stop", "response.completed", "response.incomplete", "response.failed"];

/// A number that is not one of tokens.
struct NoCount;

impl Counts {
    /// Adds the value of a field in JSON. `None` if it was too long.
    pub(super) fn add(&mut self, field: Field, value: Option<&[u8]>) {
        let value = value.map(serde_json::from_slice::<Value>);
        match (field, value) {
            (Field::Usage, Some(Ok(Value::Object(usage)))) => {
                self.is_broken |= self.add_usage(&usage).is_err();
            }
            (Field::Model, Some(Ok(Value::String(model)))) if self.model.is_empty() => {
                if model.bytes().all(|byte| byte.is_ascii_graphic()) {
                    self.model = model;
                    self.model.truncate(MOST_MODEL);
                }
            }
            (Field::Type, Some(Ok(Value::String(kind)))) => self.is_last |= LAST.contains(&kind.as_str()),
            // The usage of a stream is null until the last event.
            (Field::Usage, Some(Ok(Value::Null))) | (Field::Model | Field::Type, _) => {}
            (Field::Usage, _) => self.is_broken = true,
        }
    }

    fn add_usage(&mut self, usage: &Map<String, Value>) -> Result<(), NoCount> {
        let prompt = tokens(usage, "prompt_tokens")?;
        let input = prompt.max(tokens(usage, "input_tokens")?);
        let output = tokens(usage, "completion_tokens")?.max(tokens(usage, "output_tokens")?);
        let cache_read = tokens(usage, "cache_read_input_tokens")?;
        let cache_write = tokens(usage, "cache_creation_input_tokens")?;
        let mut cached = cache_read;
        let mut has_details = false;
        for details in ["prompt_tokens_details", "input_tokens_details"] {
            if let Some(Value::Object(details)) = usage.get(details) {
                cached = cached.max(tokens(details, "cached_tokens")?);
                has_details = true;
            }
        }
        self.has_report |= input.is_some() || output.is_some();
        self.includes_cached |=
            prompt.is_some() || has_details && cache_read.is_none() && cache_write.is_none();
        for (greatest, count) in [
            (&mut self.input, input),
            (&mut self.output, output),
            (&mut self.cached, cached),
            (&mut self.cache_write, cache_write),
        ] {
            *greatest = (*greatest).max(count.unwrap_or_default());
        }
        Ok(())
    }

    /// Returns the greatest numbers of all reports.
    pub(super) fn reported(self) -> Reported {
        if self.is_broken || !self.has_report {
            return Reported { model: self.model, ..Reported::default() };
        }
        let included = if self.includes_cached { self.cached } else { 0 };
        Reported {
            model: self.model,
            input_tokens: self.input.saturating_sub(included),
            output_tokens: self.output,
            cached_input_tokens: self.cached,
            cache_write_tokens: self.cache_write,
            is_reported: true,
        }
    }
}

/// Returns a number of tokens. `None` if the field is missing or null.
fn tokens(fields: &Map<String, Value>, name: &str) -> Result<Option<u64>, NoCount> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_u64().filter(|count| *count <= MOST_TOKENS).map(Some).ok_or(NoCount),
    }
}
