//! Decisions of the gateway, in the terms that the record uses.

use std::time::Duration;

use operations::Reason;
use policy::{Risk, Verdict};
use serde::Serialize;

/// One decision, for the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    pub verdict: Verdict,
    /// The rule that decided, such as `profile review: operations.write` or `profile build: exec rule 3: cargo test`.
    pub rule: String,
    /// Harm that the call can do.
    pub risk: Risk,
    /// Digest of the policy that was in force.
    pub policy_digest: String,
    /// Reason for the decision: the rule's text, or the meaning of the rule.
    pub justification: String,
}

/// A call that the gateway does not let through. Its message is for the agent: no host path, no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub reason: Reason,
    /// Says what was attempted and what to change.
    pub message: String,
    /// The rule that refused, such as `validation` or `profile review: exec deny list`.
    pub rule: String,
    /// Time after which the same call is let through, if no other call comes first. `None` if waiting does not help.
    pub retry_after: Option<Duration>,
    /// The agent does not hold the operation: its role does not have it, its role or a team denies it, or it was revoked.
    pub not_held: bool,
    /// Digest of the policy that was in force.
    pub policy_digest: String,
}

impl From<Refusal> for refusal::Refusal {
    fn from(refused: Refusal) -> Self {
        let refusal = Self::new(refused.reason, refused.message).with("rule", refused.rule);
        match refused.retry_after {
            Some(after) => refusal.retry_after(after),
            None => refusal,
        }
    }
}
