//! One approval, and what is said about it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::OnceLock;

use jail::SandboxPath;
use ops::{Bound, Bounds, FileState, Held, Operation};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::vote::{Choice, Vote};
use crate::admission::Ticket;
use crate::caller::{Caller, RunScope};
use crate::clock::UnixMillis;
use crate::consent::{Consent, Form, Level};
use crate::decision::{Decision, Risk, Verdict};
use crate::policy::Terms;

/// Characters that a reviewer may write.
pub const MAX_COMMENT_CHARS: usize = 4_096;

/// Where an approval is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ApprovalState {
    /// Waits for a decision.
    Pending,
    Approved,
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

/// How an approval is bound, and to what. One of another format is never redeemed.
pub const FORMAT: u32 = 4;

/// A call that needs consent, and what was decided. Serialised, it is what the daemon stores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// [`FORMAT`] where this release has asked; 0 where it was not said yet.
    #[serde(default)]
    pub format: u32,
    /// UUIDv7.
    pub approval_id: String,
    pub state: ApprovalState,
    /// What became of its permit.
    pub permit: PermitState,
    pub run_id: String,
    pub call_id: String,
    pub agent_id: String,
    pub role: String,
    pub profile: String,
    /// Which principal made the call.
    pub requested_by: String,
    /// Such as `git.commit`.
    pub operation: String,
    /// The operation for reviewers, secrets redacted.
    pub operation_json: String,
    /// What will run or change, secrets redacted.
    pub preview: String,
    /// The rule that asks.
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
    /// The setting that gives reviewers this time. Empty in what older releases have stored.
    #[serde(default)]
    pub time_from: String,
    /// Whether reviewers were reminded.
    pub reminded: bool,
    /// Whether they are, at half-time.
    pub remind: bool,
    /// How many different approvers have to consent.
    pub needed: u32,
    /// The level that each of them needs.
    pub level: Level,
    /// What was said so far, each approver once.
    pub votes: Vec<Vote>,
    /// Whether the run is frozen while this is pending.
    pub freeze: bool,
    /// In which forms beside *once* the consent may be remembered.
    pub offers: Vec<Form>,
    /// As [`Self::digest`], but without the call: what is remembered in the form `digest`.
    pub consent_digest: String,
    /// The words of a command of which a prefix may be remembered; secrets are *not* redacted.
    pub argv: Vec<String>,
    /// The files that the call names, by path in alias form, as they were when it was asked.
    pub files: Vec<(String, FileState)>,
    /// What the effect is held to.
    #[serde(default)]
    pub held: Option<Held>,
    /// The consent to more than this call that was given with it.
    pub remembered: Option<Consent>,
    /// Whose decision settled it.
    pub decided_by: Option<String>,
    /// When it left `PENDING`.
    pub decided_at: Option<UnixMillis>,
    /// What the reviewer wrote.
    pub comment: String,
}

/// What a reviewer is shown of a call. Made by the caller, secrets already redacted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Review {
    /// The id that the approval will have, where it had to be known before; `None`: a new one.
    pub approval_id: Option<Uuid>,
    /// The operation as JSON.
    pub operation_json: String,
    /// Argv and working directory, or the diff that will result.
    pub preview: String,
    /// What the call uses, from the same look: the effect must find it so.
    pub bound: Bound,
}

/// Which approvals to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApprovalFilter {
    /// Only in this state.
    pub state: Option<ApprovalState>,
    /// Only of this run.
    pub run_id: Option<String>,
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
        let files: usize = self.files.iter().map(|(path, _)| path.len() + 64).sum();
        self.operation_json.len() + self.preview.len() + files
    }

    /// What it is bound to. `None`: it cannot have been bound to that.
    pub(super) fn bound(&self) -> Option<Bound> {
        let files =
            self.files.iter().map(|(path, state)| Some((SandboxPath::parse(path).ok()?, state.clone())));
        let Held { digest, since } = self.held.clone().unwrap_or(Held { digest: String::new(), since: 0 });
        Some(Bound { digest, since, files: files.collect::<Option<_>>()?, remarks: Vec::new() })
    }

    /// Whether its permit can still come, or a decision.
    pub(super) fn is_open(&self) -> bool {
        self.state == ApprovalState::Pending || self.permit == PermitState::Available
    }

    /// How many have consented.
    pub(super) fn consents(&self) -> u32 {
        let consents = self.votes.iter().filter(|vote| vote.choice == Choice::Approve).count();
        u32::try_from(consents).unwrap_or(u32::MAX)
    }

    /// Whether its fields can have come about: what is stored may be damaged.
    pub fn is_sound(&self) -> bool {
        let approved = self.state == ApprovalState::Approved;
        let pending = self.state == ApprovalState::Pending;
        let consents = self.consents() >= self.needed;
        let voters: BTreeSet<&str> = self.votes.iter().map(|vote| vote.principal.as_str()).collect();
        (self.format == FORMAT || !self.is_open())
            && approved != (self.permit == PermitState::None)
            && pending == self.decided_at.is_none()
            && approved == consents
            && voters.len() == self.votes.len()
    }
}

impl Ticket {
    /// The ticket of a call that was asked for by an earlier process: what its approval is held against. It says nothing
    /// about whether the policy lets the call through; that is asked when the approval is redeemed.
    pub fn resumed(approval: &Approval, run: RunScope, operation: Operation) -> Self {
        Self {
            caller: Caller {
                principal: approval.requested_by.clone(),
                agent_id: approval.agent_id.clone(),
                role: approval.role.clone(),
                run_id: approval.run_id.clone(),
            },
            run,
            call_id: approval.call_id.clone(),
            operation,
            message: OnceLock::new(),
            bounds: Bounds::default(),
            server: None,
            decision: Decision {
                verdict: Verdict::Ask,
                rule: approval.rule.clone(),
                risk: approval.risk,
                policy_digest: approval.policy_digest.clone(),
                justification: approval.justification.clone(),
            },
            terms: Terms {
                timeout: approval.expires_at.since(approval.created_at),
                remind: approval.remind,
                needed: approval.needed,
                level: approval.level,
                freeze: approval.freeze,
                remember: approval.offers.clone(),
            },
        }
    }
}
