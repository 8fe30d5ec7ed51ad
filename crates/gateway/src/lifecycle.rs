//! The life of a call. In this crate consent is asked for, given, remembered, redeemed and voided; the daemon
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
//! What holds for every history (`lifecycle/property.rs` holds it against a model):
//!
//! - Nothing is executed without a permit, and a permit is executed once: it can be neither copied nor stored.
//! - Where the policy asks, a permit comes of one approval or of a remembered consent, never of both or of nothing. One
//!   approval gives one permit, whatever restarts in between.
//! - An approval that was given under one policy gives no permit under another. Remembered consents end with any change.
//! - No arrow leads back. A restart changes neither what was decided nor when it expires.
//! - The clock may jump: forward, approvals expire early; backward, they live until the clock says again what it said
//!   when they were to end. Neither lets anything run that nobody consented to.

use std::time::Duration;

use ops::Bound;

use crate::admission::Ticket;
use crate::approvals::{Approval, ApprovalFilter, Ballot, DecideError, RestoreError, Review, Reviewer};
use crate::clock::UnixMillis;
use crate::consent::{Consent, Covers, Form};
use crate::decision::{Refusal, Verdict};
use crate::gateway::{Gateway, consider, permit};
use crate::permit::Permit;

impl Gateway {
    /// Makes an approval for a call that needs one. `longest` bounds the profile's time. It is not shown, and takes no decision,
    /// before [`Self::open_approval`]: the daemon records and stores it first.
    pub fn prepare_approval(
        &self,
        ticket: &Ticket,
        review: Review,
        longest: Option<Duration>,
    ) -> Result<Approval, Refusal> {
        let time = ticket.terms.decision_time(&ticket.run.profile, longest);
        self.approvals().request(ticket, review, time, self.now())
    }

    /// The approval is on record: from now on it is shown, decided on, and expires.
    pub fn open_approval(&self, approval_id: &str) {
        self.approvals().open(approval_id);
    }

    /// Takes a decision of one approver, once. The approval is settled by it, or stays pending when it needs more. One
    /// that was given does nothing by itself: record it, then [`Self::redeem`] it, and hand what is to be remembered to
    /// [`Self::remember`].
    pub fn decide(
        &self,
        approval_id: &str,
        reviewer: &Reviewer,
        ballot: &Ballot,
    ) -> Result<Approval, DecideError> {
        let mut approvals = self.approvals();
        approvals.decide(approval_id, reviewer, ballot, &self.memory(), self.now())
    }

    /// Turns an approval that was given into a permit, once. It is checked again that this is the call that was shown, and
    /// that the policy in force still lets it through; that it finds what was shown is for its lane to see, in the effect:
    /// [`ops::Bounds::held_to`]. Store that it is spent before spending the permit, so that it stays spent after a crash.
    pub fn redeem(&self, approval_id: &str, ticket: &Ticket) -> Result<Permit, Refusal> {
        let policy = self.policy();
        let mut approvals = self.approvals();
        approvals.redeemable(approval_id, ticket, &policy, self.now())?;
        let Ticket { caller, run, call_id, operation, .. } = ticket;
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

    /// In which form something is remembered that may be for this call, so that [`Self::recall`] is worth its while; the
    /// one for which what the call uses has to be looked at first.
    pub fn remembers(&self, ticket: &Ticket) -> Option<Form> {
        self.memory().may_have(ticket)
    }

    /// The permit for a call that needs consent and has it already: a reviewer had it remembered for the run. Everything
    /// is checked again, with what it uses as it is now; the effect is held to that where the consent was. The permit's
    /// decision names the consent.
    pub fn recall(&self, ticket: &Ticket, bound: &Bound) -> Option<Permit> {
        let policy = self.policy();
        let Ticket { caller, run, call_id, operation, .. } = ticket;
        let mut again = consider(&self.stand(&policy), run, caller, call_id, operation.clone()).ok()?;
        // What an alert has asked for is not what a reviewer has consented to before.
        if again.decision.verdict != Verdict::Ask {
            return None;
        }
        // Of the ticket, which has the digest of its message when nothing is found and a reviewer is asked.
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

    /// From now on the consent lets calls through. It is on record before.
    pub fn remember(&self, consent: Consent) {
        let policy = self.policy();
        // Given under a policy that was replaced meanwhile, it has ended already.
        if consent.policy_digest == policy.digest() {
            self.memory().add(consent);
        }
    }

    /// What is remembered, oldest first; of one run or of all.
    pub fn consents(&self, run_id: Option<&str>) -> Vec<Consent> {
        self.memory().list(run_id)
    }

    /// Ends one consent.
    pub fn forget(&self, consent_id: &str) -> Option<Consent> {
        self.memory().take(|consent| consent.consent_id == consent_id).pop()
    }

    /// Ends what is remembered for a run.
    pub fn forget_run(&self, run_id: &str) -> Vec<Consent> {
        self.memory().take(|consent| consent.run_id == run_id)
    }

    /// Takes away the consents that were given under another policy than the one in force. They let nothing through any
    /// more.
    pub fn forget_outdated(&self) -> Vec<Consent> {
        let policy = self.policy();
        self.memory().take(|consent| consent.policy_digest != policy.digest())
    }

    /// Approvals whose time is over: now `EXPIRED`. Each is returned once.
    pub fn expire_due(&self) -> Vec<Approval> {
        self.approvals().expire_due(self.now())
    }

    /// Pending approvals with half of their time gone. Each is returned once.
    pub fn reminders_due(&self) -> Vec<Approval> {
        self.approvals().reminders_due(self.now())
    }

    /// When [`Self::expire_due`] or [`Self::reminders_due`] will next have something to say.
    pub fn next_due(&self) -> Option<UnixMillis> {
        self.approvals().next_due()
    }

    /// The call is cancelled: its pending approval becomes `CANCELLED`, one that was given is void.
    pub fn cancel_call(&self, call_id: &str) -> Vec<Approval> {
        self.approvals().cancel(|approval| approval.call_id == call_id, self.now())
    }

    /// The run has ended: likewise for all of its calls.
    pub fn cancel_run(&self, run_id: &str) -> Vec<Approval> {
        self.approvals().cancel(|approval| approval.run_id == run_id, self.now())
    }

    pub fn approval(&self, approval_id: &str) -> Option<Approval> {
        self.approvals().get(approval_id).cloned()
    }

    /// Approvals, oldest first.
    pub fn list_approvals(&self, filter: &ApprovalFilter) -> Vec<Approval> {
        self.approvals().list(filter)
    }

    /// Takes up the approvals of an earlier process, into a gateway that has none. Their clocks have run on.
    pub fn restore_approvals(&self, stored: Vec<Approval>) -> Result<(), RestoreError> {
        self.approvals().restore(stored)
    }
}

#[cfg(test)]
mod property;
