//! Condition of an issuer's keys, for the operator.

use std::time::Duration;

/// Availability of an issuer's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Name of the issuer in the configuration.
    pub issuer: String,
    /// Keys in force. Without them every token is refused.
    pub held: Option<Held>,
    /// Reason why the last refresh of the keys failed.
    pub wrong: Option<String>,
}

/// Keys in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Number of keys.
    pub keys: usize,
    /// Time until they are too old, unless they are fetched again. `None` for keys from a file, which never expire.
    pub left: Option<Duration>,
}
