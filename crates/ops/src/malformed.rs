//! What is wrong with a request.

use jail::PathRefusal;
use thiserror::Error;

use crate::Reason;

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
    /// With `SANDBOX_VIOLATION`: which rule of the path grammar was broken.
    pub refusal: Option<PathRefusal>,
}

impl Malformed {
    /// A field that is wrong in itself.
    pub fn new(field: &str, message: impl Into<String>) -> Self {
        Self {
            reason: Reason::InvalidArgument,
            field: field.to_owned(),
            message: message.into(),
            refusal: None,
        }
    }

    /// A path that leaves what a run may touch.
    pub(crate) fn refused(field: &str, refusal: PathRefusal) -> Self {
        Self {
            reason: Reason::SandboxViolation,
            field: field.to_owned(),
            message: refusal.to_string(),
            refusal: Some(refusal),
        }
    }
}
