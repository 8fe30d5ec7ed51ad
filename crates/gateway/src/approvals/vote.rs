//! Who decides, what they say, and why a decision is not taken.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::approval::{ApprovalState, MAX_COMMENT_CHARS};
use super::memory::{NotRemembered, Remember};
use crate::clock::UnixMillis;

/// How far an approver's word goes. Ordered: a higher level has what a lower one has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Decides on calls up to the risk that the profile leaves to approvers.
    Approver,
    /// Decides on critical calls, too.
    Director,
}

impl Level {
    /// As in a policy file and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approver => "approver",
            Self::Director => "director",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

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

/// A decision was not taken. The approval is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecideError {
    /// No approval has this id, or it was settled long ago.
    #[error("no such approval")]
    NotFound,
    /// Somebody else was first.
    #[error("it is {state} already{}", .by.as_ref().map(|by| format!(", by {by}")).unwrap_or_default())]
    AlreadyDecided {
        state: ApprovalState,
        /// Who decided, if anybody did.
        by: Option<String>,
    },
    /// Its time was over when the decision came.
    #[error("it has expired")]
    Expired,
    /// The reviewer made the call.
    #[error("nobody decides on a call that they made themselves")]
    SelfApproval,
    /// The reviewer's word does not go that far.
    #[error("a decision on this call needs the level `{needed}`")]
    LevelTooLow { needed: Level },
    /// The reviewer has approved already; others are waited for.
    #[error("each approver has one vote, and yours is taken; {missing} more {} needed", if *.missing == 1 { "is" } else { "are" })]
    AlreadyVoted {
        /// How many votes it still needs.
        missing: u32,
    },
    /// The comment is too long.
    #[error("a comment has at most {MAX_COMMENT_CHARS} characters")]
    CommentTooLong,
    /// The consent cannot be remembered as asked.
    #[error("this consent cannot be remembered: {0}")]
    NotRemembered(#[from] NotRemembered),
}
