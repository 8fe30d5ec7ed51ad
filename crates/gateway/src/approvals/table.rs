//! All approvals of one daemon, in memory and bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use operations::{Bound, Held, Reason};
use timestamp::UnixMillis;

use super::approval::{Approval, ApprovalFilter, ApprovalState, FORMAT, PermitState, RestoreError, Review};
use super::memory;
use crate::admission::Ticket;
use crate::decision::Refusal;
use crate::permission::refusal;
use policy::{DecisionTime, Policy};

/// Most open approvals of one run.
pub(super) const MAX_OPEN_PER_RUN: usize = 64;
/// Most open approvals in all. One tenant may have as many as all leave free, so half if it is alone.
pub(super) const MAX_OPEN: usize = 2_000;
/// Most settled approvals that are still listed.
pub(super) const MAX_SETTLED: usize = 1_000;
/// Most bytes of all settled approvals together.
pub(super) const MAX_SETTLED_BYTES: usize = 64 * 1024 * 1024;
/// Most bytes of one call that a reviewer sees.
pub(super) const MAX_REVIEW_BYTES: usize = 1024 * 1024;
/// Most bytes of all open approvals together.
pub(super) const MAX_OPEN_BYTES: usize = 128 * 1024 * 1024;
/// Time in which an approved call has to be redeemed. Usually that happens at once, or after a restart.
pub(crate) const REDEEM_WITHIN: Duration = Duration::from_secs(10 * 60);

const MIN_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_TIMEOUT: Duration = Duration::from_secs(7 * 86_400);

#[derive(Debug, Default)]
pub(crate) struct Approvals {
    /// By approval id.
    pub(super) all: BTreeMap<String, Approval>,
    /// Ids of approvals that are not on record yet. They are not listed, accept no decision, and do not expire.
    unrecorded: BTreeSet<String>,
}

impl Approvals {
    pub(crate) fn request(
        &mut self,
        ticket: &Ticket,
        review: Review,
        time: DecisionTime,
        now: UnixMillis,
        policy: &Policy,
    ) -> Result<Approval, Refusal> {
        let Review { approval_id, operation_json, preview, bound } = review;
        let approval = Approval {
            format: FORMAT,
            approval_id: approval_id.unwrap_or_else(node_id::new_id).to_string(),
            state: ApprovalState::Pending,
            permit: PermitState::None,
            run_id: ticket.caller.run_id.clone(),
            call_id: ticket.call_id.clone(),
            agent_id: ticket.caller.agent_id.clone(),
            role: ticket.caller.role.clone(),
            profile: ticket.run.profile.clone(),
            requested_by: ticket.caller.principal.clone(),
            operation: ticket.operation.name().to_owned(),
            operation_json,
            preview,
            rule: ticket.decision.rule.clone(),
            justification: ticket.decision.justification.clone(),
            risk: ticket.decision.risk,
            digest: ticket.digest(&ticket.decision.policy_digest, &bound),
            policy_digest: ticket.decision.policy_digest.clone(),
            created_at: now,
            expires_at: expiry(&time, now),
            time_from: time.from,
            reminded: false,
            remind: ticket.terms.remind,
            needed: ticket.terms.needed.max(1),
            level: ticket.terms.level,
            passkey: ticket.terms.passkey,
            votes: Vec::new(),
            freeze: ticket.terms.freeze,
            offers: memory::offers(ticket),
            consent_digest: ticket.consent_digest(&ticket.decision.policy_digest, &bound),
            argv: ticket.operation.command().and_then(memory::prefixable).unwrap_or_default(),
            held: bound.held(),
            files: bound.files.iter().map(|(path, state)| (path.to_string(), state.clone())).collect(),
            remembered: None,
            decided_by: None,
            decided_at: None,
            comment: String::new(),
        };
        self.insert(approval, policy)
    }

