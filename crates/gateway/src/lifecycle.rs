//! The life of a call. This crate requests, records, remembers, redeems and voids consent; the daemon
//! (`daemon/src/call.rs`, `approvals/`) waits, records and executes.
//!
//! ```text
//!   request
//!      │ validate ────── malformed, out of bounds, protected path ─────────────────────────────────► REFUSED
//!      │ permission ──── profile, role or command rule says deny ──────────────────────────────────► REFUSED
//!      │ limit ───────── one too many ─────────────────────────────────────────────────────────────► REFUSED
//!      ├── allow ───────────────────────────────────────────────┐
//!      │ ask                                                    │
//!      ├── a remembered consent covers it (recall) ─────────────┤
//!      ▼                                                        │
//!   PENDING ◄─┐ a vote that does not settle it; one reminder    │
//!      │ ▲ └──┘                                                 │
//!      │ └─── daemon restarts: taken up, its clock has run on   │
//!      ├── a denial ─────────────────────────────────────────────────────────────────────────────► DENIED
//!      ├── time is over ─────────────────────────────────────────────────────────────────────────► EXPIRED
//!      ├── the call is cancelled, its run ends ──────────────────────────────────────────────────► CANCELLED
//!      ▼ as many consents as are needed                         │
//!   APPROVED  (remember: once, digest, prefix)                  │
//!      │ redeem: validation and permission again; same call,    │
//!      │ same files, same policy; within ten minutes; once ────────── else ──────────────────────► REFUSED
//!      ▼                                                        ▼
//!   SPENT, durably ──────────────────────────────────────────► PERMIT ──► execute ──► receipt ───► CLOSED
//!      └── daemon dies before the receipt ───────────────────────────────────────────────────────► INTERRUPTED
//! ```
//!
//! Invariants of every history (`lifecycle/property.rs` checks them against a model):
//!
//! - No call is executed without a permit, and a permit is executed once: it can be neither copied nor stored.
//! - If the policy asks, a permit comes from exactly one approval or one remembered consent. One approval gives one
//!   permit, however often the daemon restarts in between.
//! - An approval that was given under one policy gives no permit under another. Remembered consents end with any
//!   change.
//! - No arrow goes back. A restart changes neither the decision nor the time at which an approval expires.
//! - The clock may jump. After a jump forward approvals expire early; after a jump backward they live until the clock
//!   reaches their expiry time again. Neither lets a call run without consent.

use std::time::Duration;

use operations::Bound;
use timestamp::UnixMillis;

use crate::admission::Ticket;
use crate::approvals::{Approval, ApprovalFilter, Ballot, DecideError, RestoreError, Review, Reviewer};
use crate::consent::{Consent, Covers};
use crate::decision::Refusal;
use crate::gateway::{Gateway, consider, permit};
use crate::permit::Permit;
use policy::{Form, Verdict};

impl Gateway {
    /// Makes an approval for a call that needs one. `longest` bounds the profile's time.
    ///
    /// The approval is not listed, and accepts no decision, before [`Self::open_approval`]: the daemon records and
    /// stores it first.
    pub fn prepare_approval(
        &self,
        ticket: &Ticket,
        review: Review,
        longest: Option<Duration>,
    ) -> Result<Approval, Refusal> {
        let time = ticket.terms.decision_time(&ticket.run.profile, longest);
        self.approvals().request(ticket, review, time, self.now(), &self.policy())
    }

    /// Opens an approval that is on record: from now on it is listed, can be decided on, and expires.
    pub fn open_approval(&self, approval_id: &str) {
        self.approvals().open(approval_id);
    }

    /// Accepts the decision of one approver, once. It settles the approval, or leaves it pending if more votes are
    /// needed.
    ///
    /// An approval has no effect by itself. The caller records it, redeems it with [`Self::redeem`], and passes the
    /// consent that the reviewer wants remembered to [`Self::remember`].
    pub fn decide(
        &self,
        approval_id: &str,
        reviewer: &Reviewer,
        ballot: &Ballot,
    ) -> Result<Approval, DecideError> {
        let mut approvals = self.approvals();
        approvals.decide(approval_id, reviewer, ballot, &self.memory(), self.now())
    }

    /// Turns an approval that was given into a permit, once.
    ///
    /// This checks again that it is the call that the reviewer saw, and that the policy in force still lets it through.
    /// The lane checks during the effect that the files are as the reviewer saw them: [`operations::Bounds::held_to`].
    ///
    /// The caller has to store that the approval is spent before it spends the permit, so that it stays spent after a
    /// crash.
    pub fn redeem(&self, approval_id: &str, ticket: &Ticket) -> Result<Permit, Refusal> {
        let policy = self.policy();
        let mut approvals = self.approvals();
        let Ticket { caller, run, call_id, operation, .. } = ticket;
        approvals.redeemable(approval_id, (call_id, &caller.run_id), &policy, self.now())?;
        let mut again = match consider(&self.stand(&policy), run, caller, call_id, operation.clone()) {
            Ok(again) => again,
            Err(refusal) => {
                approvals.withdraw(approval_id);
                return Err(refusal);
            }
        };
        again.message.clone_from(&ticket.message);
        let digest = |bound: &Bound| again.digest(policy.digest(), bound);
        again.bounds.held_to = approvals.issue(approval_id, digest, &policy)?;
        Ok(permit(again, Some(approval_id.to_owned())))
    }

