//! The answer of a rule.

use serde::{Deserialize, Serialize};

/// Answer of a rule. Ordered by strictness, so that the strictest of several is their maximum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// It goes to the server.
    Allow,
    /// A reviewer has to consent.
    Ask,
    /// It is refused.
    #[default]
    Deny,
}
