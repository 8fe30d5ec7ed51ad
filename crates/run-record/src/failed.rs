//! The reason for which a run failed, the party to which that is put down, and the facts that show it.

use operations::{END_CAUSE, Evidence, Fault, Origin, ToolFailure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{EndCause, Record};

/// Failure of a run, beside its message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Stable name of the reason.
    pub reason: String,
    pub fault: Fault,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
}

impl Failed {
    pub(crate) fn of(failure: ToolFailure) -> Self {
        let (reason, fault) = (failure.reason.as_str().to_owned(), failure.fault());
        Self { reason, fault, evidence: failure.origin.evidence }
    }

    /// Returns the knowledge of whose failure it is, for a refusal of a call that came later. Nothing was done of such a call.
    pub fn origin(&self) -> Origin {
        Origin { fault: Some(self.fault), retry_safe: Some(true), evidence: self.evidence.clone() }
    }
}

impl EndCause {
    /// Returns the party to which an end by this cause is put down. `None` if it was meant to come.
    pub fn fault(self) -> Option<Fault> {
        match self {
            Self::Ttl | Self::IdleTimeout | Self::Lease => None,
            Self::NodeDrained => Some(Fault::Infrastructure),
        }
    }

    /// Returns the fact that shows an end that is put down to the infrastructure. `None` for all others.
    pub fn evidence(self) -> Option<Evidence> {
        (self.fault() == Some(Fault::Infrastructure)).then(|| Evidence::new(END_CAUSE, self.as_str()))
    }
}

impl Record {
    /// Notes the failure with which the run ends, so that calls are refused with it from now on.
    pub fn fails_with(&mut self, failure: ToolFailure) {
        self.failure = Some(failure.message.clone());
        self.failed = Some(Failed::of(failure));
    }

    /// Returns the party to which the end of the run is put down. `None` if it lives, or ended as it was meant to.
    pub fn fault(&self) -> Option<Fault> {
        let of_failure = self.failed.as_ref().map(|failed| failed.fault);
        of_failure.or_else(|| self.end_cause.and_then(EndCause::fault))
    }

    /// Returns the knowledge of whose failure the end of the run is, with the facts that show it.
    pub fn origin(&self) -> Origin {
        let of_cause = || {
            let evidence = self.end_cause.and_then(EndCause::evidence).into_iter().collect();
            Origin { fault: self.fault(), evidence, ..Origin::default() }
        };
        self.failed.as_ref().map_or_else(of_cause, Failed::origin)
    }

    /// Adds the reason of the failure, and whose it is, to the details of an event, if the run failed.
    pub fn explain_failure(&self, details: &mut Value) {
        if let Some(failure) = &self.failure {
            details["failure"] = failure.as_str().into();
        }
        if let Some(Failed { reason, fault, evidence }) = &self.failed {
            details["failure_reason"] = reason.as_str().into();
            details["fault"] = fault.as_str().into();
            if !evidence.is_empty() {
                details["evidence"] =
                    evidence.iter().map(|fact| json!({ "what": fact.what, "value": fact.value })).collect();
            }
        }
    }
}
