//! The answers to a call: a permit, a ticket to an approval, or a refusal.

use std::time::Duration;

use ops::{Bounds, Operation};

use crate::binding::{Covered, FileStates, digest};
use crate::caller::{Caller, RunScope};
use crate::decision::{Decision, Refusal};
use crate::permit::Permit;

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
    pub(crate) bounds: Bounds,
    pub(crate) decision: Decision,
    pub(crate) timeout: Duration,
}

impl Ticket {
    /// The call.
    pub fn call_id(&self) -> &str {
        &self.call_id
    }

    /// Who makes it.
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

    /// How long the profile gives a reviewer.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The digest over all that an approval covers, under the policy with this digest.
    pub(crate) fn digest(&self, policy_digest: &str, files: &FileStates) -> String {
        digest(&Covered {
            policy_digest,
            run: &self.run,
            caller: &self.caller,
            call_id: &self.call_id,
            operation: &self.operation,
            files,
        })
    }
}
