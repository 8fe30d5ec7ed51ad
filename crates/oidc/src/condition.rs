//! What an operator wants to know of an issuer's keys.

use std::time::Duration;

/// Whether an issuer's keys can be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The issuer's name in the configuration.
    pub issuer: String,
    /// The keys in force. Without them every token is refused.
    pub held: Option<Held>,
    /// Why the last look at the keys failed.
    pub wrong: Option<String>,
}

/// Keys in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// How many there are.
    pub keys: usize,
    /// After this time they are too old, unless they are fetched again. Those of a file never are.
    pub left: Option<Duration>,
}
