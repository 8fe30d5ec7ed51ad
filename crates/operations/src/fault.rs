//! The party to which a failure is put down, and the facts that show it.
//!
//! The one table from reasons and ends of commands to parties. Both matches name every case, so that a new one has to decide.
//!
//! Trust boundary: a program that fails its task gains if the failure counts as one of the infrastructure, because such a result is
//! thrown away. So a failure that programs of a run can cause themselves is theirs, and the word of a worker that runs beside them
//! ([`claimed`](crate::ToolFailure::claimed)) is no evidence.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use wire::v1::{self, exec_result::EndedBy};

use crate::Reason;

/// Most facts of one failure.
const MOST: usize = 16;

/// Most bytes of the name and of the value of a fact.
const LONGEST: usize = 256;

/// Name of the fact that a run ended for its host, and not as it was meant to. The value is the cause.
pub const END_CAUSE: &str = "run.end_cause";

/// Party to which a failure is put down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The programs of the run.
    Program,
    /// The policy, a quota or a reviewer.
    Policy,
    /// The request, or the client that cancelled it.
    Caller,
    /// The host, its engine, or the daemon.
    Infrastructure,
}

impl Fault {
    const ALL: [Self; 4] = [Self::Program, Self::Policy, Self::Caller, Self::Infrastructure];

    /// Returns the name in the facts of a status, and in the audit log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Program => "PROGRAM",
            Self::Policy => "POLICY",
            Self::Caller => "CALLER",
            Self::Infrastructure => "INFRASTRUCTURE",
        }
    }

    pub const fn to_wire(self) -> v1::Fault {
        match self {
            Self::Program => v1::Fault::Program,
            Self::Policy => v1::Fault::Policy,
            Self::Caller => v1::Fault::Caller,
            Self::Infrastructure => v1::Fault::Infrastructure,
        }
    }

    /// Returns the party that the API names by this number.
    pub fn of_wire(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.to_wire() as i32 == number)
    }
}

impl Reason {
    /// Returns the party to which a failure with this reason is put down, unless more is known of it.
    pub const fn fault(self) -> Fault {
        match self {
            // An upstream tool that fails may do so for its arguments.
            Self::MemoryLimit | Self::TimedOut | Self::UpstreamFailed => Fault::Program,
            // Most bounds of calls are those of one run, which its programs can reach.
            Self::SandboxViolation
            | Self::PermissionDenied
            | Self::CommandNotAllowed
            | Self::RateLimited
            | Self::Overloaded
            | Self::ApprovalDenied
            | Self::ApprovalExpired
            | Self::AwaitingApproval
            | Self::ReadLimit
            | Self::WriteLimit
            | Self::TenantLimit
            | Self::ImageNotAllowed => Fault::Policy,
            Self::PreconditionFailed
            | Self::InvalidFrontmatter
            | Self::InvalidArgument
            | Self::NotFound
            | Self::WrongNode
            | Self::AlreadyExists
            | Self::ImageMissing
            | Self::ImageUnusable
            | Self::Cancelled
            | Self::RunNotReady => Fault::Caller,
            Self::RunLost
            | Self::DaemonStopping
            | Self::NodeDrained
            | Self::AuditUnavailable
            | Self::EngineUnavailable
            | Self::Internal => Fault::Infrastructure,
        }
    }

    /// Returns true if a request that was refused for this reason has had no effect, whichever request it was.
    pub const fn is_before_any_effect(self) -> bool {
        match self {
            Self::SandboxViolation
            | Self::PermissionDenied
            | Self::CommandNotAllowed
            | Self::RateLimited
            | Self::Overloaded
            | Self::ApprovalDenied
            | Self::ApprovalExpired
            | Self::AwaitingApproval
            | Self::TenantLimit
            | Self::InvalidArgument
            | Self::ImageMissing
            | Self::ImageNotAllowed
            | Self::ImageUnusable
            | Self::RunNotReady
            | Self::WrongNode
            | Self::DaemonStopping
            | Self::NodeDrained => true,
            Self::ReadLimit
            | Self::WriteLimit
            | Self::MemoryLimit
            | Self::PreconditionFailed
            | Self::InvalidFrontmatter
            | Self::NotFound
            | Self::AlreadyExists
            | Self::TimedOut
            | Self::Cancelled
            | Self::RunLost
            | Self::AuditUnavailable
            | Self::EngineUnavailable
            | Self::UpstreamFailed
            | Self::Internal => false,
        }
    }
}

/// Returns the party to which the early end of a command is put down. `None` if it ended by itself.
pub const fn fault_of(by: EndedBy) -> Option<Fault> {
    Some(match by {
        EndedBy::Unspecified => return None,
        EndedBy::Timeout | EndedBy::MemoryLimit | EndedBy::Interrupted => Fault::Program,
        EndedBy::OutputLimit | EndedBy::FileSizeLimit | EndedBy::DiskQuota => Fault::Policy,
        EndedBy::Cancelled | EndedBy::RunEnded | EndedBy::Killed => Fault::Caller,
        EndedBy::HostMemory | EndedBy::HostDisk => Fault::Infrastructure,
    })
}

