//! Who decides, and what they say.

use serde::{Deserialize, Serialize};

use crate::clock::UnixMillis;
use crate::consent::{Level, Remember};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reviewer {
    /// Who connected. That they may decide at all is for the API's roles to say.
    pub principal: String,
    /// How far their word goes.
    pub level: Level,
    /// May decide on calls that they made themselves: for development.
    pub may_decide_own: bool,
}

/// What a reviewer wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// Let it run, once.
    Approve,
    Deny,
}

impl Choice {
    /// As in the record.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
        }
    }
}

/// A decision as it is handed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ballot {
    pub choice: Choice,
    /// How much more than this call the consent covers.
    pub remember: Remember,
    /// For the record and, when denied, for the agent.
    pub comment: String,
}

impl Ballot {
    /// A plain yes or no to this call alone.
    pub fn once(choice: Choice, comment: impl Into<String>) -> Self {
        Self { choice, remember: Remember::Once, comment: comment.into() }
    }
}

/// A decision as it was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    pub principal: String,
    pub level: Level,
    pub choice: Choice,
    pub at: UnixMillis,
    pub comment: String,
}
