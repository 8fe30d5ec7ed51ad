//! The fields of an audit record that pages show. The record is the daemon's, its texts are anybody's.

use serde_json::Value;
use wire::v1::AuditEvent;

/// A record's JSON, read once.
pub(crate) struct Record(Value);

impl Record {
    pub(crate) fn of(event: &AuditEvent) -> Self {
        Self(serde_json::from_str(&event.record_json).unwrap_or(Value::Null))
    }

    /// Returns the text at a JSON pointer, or an empty one.
    pub(crate) fn text(&self, pointer: &str) -> &str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the number at a JSON pointer.
    pub(crate) fn number(&self, pointer: &str) -> Option<u64> {
        self.0.pointer(pointer)?.as_u64()
    }

    /// Returns the value at a JSON pointer.
    pub(crate) fn value(&self, pointer: &str) -> Option<&Value> {
        self.0.pointer(pointer)
    }
}
