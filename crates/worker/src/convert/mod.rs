//! Wire messages ⇄ domain types, each direction once.
//!
//! `cofferdam.v1` messages come from clients and from workers: nothing in them is believed before it has become an
//! [`ops::Operation`] or an [`ops::Outcome`].

mod bounds;
mod operation_from;
mod operation_to;
mod outcome_from;
mod outcome_to;

use ops::Reason;
use thiserror::Error;

pub use bounds::{bounds_from_wire, bounds_to_wire};
pub use operation_from::operation_from_wire;
pub use operation_to::operation_to_wire;
pub use outcome_from::outcome_from_wire;
pub use outcome_to::{failure_to_wire, outcome_to_wire, result_to_wire};

/// A message that does not make an operation or an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {message}")]
pub struct Malformed {
    /// `INVALID_ARGUMENT` or `SANDBOX_VIOLATION`.
    pub reason: Reason,
    /// Path of the field, such as `read.path`.
    pub field: String,
    /// What is wrong with it and what would be right.
    pub message: String,
}

impl Malformed {
    fn new(field: &str, message: impl Into<String>) -> Self {
        Self { reason: Reason::InvalidArgument, field: field.to_owned(), message: message.into() }
    }
}

#[cfg(test)]
mod tests;
