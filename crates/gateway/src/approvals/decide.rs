//! Decisions on approvals: who may decide, how often, and when a decision settles the approval.

use super::approval::{Approval, ApprovalState, MAX_COMMENT_CHARS, PermitState};
use super::memory::{self, Memory};
use super::table::Approvals;
use super::vote::{Ballot, Choice, Reviewer, Vote};
use timestamp::UnixMillis;

use crate::consent::NotRemembered;
use policy::Level;

/// Reason why a decision was not accepted. The approval is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecideError {
    /// No approval has this id, or it was settled long ago.
    #[error("no such approval")]
    NotFound,
    /// Another reviewer decided first, or the call was cancelled.
    #[error("it is {state} already{}", .by.as_ref().map(|by| format!(", by {by}")).unwrap_or_default())]
    AlreadyDecided {
        state: ApprovalState,
        /// The principal who decided, if one did.
        by: Option<String>,
    },
    /// The decision came after the time was over.
    #[error("it has expired")]
    Expired,
    /// The reviewer made the call.
    #[error("a requester cannot decide on their own call")]
    SelfApproval,
    /// The reviewer's level is too low for this call.
    #[error("a decision on this call needs the level `{needed}`")]
    LevelTooLow { needed: Level },
    /// The reviewer has approved already, and other approvers have to.
    #[error("each approver has one vote, and you have voted; {missing} more {} needed", if *.missing == 1 { "is" } else { "are" })]
    AlreadyVoted {
        /// Number of votes that are still missing.
        missing: u32,
    },
    /// The profile requires consent that is signed with a passkey.
    #[error("consent to this call has to be signed with a passkey")]
    PasskeyNeeded,
    /// The comment is too long.
    #[error("a comment has at most {MAX_COMMENT_CHARS} characters")]
    CommentTooLong,
    /// The consent cannot be remembered in the form that the reviewer chose.
    #[error("this consent cannot be remembered: {0}")]
    NotRemembered(#[from] NotRemembered),
}

impl Approvals {
    /// Accepts one decision.
    ///
    /// One denial settles an approval. Consent settles it when enough different approvers have given it. Until then the
    /// approval stays pending and keeps the vote.
    pub(crate) fn decide(
        &mut self,
        approval_id: &str,
        reviewer: &Reviewer,
        ballot: &Ballot,
        memory: &Memory,
        now: UnixMillis,
    ) -> Result<Approval, DecideError> {
        let approval = self.decidable(approval_id).ok_or(DecideError::NotFound)?;
        may_decide(approval, reviewer, now)?;
        if ballot.comment.chars().nth(MAX_COMMENT_CHARS).is_some() {
            return Err(DecideError::CommentTooLong);
        }
        // A denial lets nothing happen, so it needs no proof.
        if approval.passkey && ballot.choice == Choice::Approve && ballot.proof.is_none() {
            return Err(DecideError::PasskeyNeeded);
        }
        let covers = memory::wanted(approval, &ballot.remember)?.map(|(_, covers)| covers);
        if covers.is_some() && ballot.choice == Choice::Deny {
            return Err(NotRemembered::Denied.into());
        }
        if covers.is_some() && !memory.has_room(&approval.run_id) {
            return Err(NotRemembered::TooMany.into());
        }
        approval.votes.push(Vote {
            principal: reviewer.principal.clone(),
            level: reviewer.level,
            choice: ballot.choice,
            at: now,
            comment: ballot.comment.clone(),
            proof: ballot.proof.clone(),
        });
        let settled = match ballot.choice {
            Choice::Deny => Some((ApprovalState::Denied, PermitState::None)),
            Choice::Approve if approval.consents() >= approval.needed => {
                Some((ApprovalState::Approved, PermitState::Available))
            }
            Choice::Approve => None,
        };
        if let Some((state, permit)) = settled {
            (approval.state, approval.permit) = (state, permit);
            approval.decided_by = Some(reviewer.principal.clone());
            approval.decided_at = Some(now);
            approval.comment.clone_from(&ballot.comment);
            approval.remembered =
                covers.map(|covers| memory::consent(approval, covers, &reviewer.principal, now));
        }
        let decided = approval.clone();
        self.forget_oldest();
        Ok(decided)
    }
}

fn may_decide(approval: &Approval, reviewer: &Reviewer, now: UnixMillis) -> Result<(), DecideError> {
    if approval.state != ApprovalState::Pending {
        return Err(match approval.state {
            ApprovalState::Expired => DecideError::Expired,
            state => DecideError::AlreadyDecided { state, by: approval.decided_by.clone() },
        });
    }
    // The approval stays pending here: `expire_due` reports it, once.
    if now >= approval.expires_at {
        return Err(DecideError::Expired);
    }
    if approval.requested_by == reviewer.principal && !reviewer.may_decide_own {
        return Err(DecideError::SelfApproval);
    }
    if reviewer.level < approval.level {
        return Err(DecideError::LevelTooLow { needed: approval.level });
    }
    if approval.votes.iter().any(|vote| vote.principal == reviewer.principal) {
        return Err(DecideError::AlreadyVoted { missing: approval.needed - approval.consents() });
    }
    Ok(())
}
