//! The answers to a call: a permit, a ticket to an approval, or a refusal.

use std::sync::OnceLock;

use ops::{Bound, Bounds, Operation};

use crate::binding::{Covered, digest, of_message};
use crate::caller::{Caller, RunScope};
use crate::decision::{Decision, Refusal};
use crate::permit::Permit;
use crate::policy::{McpServer, Terms};

/// What the gateway answers to a call.
#[derive(Debug)]
#[must_use]
pub enum Admission {
    /// It may happen now.
    Permit(Permit),
    /// It needs consent.
    Ask(Box<Ticket>),
    /// It does not happen.
    Refuse(Refusal),
}

/// A call that passed every check but the last one. It permits nothing: it is what an approval is asked for with, and
/// what the approval is held against afterwards.
#[derive(Debug)]
pub struct Ticket {
    pub(crate) caller: Caller,
    pub(crate) run: RunScope,
    pub(crate) call_id: String,
    pub(crate) operation: Operation,
    /// Digest of the operation's message, from the first time that it is needed.
    pub(crate) message: OnceLock<[u8; 32]>,
    pub(crate) bounds: Bounds,
    /// Where a call to an upstream server goes.
    pub(crate) server: Option<McpServer>,
    pub(crate) decision: Decision,
    pub(crate) terms: Terms,
}

impl Ticket {
    pub fn call_id(&self) -> &str {
        &self.call_id
    }

    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// What is to be consented to.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// The bounds that it would have: for making a preview.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Why consent is needed.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// How the profile has consent asked for.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The digest over all that an approval covers, under the policy with this digest.
    pub(crate) fn digest(&self, policy_digest: &str, bound: &Bound) -> String {
        self.covered(policy_digest, Some(&self.call_id), bound)
    }

    /// The same, whichever call of the run it is.
    pub(crate) fn consent_digest(&self, policy_digest: &str, bound: &Bound) -> String {
        self.covered(policy_digest, None, bound)
    }

    fn covered(&self, policy_digest: &str, call_id: Option<&str>, bound: &Bound) -> String {
        let Self { caller, run, operation, message, .. } = self;
        let message = message.get_or_init(|| of_message(operation));
        digest(&Covered { policy_digest, run, caller, call_id, message, bound })
    }
}
