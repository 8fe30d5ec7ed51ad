//! One approval with its state, as the daemon stores it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::OnceLock;

use jail::SandboxPath;
use operations::{Bound, Bounds, FileState, Held, Operation};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use timestamp::UnixMillis;
use uuid::Uuid;

use super::vote::{Choice, Vote};
use crate::admission::Ticket;
use crate::consent::Consent;
use crate::decision::Decision;
use policy::{Caller, Form, Level, Risk, RunScope, Terms, Verdict};

/// Most characters in a reviewer's comment.
pub const MAX_COMMENT_CHARS: usize = 4_096;

/// State of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ApprovalState {
    /// No decision yet.
    Pending,
    Approved,
    Denied,
    /// No decision came in time.
    Expired,
    /// The call was cancelled, or its run ended.
    Cancelled,
}

impl ApprovalState {
    /// Returns the name used in the API.
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

/// State of the permit of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PermitState {
    /// No permit, because the call is not approved.
    None,
    /// The permit can be redeemed.
    Available,
    /// The permit was redeemed.
    Issued,
    /// The call was approved, but the permit will never be redeemed.
    Withdrawn,
}

/// Version of the binding of an approval to its call. An approval of another version is never redeemed.
pub const FORMAT: u32 = 4;

/// A call that needs consent, and the decision on it. The daemon stores it in its serialised form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of one request")]
pub struct Approval {
    /// Equal to [`FORMAT`] if this release requested the approval; 0 if it was stored before the field existed.
    #[serde(default)]
    pub format: u32,
    /// UUIDv7.
    pub approval_id: String,
    pub state: ApprovalState,
    /// State of its permit.
    pub permit: PermitState,
    pub run_id: String,
    pub call_id: String,
    pub agent_id: String,
    pub role: String,
    pub profile: String,
    /// The principal that made the call.
    pub requested_by: String,
    /// Such as `git.commit`.
    pub operation: String,
    /// The operation for reviewers, secrets redacted.
    pub operation_json: String,
    /// Preview of the command or change, secrets redacted.
    pub preview: String,
    /// The rule that requires consent.
    pub rule: String,
    /// Reason why the rule requires consent.
    pub justification: String,
    /// Harm that the call can do.
    pub risk: Risk,
    /// SHA-256 over everything that the approval is bound to.
    pub digest: String,
    /// Digest of the policy under which consent was requested.
    pub policy_digest: String,
    /// Time of the request.
    pub created_at: UnixMillis,
    /// Time from which no decision is accepted.
    pub expires_at: UnixMillis,
    /// The setting that gives reviewers this time. Empty in approvals that older releases stored.
    #[serde(default)]
    pub time_from: String,
    /// True once reviewers were reminded.
    pub reminded: bool,
    /// Reminds reviewers when half of the time is over.
    pub remind: bool,
    /// Number of different approvers that have to consent.
    pub needed: u32,
    /// The level that each approver needs.
    pub level: Level,
    /// True if consent has to be signed with a passkey.
    #[serde(default)]
    pub passkey: bool,
    /// The votes so far, at most one for each approver.
    pub votes: Vec<Vote>,
    /// Freezes the run while the approval is pending.
    pub freeze: bool,
    /// Forms, besides *once*, in which the consent may be remembered.
    pub offers: Vec<Form>,
    /// Digest like [`Self::digest`] without the call's id. A consent in the form `digest` is remembered under it.
    pub consent_digest: String,
    /// Words of the command, if a prefix of them may be remembered. Secrets are *not* redacted.
    pub argv: Vec<String>,
    /// The files that the call names, by path in alias form, with their state at the time of the request.
    pub files: Vec<(String, FileState)>,
    /// State that the effect has to find.
    #[serde(default)]
    pub held: Option<Held>,
    /// The consent that was given with this approval and covers more than its call.
    pub remembered: Option<Consent>,
    /// The principal whose decision settled it.
    pub decided_by: Option<String>,
    /// When it left `PENDING`.
    pub decided_at: Option<UnixMillis>,
    /// Comment of the reviewer who settled it.
    pub comment: String,
}

/// The part of a call that reviewers see. The caller makes it and redacts secrets before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Review {
    /// The id of the new approval, if the caller had to know it before. `None` makes a new id.
    pub approval_id: Option<Uuid>,
    /// The operation as JSON.
    pub operation_json: String,
    /// Argv and working directory, or the diff that the call will make.
    pub preview: String,
    /// Files and values that the call uses, read together with the preview. The effect must find them unchanged.
    pub bound: Bound,
}

/// Filter of a list of approvals.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApprovalFilter {
    /// Keeps approvals in this state.
    pub state: Option<ApprovalState>,
    /// Keeps approvals of this run.
    pub run_id: Option<String>,
}

/// Reason why stored approvals were not restored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// This process has made approvals already.
    #[error("approvals can only be restored before the first one is asked for")]
    NotEmpty,
    /// Two stored approvals have the same id.
    #[error("the approval {0} is stored twice")]
    Duplicate(String),
    /// State and permit contradict each other.
    #[error("the approval {0} is damaged")]
    Damaged(String),
}

impl Approval {
    /// Returns the SHA-256 of the texts that reviewers are shown, with secrets hidden, in lower-case hex.
    pub fn shown_digest(&self) -> String {
        // In the order of the page.
        let shown = json!([
            self.operation,
            self.operation_json,
            self.preview,
            self.justification,
            self.risk.as_str(),
            self.rule,
            self.requested_by,
            self.agent_id,
            self.role,
            self.profile,
            self.run_id,
        ]);
        hex::encode(Sha256::digest(shown.to_string()))
    }

    /// Returns the number of bytes that reviewers see.
    pub(super) fn shown_bytes(&self) -> usize {
        let files: usize = self.files.iter().map(|(path, _)| path.len() + 64).sum();
        self.operation_json.len() + self.preview.len() + files
    }

    /// Returns the values that it is bound to. `None` if its paths do not parse, so that it cannot have been bound to
    /// them.
    pub(super) fn bound(&self) -> Option<Bound> {
        let files =
            self.files.iter().map(|(path, state)| Some((SandboxPath::parse(path).ok()?, state.clone())));
        let Held { digest, since } = self.held.clone().unwrap_or(Held { digest: String::new(), since: 0 });
        Some(Bound { digest, since, files: files.collect::<Option<_>>()?, remarks: Vec::new() })
    }

    /// Returns true if a decision or the use of its permit is still possible.
    pub(super) fn is_open(&self) -> bool {
        self.state == ApprovalState::Pending || self.permit == PermitState::Available
    }

    /// Returns the number of approvers who have consented.
    pub(super) fn consents(&self) -> u32 {
        let consents = self.votes.iter().filter(|vote| vote.choice == Choice::Approve).count();
        u32::try_from(consents).unwrap_or(u32::MAX)
    }

    /// Returns true if its fields are consistent. Stored approvals may be damaged.
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
    /// Makes the ticket of a call that an earlier process received, to compare its approval with.
    ///
    /// The ticket does not say that the policy lets the call through. Redeeming the approval checks that.
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
                passkey: approval.passkey,
                freeze: approval.freeze,
                remember: approval.offers.clone(),
            },
        }
    }
}
