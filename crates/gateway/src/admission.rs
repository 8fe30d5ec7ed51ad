//! The answers to a call: a permit, a ticket to an approval, or a refusal.

use std::sync::OnceLock;

use operations::{Bound, Bounds, Operation};

use crate::binding::{Covered, digest, of_message};
use crate::decision::{Decision, Refusal};
use crate::permit::Permit;
use policy::{Caller, McpServer, RunScope, Terms};

/// Answer of the gateway to a call.
#[derive(Debug)]
#[must_use]
pub enum Admission {
    /// The call may run now.
    Permit(Permit),
    /// The call needs a reviewer's consent.
    Ask(Box<Ticket>),
    /// The call does not run.
    Refuse(Refusal),
}

/// A call that passed every check except consent. It permits nothing.
///
/// An approval is requested with the ticket, and compared with it when it is redeemed.
#[derive(Debug)]
pub struct Ticket {
    pub(crate) caller: Caller,
    pub(crate) run: RunScope,
    pub(crate) call_id: String,
    pub(crate) operation: Operation,
    /// Digest of the operation's message, computed when it is first needed.
    pub(crate) message: OnceLock<[u8; 32]>,
    pub(crate) bounds: Bounds,
    /// Destination of a call to an upstream server.
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

    /// Returns the operation that needs consent.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// Returns the bounds that the call would run with, so that a preview can be made.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Returns the decision, which says why consent is needed.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Returns the profile's terms for a request for consent.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Returns the digest over everything that an approval covers, under the policy with this digest.
    pub(crate) fn digest(&self, policy_digest: &str, bound: &Bound) -> String {
        self.covered(policy_digest, Some(&self.call_id), bound)
    }

    /// Returns the same digest without the call's id, so that it is equal for every such call of the run.
    pub(crate) fn consent_digest(&self, policy_digest: &str, bound: &Bound) -> String {
        self.covered(policy_digest, None, bound)
    }

    fn covered(&self, policy_digest: &str, call_id: Option<&str>, bound: &Bound) -> String {
        let Self { caller, run, operation, message, .. } = self;
        let message = message.get_or_init(|| of_message(operation));
        digest(&Covered { policy_digest, run, caller, call_id, message, bound })
    }
}
