//! Reviewers and their votes.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use timestamp::UnixMillis;

use crate::consent::Remember;
use policy::Level;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reviewer {
    /// The principal of the connection. The API's roles decide whether it may review at all.
    pub principal: String,
    /// Level up to which the reviewer may decide.
    pub level: Level,
    /// May decide on calls that they made themselves. For development.
    pub may_decide_own: bool,
}

/// A reviewer's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// Lets the call run, once.
    Approve,
    Deny,
}

impl Choice {
    /// Returns the name used in the record.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
        }
    }
}

/// A decision as a reviewer submits it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ballot {
    pub choice: Choice,
    /// Coverage of the consent beyond this call.
    pub remember: Remember,
    /// Comment for the record and, with a denial, for the agent.
    pub comment: String,
    /// Signature of the reviewer's passkey over this decision, verified by the caller, in the form of the record.
    pub proof: Option<Value>,
}

impl Ballot {
    /// Makes a decision on this call alone.
    pub fn once(choice: Choice, comment: impl Into<String>) -> Self {
        Self { choice, remember: Remember::Once, comment: comment.into(), proof: None }
    }
}

/// A decision that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    pub principal: String,
    pub level: Level,
    pub choice: Choice,
    pub at: UnixMillis,
    pub comment: String,
    /// Signature of the approver's passkey over the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Value>,
}