    /// Takes in an approval that is not on record yet, if there is space for it.
    pub(crate) fn insert(&mut self, approval: Approval, policy: &Policy) -> Result<Approval, Refusal> {
        self.room_for(&approval, policy)?;
        self.unrecorded.insert(approval.approval_id.clone());
        self.all.insert(approval.approval_id.clone(), approval.clone());
        Ok(approval)
    }

    /// Notes that the approval is on record, so that it is listed and can be decided on.
    pub(crate) fn open(&mut self, approval_id: &str) {
        self.unrecorded.remove(approval_id);
    }

    /// Iterates over the approvals that are on record.
    fn shown(&self) -> impl Iterator<Item = &Approval> {
        self.all.values().filter(|approval| !self.unrecorded.contains(&approval.approval_id))
    }

    /// Returns the approval with this id, if it is on record.
    pub(super) fn decidable(&mut self, approval_id: &str) -> Option<&mut Approval> {
        self.all.get_mut(approval_id).filter(|_| !self.unrecorded.contains(approval_id))
    }

    /// Iterates over recorded approvals that wait for a decision.
    fn pending(&mut self) -> impl Iterator<Item = &mut Approval> {
        let Self { all, unrecorded } = self;
        all.values_mut().filter(|approval| {
            approval.state == ApprovalState::Pending && !unrecorded.contains(&approval.approval_id)
        })
    }

    /// Returns a refusal if there is no space for `new`. No tenant has more open approvals than there is space left, so none takes it all.
    fn room_for(&self, new: &Approval, policy: &Policy) -> Result<(), Refusal> {
        let bytes = new.operation_json.len() + new.preview.len();
        let refuse = |reason, message: String| {
            let policy_digest = new.policy_digest.clone();
            Err(Refusal {
                reason,
                message,
                rule: "approvals".to_owned(),
                retry_after: None,
                not_held: false,
                policy_digest,
            })
        };
        if bytes > MAX_REVIEW_BYTES {
            let message =
                format!("{bytes} bytes are too many for a reviewer; at most {MAX_REVIEW_BYTES} can be shown");
            return refuse(Reason::InvalidArgument, message);
        }
        // By names alone: this crate does no I/O, so it does not know the groups of principals.
        let tenant = |principal| policy.tenants().of(principal, None).tenant;
        let own = tenant(&new.requested_by);
        let (mut of_run, mut open, mut open_bytes) = (0, 0, bytes);
        let (mut of_tenant, mut tenant_bytes) = (0, 0);
        for approval in self.all.values().filter(|approval| approval.is_open()) {
            open += 1;
            open_bytes += approval.shown_bytes();
            if approval.call_id == new.call_id && !new.is_of_connection() {
                return refuse(Reason::AlreadyExists, "this call waits for an approval already".to_owned());
            }
            of_run += usize::from(approval.run_id == new.run_id);
            if approval.requested_by == new.requested_by || tenant(&approval.requested_by) == own {
                of_tenant += 1;
                tenant_bytes += approval.shown_bytes();
            }
        }
        if of_run >= MAX_OPEN_PER_RUN {
            return refuse(
                Reason::Overloaded,
                format!("{MAX_OPEN_PER_RUN} calls of this run wait for approval already"),
            );
        }
        if open + of_tenant >= MAX_OPEN || open_bytes + tenant_bytes > MAX_OPEN_BYTES {
            return refuse(Reason::Overloaded, "too many calls wait for approval; try again".to_owned());
        }
        Ok(())
    }

