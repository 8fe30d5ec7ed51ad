//! The source of a request.

/// The run that a request comes from, and its principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    pub run: String,
    pub principal: String,
}