    /// Returns the form of a remembered consent that may cover this call, or `None` if [`Self::recall`] would find
    /// none.
    ///
    /// If there are consents of both forms it is `Digest`, for which the files that the call uses have to be read
    /// first.
    pub fn remembers(&self, ticket: &Ticket) -> Option<Form> {
        self.memory().may_have(ticket)
    }

    /// Returns a permit for a call that needs consent, if a reviewer's remembered consent covers it.
    ///
    /// Everything is checked again, with the files that the call uses as they are now. If the consent is bound to these
    /// files, so is the effect. The permit's decision names the consent.
    pub fn recall(&self, ticket: &Ticket, bound: &Bound) -> Option<Permit> {
        let policy = self.policy();
        let Ticket { caller, run, call_id, operation, .. } = ticket;
        let mut again = consider(&self.stand(&policy), run, caller, call_id, operation.clone()).ok()?;
        // An alert's request for consent is not covered by an earlier consent.
        if again.decision.verdict != Verdict::Ask {
            return None;
        }
        // Uses the ticket, so that its message digest is already known if no consent is found and a reviewer is asked.
        let digest = ticket.consent_digest(policy.digest(), bound);
        let memory = self.memory();
        let consent = memory.find(&again, &digest, policy.digest())?;
        if matches!(consent.covers, Covers::Digest(_)) {
            again.bounds.held_to = bound.held();
        }
        again.decision.verdict = Verdict::Allow;
        again.decision.justification = format!(
            "{} had consent remembered for this run; without it: {}",
            consent.given_by, again.decision.rule
        );
        again.decision.rule = format!("remembered consent {}", consent.consent_id);
        drop(memory);
        Some(permit(again, None))
    }

    /// Puts a consent into force. The caller has recorded it before.
    pub fn remember(&self, consent: Consent) {
        let policy = self.policy();
        // The consent has already ended if its policy was replaced meanwhile.
        if consent.policy_digest == policy.digest() {
            self.memory().add(consent);
        }
    }

    /// Lists the remembered consents, oldest first, of one run or of all.
    pub fn consents(&self, run_id: Option<&str>) -> Vec<Consent> {
        self.memory().list(run_id)
    }

    /// Ends one consent.
    pub fn forget(&self, consent_id: &str) -> Option<Consent> {
        self.memory().take(|consent| consent.consent_id == consent_id).pop()
    }

    /// Ends the remembered consents of a run.
    pub fn forget_run(&self, run_id: &str) -> Vec<Consent> {
        self.memory().take(|consent| consent.run_id == run_id)
    }

    /// Removes the consents that were given under another policy than the one in force. They no longer let any call
    /// through.
    pub fn forget_outdated(&self) -> Vec<Consent> {
        let policy = self.policy();
        self.memory().take(|consent| consent.policy_digest != policy.digest())
    }

    /// Expires the approvals whose time is over, and returns each once.
    pub fn expire_due(&self) -> Vec<Approval> {
        self.approvals().expire_due(self.now())
    }

    /// Returns the pending approvals whose half-time has passed, each once.
    pub fn reminders_due(&self) -> Vec<Approval> {
        self.approvals().reminders_due(self.now())
    }

    /// Returns the time at which [`Self::expire_due`] or [`Self::reminders_due`] will next have a pending approval to
    /// return.
    pub fn next_due(&self) -> Option<UnixMillis> {
        self.approvals().next_due()
    }

    /// Cancels the approvals of a call: a pending one becomes `CANCELLED`, and one that was given is void.
    pub fn cancel_call(&self, call_id: &str) -> Vec<Approval> {
        self.approvals().cancel(|approval| approval.call_id == call_id, self.now())
    }

    /// Cancels one approval, as [`Self::cancel_call`] does.
    pub fn cancel_approval(&self, approval_id: &str) -> Vec<Approval> {
        self.approvals().cancel(|approval| approval.approval_id == approval_id, self.now())
    }

    /// Cancels the approvals of all calls of a run that has ended.
    pub fn cancel_run(&self, run_id: &str) -> Vec<Approval> {
        self.approvals().cancel(|approval| approval.run_id == run_id, self.now())
    }

    pub fn approval(&self, approval_id: &str) -> Option<Approval> {
        self.approvals().get(approval_id).cloned()
    }

    /// Lists approvals, oldest first.
    pub fn list_approvals(&self, filter: &ApprovalFilter) -> Vec<Approval> {
        self.approvals().list(filter)
    }

    /// Restores the approvals of an earlier process into a gateway that has none. Their time has continued to run.
    pub fn restore_approvals(&self, stored: Vec<Approval>) -> Result<(), RestoreError> {
        self.approvals().restore(stored)
    }
}

#[cfg(test)]
mod property;
