//! The error of a message that breaks the protocol.

/// A message that breaks the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken;
