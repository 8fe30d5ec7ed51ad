//! The description of an invalid request.

use jail::PathRefusal;
use thiserror::Error;

use crate::Reason;

/// Error of a message that is not a valid operation or outcome.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {message}")]
pub struct Malformed {
    /// `INVALID_ARGUMENT` or `SANDBOX_VIOLATION`.
    pub reason: Reason,
    /// Path of the field, such as `read.path`.
    pub field: String,
    /// Description of the error and of valid values.
    pub message: String,
    /// Rule of the path grammar that was broken; only with `SANDBOX_VIOLATION`.
    pub refusal: Option<PathRefusal>,
}

impl Malformed {
    /// Describes a field with an invalid value.
    pub fn new(field: &str, message: impl Into<String>) -> Self {
        Self {
            reason: Reason::InvalidArgument,
            field: field.to_owned(),
            message: message.into(),
            refusal: None,
        }
    }

    /// Describes a path outside of the paths that a run may access.
    pub(crate) fn refused(field: &str, refusal: PathRefusal) -> Self {
        Self {
            reason: Reason::SandboxViolation,
            field: field.to_owned(),
            message: refusal.to_string(),
            refusal: Some(refusal),
        }
    }
}
