//! The end of a conversation with a process.

/// Reason that a process is no longer trusted.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Broken(String);

impl Broken {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }

    /// Returns the reason for a message that cannot be.
    pub(crate) fn sent(what: &str) -> Self {
        Self(format!("it sent {what}"))
    }
}
