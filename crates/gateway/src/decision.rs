//! What the gateway decides, in the words that the record uses.

use std::fmt;
use std::time::Duration;

use ops::Reason;
use serde::{Deserialize, Serialize};

/// A rule's answer. Ordered by strictness, so that the strictest of several is their maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It runs by itself.
    Allow,
    /// A reviewer has to consent.
    Ask,
    /// It does not run.
    Deny,
}

impl Verdict {
    /// As in a policy file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How much harm a call can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Risk {
    /// It only looks.
    Low,
    /// It looks at something that may be secret.
    Medium,
    /// It changes something, or runs a program that may.
    High,
    /// It destroys.
    Critical,
}

impl Risk {
    /// As in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One decision, for the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    pub verdict: Verdict,
    /// Which rule decided, such as `profile review: operations.write` or `profile build: exec rule 3: cargo test`.
    pub rule: String,
    /// How much harm the call can do.
    pub risk: Risk,
    /// Digest of the policy that was in force.
    pub policy_digest: String,
    /// Why: the rule's own words, or what the rule amounts to.
    pub justification: String,
}

/// A call that the gateway does not let through. Its message is meant for the agent: no host path, no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub reason: Reason,
    /// What was attempted, and what to change.
    pub message: String,
    /// The rule that refused, such as `validation` or `profile review: exec deny list`.
    pub rule: String,
    /// The same call is let through after this time, if no other comes before it: where time alone mends it.
    pub retry_after: Option<Duration>,
    /// The agent does not hold the operation: its role does not have it, its role or a team denies it, or it was revoked.
    pub not_held: bool,
    /// Digest of the policy that was in force.
    pub policy_digest: String,
}