/// Fact that shows whose failure it is. It contains no host path and no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Name, such as `engine.exit_code`.
    pub what: Cow<'static, str>,
    /// Value.
    pub value: String,
}

impl Evidence {
    /// Makes a fact. A value that is too long is cut.
    pub fn new(what: impl Into<Cow<'static, str>>, value: impl fmt::Display) -> Self {
        Self { what: what.into(), value: cut(value.to_string()) }
    }

    pub fn to_wire(&self) -> v1::Evidence {
        v1::Evidence { what: self.what.to_string(), value: self.value.clone() }
    }

    fn of_wire(evidence: v1::Evidence) -> Self {
        Self { what: cut(evidence.what).into(), value: cut(evidence.value) }
    }
}

fn cut(mut text: String) -> String {
    let mut end = LONGEST.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// Knowledge about a failure beyond its reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// Party to which it is put down. `None`: that of its reason.
    pub fault: Option<Fault>,
    /// True if a repetition is safe, because nothing was done. `None`: as for its reason.
    pub retry_safe: Option<bool>,
    /// Facts that show whose failure it is.
    pub evidence: Vec<Evidence>,
}

impl Origin {
    /// Adds a fact, unless there are too many.
    pub fn add(&mut self, evidence: Evidence) {
        if self.evidence.len() < MOST {
            self.evidence.push(evidence);
        }
    }

    /// Returns the facts as the API has them.
    pub fn evidence_to_wire(&self) -> Vec<v1::Evidence> {
        self.evidence.iter().map(Evidence::to_wire).collect()
    }

    /// Restores the knowledge that the API has of a failure.
    pub fn of_wire(fault: i32, retry_safe: bool, evidence: Vec<v1::Evidence>) -> Self {
        let evidence = evidence.into_iter().take(MOST).map(Evidence::of_wire).collect();
        // A failure that an earlier daemon stored has no party.
        let fault = Fault::of_wire(fault);
        Self { fault, retry_safe: fault.map(|_| retry_safe), evidence }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ToolFailure;

    #[test]
    fn a_claim_of_a_worker_is_never_put_down_to_the_infrastructure() {
        for reason in Reason::ALL {
            let failure = ToolFailure::new(reason, "why");
            assert_eq!(failure.fault(), reason.fault());
            let claimed = failure.by(Fault::Infrastructure).claimed();
            assert_eq!((claimed.fault(), claimed.is_retry_safe()), (Fault::Program, false), "{reason}");
        }
        assert_eq!(ToolFailure::new(Reason::Cancelled, "").claimed().fault(), Fault::Caller);
    }

    #[test]
    fn limits_of_a_run_are_its_own_and_those_of_the_host_are_not() {
        assert_eq!(fault_of(EndedBy::Unspecified), None);
        for (by, fault) in [
            (EndedBy::MemoryLimit, Fault::Program),
            (EndedBy::Timeout, Fault::Program),
            (EndedBy::DiskQuota, Fault::Policy),
            (EndedBy::Cancelled, Fault::Caller),
            (EndedBy::HostMemory, Fault::Infrastructure),
            (EndedBy::HostDisk, Fault::Infrastructure),
        ] {
            assert_eq!(fault_of(by), Some(fault), "{by:?}");
        }
    }

    #[test]
    fn a_failure_of_the_api_is_restored_as_it_was() {
        let mut failure = ToolFailure::new(Reason::Cancelled, "why").by(Fault::Infrastructure);
        failure.origin.retry_safe = Some(true);
        let failure = failure.shown_by(Evidence::new("engine.exit_code", 137));
        let sent = v1::ToolFailure::from(failure.clone());
        assert_eq!((sent.fault(), sent.retry_safe), (v1::Fault::Infrastructure, true));
        assert_eq!(Origin::of_wire(sent.fault, sent.retry_safe, sent.evidence), failure.origin);
        let of_an_earlier_daemon = Origin::of_wire(0, false, Vec::new());
        assert_eq!(of_an_earlier_daemon, Origin::default());
        assert_eq!(Origin::of_wire(99, true, Vec::new()), Origin::default());
    }

    #[test]
    fn facts_are_bounded() {
        let mut failure = ToolFailure::new(Reason::RunLost, "why");
        for number in 0..2 * MOST {
            failure = failure.shown_by(Evidence::new("a", "é".repeat(LONGEST + number)));
        }
        assert_eq!(failure.origin.evidence.len(), MOST);
        assert!(failure.origin.evidence.iter().all(|fact| fact.value.len() <= LONGEST));
    }
}
