//! One approval, and what is said about it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::binding::FileStates;
use crate::clock::UnixMillis;
use crate::decision::Risk;

/// Characters that a reviewer may write.
pub const MAX_COMMENT_CHARS: usize = 4_096;

/// Where an approval is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ApprovalState {
    /// Waits for a decision.
    Pending,
    /// Approved.
    Approved,
    /// Denied.
    Denied,
    /// Nobody decided in time.
    Expired,
    /// The call was cancelled, or its run ended.
    Cancelled,
}

impl ApprovalState {
    /// As in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Approved => "APPROVED",
            Self::Denied => "DENIED",
            Self::Expired => "EXPIRED",
            Self::Cancelled => "CANCELLED",
        }
    }
}

impl fmt::Display for ApprovalState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What became of the permit of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PermitState {
    /// There is none: nobody has approved.
    None,
    /// It can be redeemed.
    Available,
    /// It was redeemed.
    Issued,
    /// It was approved, but will never be redeemed.
    Withdrawn,
}

/// A call that needs consent, and what was decided. Serialised, it is what the daemon stores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// UUIDv7.
    pub approval_id: String,
    /// Where it is.
    pub state: ApprovalState,
    /// What became of its permit.
    pub permit: PermitState,
    /// The run.
    pub run_id: String,
    /// The call.
    pub call_id: String,
    /// For which agent.
    pub agent_id: String,
    /// The agent's role.
    pub role: String,
    /// The run's profile.
    pub profile: String,
    /// Which principal made the call.
    pub requested_by: String,
    /// Such as `git.commit`.
    pub operation: String,
    /// The operation for reviewers, secrets redacted.
    pub operation_json: String,
    /// What will run or change, secrets redacted.
    pub preview: String,
    /// Which rule asks.
    pub rule: String,
    /// Why it is asked.
    pub justification: String,
    /// How much harm it can do.
    pub risk: Risk,
    /// SHA-256 over what the approval is bound to.
    pub digest: String,
    /// Digest of the policy under which it was asked.
    pub policy_digest: String,
    /// When it was asked.
    pub created_at: UnixMillis,
    /// From when on nobody can decide any more.
    pub expires_at: UnixMillis,
    /// Reviewers were reminded.
    pub reminded: bool,
    /// Who decided.
    pub decided_by: Option<String>,
    /// When it left `PENDING`.
    pub decided_at: Option<UnixMillis>,
    /// What the reviewer wrote.
    pub comment: String,
}

/// What a reviewer is shown of a call. Made by the caller, secrets already redacted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Review {
    /// The operation as JSON.
    pub operation_json: String,
    /// Argv and working directory, or the diff that will result.
    pub preview: String,
    /// The files that the call names, as they are now. They must still be so when the approval is redeemed.
    pub files: FileStates,
}

/// Who decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reviewer {
    /// Who connected. That they may decide at all is for the API's roles to say.
    pub principal: String,
    /// May decide on calls that they made themselves: for development.
    pub may_decide_own: bool,
}

/// What a reviewer wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Let it run, once.
    Approve,
    /// Do not.
    Deny,
}

/// Which approvals to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApprovalFilter {
    /// Only in this state.
    pub state: Option<ApprovalState>,
    /// Only of this run.
    pub run_id: Option<String>,
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
        /// What it is.
        state: ApprovalState,
        /// Who decided, if anybody did.
        by: Option<String>,
    },
    /// Too late.
    #[error("it has expired")]
    Expired,
    /// The reviewer made the call.
    #[error("nobody decides on a call that they made themselves")]
    SelfApproval,
    /// The comment is too long.
    #[error("a comment has at most {MAX_COMMENT_CHARS} characters")]
    CommentTooLong,
}

/// Stored approvals were not taken up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// This process has approvals of its own already.
    #[error("approvals can only be restored before the first one is asked for")]
    NotEmpty,
    /// Two have the same id.
    #[error("the approval {0} is stored twice")]
    Duplicate(String),
    /// State and permit contradict each other.
    #[error("the approval {0} is damaged")]
    Damaged(String),
}

impl Approval {
    /// Bytes that reviewers are shown.
    pub(super) fn shown_bytes(&self) -> usize {
        self.operation_json.len() + self.preview.len()
    }

    /// Whether its permit can still come, or a decision.
    pub(super) fn is_open(&self) -> bool {
        self.state == ApprovalState::Pending || self.permit == PermitState::Available
    }

    /// Whether its fields can have come about.
    pub(super) fn is_sound(&self) -> bool {
        let approved = self.state == ApprovalState::Approved;
        let pending = self.state == ApprovalState::Pending;
        approved != (self.permit == PermitState::None) && pending == self.decided_at.is_none()
    }
}
