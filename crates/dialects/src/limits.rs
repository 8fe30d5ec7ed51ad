//! The limits that descriptions name: those of the run for which the tools are listed.

use std::num::NonZeroU64;
use std::time::Duration;

use serde_json::Value;

/// Limits of a run's calls, from its profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes that one read returns.
    pub max_read_bytes: u64,
    /// Most bytes of a file's content in a call.
    pub max_write_bytes: u64,
    /// Most bytes that a file may have after an edit or a patch of it.
    pub max_edit_bytes: u64,
    /// Most bytes of each stream of a command that are shown.
    pub max_output_bytes: u64,
    /// Timeout of a command that sets none, seconds.
    pub default_timeout_s: u64,
    /// Longest timeout of a command, seconds.
    pub max_timeout_s: u64,
    /// Limits of a canonical command. Dialects use the defaults.
    pub command: operations::CommandLimits,
}

impl Default for Limits {
    /// Returns the limits of the strictest shipped profiles.
    fn default() -> Self {
        let bounds = operations::Bounds::default();
        Self {
            max_read_bytes: bounds.max_read_bytes,
            max_write_bytes: bounds.max_write_bytes,
            max_edit_bytes: bounds.max_edit_bytes,
            max_output_bytes: bounds.max_output_bytes,
            default_timeout_s: operations::CommandLimits::DEFAULT_TIMEOUT.as_secs(),
            max_timeout_s: operations::CommandLimits::MAX_TIMEOUT.as_secs(),
            command: operations::CommandLimits::USUAL,
        }
    }
}

impl Limits {
    /// Sets the default timeout of a dialect to thirty seconds. A shorter one of the profile stays.
    #[must_use]
    pub(crate) fn in_thirty_seconds(&self) -> Self {
        Self { default_timeout_s: self.default_timeout_s.min(30), ..*self }
    }

    /// Returns the longest timeout that an operation may have. A profile with a shorter one refuses the others itself.
    pub fn longest_timeout(&self) -> Duration {
        Duration::from_secs(self.max_timeout_s).max(operations::CommandLimits::MAX_TIMEOUT)
    }

    /// Returns the limits of a canonical command.
    pub fn canonical(&self) -> operations::CommandLimits {
        operations::CommandLimits {
            default_timeout: Duration::from_secs(self.default_timeout_s),
            longest_timeout: self.longest_timeout(),
            ..self.command
        }
    }

    /// Returns the timeout of a command in milliseconds, or the default if it sets none.
    pub(crate) fn timeout_ms(&self, given: Option<NonZeroU64>) -> u64 {
        given.map_or(self.default_timeout_s.saturating_mul(1_000), NonZeroU64::get)
    }

    /// Returns a JSON Schema with the limits in its descriptions.
    pub(crate) fn fill_all(&self, schema: &Value) -> Value {
        match schema {
            Value::String(text) => self.fill(text).into(),
            Value::Array(items) => items.iter().map(|item| self.fill_all(item)).collect(),
            Value::Object(members) => {
                members.iter().map(|(name, value)| (name.clone(), self.fill_all(value))).collect()
            }
            other => other.clone(),
        }
    }

    /// Replaces names in braces, such as `{max_read_bytes}`, by the limits.
    pub(crate) fn fill(&self, text: &str) -> String {
        let named = [
            ("{max_read_bytes}", self.max_read_bytes),
            ("{max_write_bytes}", self.max_write_bytes),
            ("{max_edit_bytes}", self.max_edit_bytes),
            ("{max_output_bytes}", self.max_output_bytes),
            ("{default_timeout_s}", self.default_timeout_s),
            ("{max_timeout_s}", self.max_timeout_s),
        ];
        named.into_iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, &grouped(value)))
    }
}

/// Converts a number and saturates. The number's upper limit is far below `u32::MAX`, so validation refuses a saturated one.
pub(crate) fn saturated(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Groups digits: `100000` becomes `100,000`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::{Limits, grouped};

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (50_000, "50,000"), (1_234_567, "1,234,567")]
        {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn limits_replace_their_names_and_other_braces_stay() {
        let limits = Limits { max_read_bytes: 7_000, ..Limits::default() };
        assert_eq!(
            limits.fill(r#"{max_read_bytes} of {max_write_bytes}, {"path": "a"}"#),
            r#"7,000 of 100,000, {"path": "a"}"#
        );
    }
}
