//! Taking a decision: who may, how often, and when it settles the approval.

use super::approval::{Approval, ApprovalState, MAX_COMMENT_CHARS, PermitState};
use super::memory::{self, Memory, NotRemembered};
use super::table::Approvals;
use super::vote::{Ballot, Choice, DecideError, Reviewer, Vote};
use crate::clock::UnixMillis;

impl Approvals {
    /// Takes one decision. One denial settles an approval; consent does when as many different approvers have given it as
    /// are needed, and until then the approval stays pending, with the vote in it.
    pub(crate) fn decide(
        &mut self,
        approval_id: &str,
        reviewer: &Reviewer,
        ballot: &Ballot,
        memory: &Memory,
        now: UnixMillis,
    ) -> Result<Approval, DecideError> {
        let approval = self.all.get_mut(approval_id).ok_or(DecideError::NotFound)?;
        may_decide(approval, reviewer, now)?;
        if ballot.comment.chars().nth(MAX_COMMENT_CHARS).is_some() {
            return Err(DecideError::CommentTooLong);
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
    // Left pending: `expire_due` will report it, once.
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