    /// Refuses unless this approval was given to this call of this run and is unused. It does not compare digests.
    pub(crate) fn redeemable(
        &mut self,
        approval_id: &str,
        (call_id, run_id): (&str, &str),
        policy: &Policy,
        now: UnixMillis,
    ) -> Result<(), Refusal> {
        let refuse = |reason, message: String| Err(refusal(policy, reason, message, "approvals"));
        let Some(approval) = self.all.get_mut(approval_id) else {
            return refuse(Reason::NotFound, "no such approval".to_owned());
        };
        // An approval of another call is not changed.
        if approval.call_id != call_id || approval.run_id != run_id {
            return refuse(Reason::PermissionDenied, "this approval belongs to another call".to_owned());
        }
        match (approval.state, approval.permit) {
            (ApprovalState::Approved, PermitState::Available) => {}
            (ApprovalState::Approved, PermitState::Withdrawn) => {
                return refuse(Reason::Cancelled, "the approval was withdrawn".to_owned());
            }
            (ApprovalState::Approved, _) => {
                return refuse(Reason::PreconditionFailed, "the approval has been used".to_owned());
            }
            (ApprovalState::Pending, _) => {
                return refuse(Reason::PreconditionFailed, "no reviewer has decided yet".to_owned());
            }
            (ApprovalState::Denied, _) => {
                let comment = if approval.comment.is_empty() {
                    String::new()
                } else {
                    format!(": {}", approval.comment)
                };
                return refuse(Reason::ApprovalDenied, format!("a reviewer denied the call{comment}"));
            }
            (ApprovalState::Expired, _) => {
                return refuse(Reason::ApprovalExpired, "no reviewer decided in time".to_owned());
            }
            (ApprovalState::Cancelled, _) => {
                return refuse(Reason::Cancelled, "the call was cancelled before a decision".to_owned());
            }
        }
        if now >= approval.decided_at.unwrap_or(now).after(REDEEM_WITHIN) {
            approval.permit = PermitState::Withdrawn;
            return refuse(
                Reason::ApprovalExpired,
                "the approval was given too long ago: make the call again to ask for another".to_owned(),
            );
        }
        Ok(())
    }

    /// Marks an approval as used and returns the state that the effect has to find.
    ///
    /// If the call or the policy differs from what the reviewer saw, the approval is voided and the call refused.
    pub(crate) fn issue(
        &mut self,
        approval_id: &str,
        digest: impl FnOnce(&Bound) -> String,
        policy: &Policy,
    ) -> Result<Option<Held>, Refusal> {
        let found =
            self.all.get_mut(approval_id).filter(|approval| approval.permit == PermitState::Available);
        let Some(approval) = found else {
            return Err(refusal(policy, Reason::NotFound, "no such approval".to_owned(), "approvals"));
        };
        if approval.bound().is_some_and(|bound| digest(&bound) == approval.digest) {
            approval.permit = PermitState::Issued;
            let held = approval.held.clone();
            self.forget_oldest();
            return Ok(held);
        }
        approval.permit = PermitState::Withdrawn;
        let what = if approval.policy_digest == policy.digest() {
            "the call differs from the one that the reviewer saw"
        } else {
            "the policy has changed since the reviewer was asked: make the call again"
        };
        self.forget_oldest();
        Err(refusal(policy, Reason::PreconditionFailed, format!("{what}; ask again"), "approvals"))
    }

    /// Voids an approval that was given but not used.
    pub(crate) fn withdraw(&mut self, approval_id: &str) {
        if let Some(approval) =
            self.all.get_mut(approval_id).filter(|approval| approval.permit == PermitState::Available)
        {
            approval.permit = PermitState::Withdrawn;
        }
        self.forget_oldest();
    }

    pub(crate) fn expire_due(&mut self, now: UnixMillis) -> Vec<Approval> {
        let mut expired = Vec::new();
        for approval in self.pending() {
            if now >= approval.expires_at {
                approval.state = ApprovalState::Expired;
                approval.decided_at = Some(now);
                expired.push(approval.clone());
            }
        }
        // An approval that is never redeemed must not stay open for ever.
        for approval in self.all.values_mut().filter(|approval| approval.permit == PermitState::Available) {
            if now >= approval.decided_at.unwrap_or(now).after(REDEEM_WITHIN) {
                approval.permit = PermitState::Withdrawn;
            }
        }
        self.forget_oldest();
        expired
    }

    pub(crate) fn reminders_due(&mut self, now: UnixMillis) -> Vec<Approval> {
        let mut due = Vec::new();
        for approval in self.pending() {
            if approval.remind
                && !approval.reminded
                && now >= half_time(approval)
                && now < approval.expires_at
            {
                approval.reminded = true;
                due.push(approval.clone());
            }
        }
        due
    }

    pub(crate) fn next_due(&self) -> Option<UnixMillis> {
        let pending = self.shown().filter(|approval| approval.state == ApprovalState::Pending);
        pending
            .map(|approval| {
                let reminds = approval.remind && !approval.reminded;
                if reminds { half_time(approval) } else { approval.expires_at }
            })
            .min()
    }

    pub(crate) fn cancel(&mut self, which: impl Fn(&Approval) -> bool, now: UnixMillis) -> Vec<Approval> {
        let mut cancelled = Vec::new();
        for approval in self.all.values_mut().filter(|approval| approval.is_open() && which(approval)) {
            if approval.state == ApprovalState::Pending {
                approval.state = ApprovalState::Cancelled;
                approval.decided_at = Some(now);
            } else {
                approval.permit = PermitState::Withdrawn;
            }
            cancelled.push(approval.clone());
        }
        for approval in &cancelled {
            self.unrecorded.remove(&approval.approval_id);
        }
        self.forget_oldest();
        cancelled
    }

    pub(crate) fn get(&self, approval_id: &str) -> Option<&Approval> {
        self.all.get(approval_id).filter(|approval| !self.unrecorded.contains(&approval.approval_id))
    }

    pub(crate) fn list(&self, filter: &ApprovalFilter) -> Vec<Approval> {
        let wanted = |approval: &&Approval| {
            filter.state.is_none_or(|state| approval.state == state)
                && filter.run_id.as_ref().is_none_or(|run_id| approval.run_id == *run_id)
        };
        let mut found: Vec<Approval> = self.shown().filter(wanted).cloned().collect();
        found.sort_by_key(|approval| approval.created_at);
        found
    }

    pub(crate) fn restore(&mut self, stored: Vec<Approval>) -> Result<(), RestoreError> {
        if !self.all.is_empty() {
            return Err(RestoreError::NotEmpty);
        }
        let mut all = BTreeMap::new();
        for approval in stored {
            let id = approval.approval_id.clone();
            if !approval.is_sound() {
                return Err(RestoreError::Damaged(id));
            }
            if all.insert(id.clone(), approval).is_some() {
                return Err(RestoreError::Duplicate(id));
            }
        }
        self.all = all;
        self.forget_oldest();
        Ok(())
    }

    /// Drops settled approvals, the first settled first, until their number and size are within the limits.
    pub(super) fn forget_oldest(&mut self) {
        let settled = || self.all.values().filter(|approval| !approval.is_open());
        let (mut count, mut bytes) = (settled().count(), settled().map(Approval::shown_bytes).sum::<usize>());
        if count <= MAX_SETTLED && bytes <= MAX_SETTLED_BYTES {
            return;
        }
        let mut oldest: Vec<_> = settled()
            .map(|approval| (approval.decided_at, approval.approval_id.clone(), approval.shown_bytes()))
            .collect();
        oldest.sort();
        for (_, id, size) in oldest {
            if count <= MAX_SETTLED && bytes <= MAX_SETTLED_BYTES {
                return;
            }
            self.all.remove(&id);
            (count, bytes) = (count - 1, bytes - size);
        }
    }
}

/// Returns the time from which no decision is accepted.
pub(crate) fn expiry(time: &DecisionTime, now: UnixMillis) -> UnixMillis {
    now.after(time.time.clamp(MIN_TIMEOUT, MAX_TIMEOUT))
}

fn half_time(approval: &Approval) -> UnixMillis {
    approval.created_at.after(approval.expires_at.since(approval.created_at) / 2)
}
