//! The answer of a lane: a result of the API, or a failure. JSON dialects render the serialised results.

use std::collections::BTreeMap;

use wire::v1::{self, ExecResult};

use crate::{END_CAUSE, EndedBy, Evidence, Fault, Hint, Origin, Reason, cause, fault_of};

pub use wire::v1::entry::Type as EntryType;
pub use wire::v1::patched_file::Change as FileChange;
pub use wire::v1::result::Kind as OpResult;

/// Outcome of a call in its lane. A tool that failed is an ordinary outcome, which the model sees.
pub type Outcome = Result<OpResult, ToolFailure>;

/// Failure of a tool that ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFailure {
    /// Stable reason.
    pub reason: Reason,
    /// Description of the attempt, the error, and a remedy.
    ///
    /// It never contains a host path, a secret, or the name of an argument or a tool. Callers use different names for those.
    pub message: String,
    /// Facts that a caller can act on.
    pub details: BTreeMap<String, String>,
    /// Next steps whose names depend on the caller.
    pub hints: Vec<Hint>,
    /// Knowledge of whose failure it is, beyond its reason.
    pub origin: Origin,
}

impl ToolFailure {
    /// Creates a failure without details.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        let (details, hints) = (BTreeMap::new(), Vec::new());
        Self { reason, message: message.into(), details, hints, origin: Origin::default() }
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: Hint) -> Self {
        self.hints.push(hint);
        self
    }

    /// Moves the hints into the message, as far as the caller has names for them.
    #[must_use]
    pub fn told(mut self, say: impl FnMut(Hint) -> Option<String>) -> Self {
        let said: Vec<String> = std::mem::take(&mut self.hints).into_iter().filter_map(say).collect();
        if !said.is_empty() {
            self.message = format!("{}; {}", self.message, said.join(", or "));
        }
        self
    }

    /// Adds a fact.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }
}

impl ToolFailure {
    /// Returns the party to which the failure is put down.
    pub fn fault(&self) -> Fault {
        self.origin.fault.unwrap_or(self.reason.fault())
    }

    /// Returns true if nothing was done, so that a repetition does it once.
    pub fn is_retry_safe(&self) -> bool {
        self.origin.retry_safe.unwrap_or(self.reason.is_before_any_effect())
    }

    /// Puts the failure down to this party.
    #[must_use]
    pub fn by(mut self, fault: Fault) -> Self {
        self.origin.fault = Some(fault);
        self
    }

    /// Adds a fact that shows whose failure it is.
    #[must_use]
    pub fn shown_by(mut self, evidence: Evidence) -> Self {
        self.origin.add(evidence);
        self
    }

    /// Returns the failure as one that only a worker beside the programs of a run reports, or that they can bring about: it is not put
    /// down to the infrastructure, and its reason is no evidence that nothing was done.
    #[must_use]
    pub fn claimed(mut self) -> Self {
        self.origin.retry_safe = Some(false);
        if self.fault() == Fault::Infrastructure { self.by(Fault::Program) } else { self }
    }
}

/// Returns the reason for which a command was cut short, and a description of that. `None` if it ended by itself.
pub fn cut_short_by(result: &ExecResult) -> Option<(Reason, &'static str)> {
    if is_for_the_host(result) {
        let why = "the run was ended by its node during the call, which may have taken effect";
        return Some((Reason::RunLost, why));
    }
    cause(ended_by(result))
}

fn ended_by(result: &ExecResult) -> EndedBy {
    if result.timed_out { EndedBy::Timeout } else { result.ended_by() }
}

/// Returns true if the node ended the run. The daemon adds this fact, and no worker can.
fn is_for_the_host(result: &ExecResult) -> bool {
    ended_by(result) == EndedBy::RunEnded && result.evidence.iter().any(|fact| fact.what == END_CAUSE)
}

/// Returns the failure of a command that ran but was cut short, whatever its exit code is.
///
/// Statuses, renderings, the record and clients all use this function. A command that ended by itself has not failed in this sense,
/// whatever its code or signal is.
pub fn unfinished(result: &ExecResult) -> Option<ToolFailure> {
    let (reason, why) = match cut_short_by(result) {
        Some(cause) => cause,
        None if result.exit_code.is_none() && result.signal.is_none() => {
            (Reason::Internal, "how the command ended is not known")
        }
        None => return None,
    };
    let message = format!("{why}; its output up to then is in the result");
    // Only the worker beside the command reports an end that is not known.
    let known =
        if is_for_the_host(result) { Some(Fault::Infrastructure) } else { fault_of(ended_by(result)) };
    let fault = known.unwrap_or(Fault::Program);
    let failure = ToolFailure::new(reason, message).by(fault);
    let evidence = result.evidence.iter();
    Some(
        evidence
            .fold(failure, |failure, fact| failure.shown_by(Evidence::new(fact.what.clone(), &fact.value))),
    )
}

/// Returns the failure of a call that has a result, if its command or the shell of its session was cut short.
pub fn cut_short(result: &OpResult) -> Option<ToolFailure> {
    match result {
        OpResult::Exec(command) | OpResult::Shell(command) => unfinished(command),
        OpResult::Session(session) => {
            let (reason, why) = cause(session.ended_by())?;
            let failure = ToolFailure::new(reason, format!("{why}; the output up to then is in the result"));
            Some(failure.by(fault_of(session.ended_by()).unwrap_or(Fault::Program)))
        }
        _ => None,
    }
}

/// Returns the number of a command's processes that could not be ended, if there are any.
pub fn not_ended(result: &ExecResult) -> Option<u32> {
    result.kill.as_ref().map(|kill| kill.left).filter(|left| *left > 0)
}

impl From<ToolFailure> for v1::ToolFailure {
    /// Converts a failure for clients, with its hints in the names of the API.
    fn from(failure: ToolFailure) -> Self {
        let failure = failure.told(|hint| Some(hint.canonical()));
        Self {
            reason: failure.reason.as_str().to_owned(),
            fault: failure.fault().to_wire().into(),
            retry_safe: failure.is_retry_safe(),
            evidence: failure.origin.evidence_to_wire(),
            message: failure.message,
            details: failure.details,
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::v1::SessionResult;

    use super::*;

    #[test]
    fn cut_short_commands_fail_with_any_exit_code() {
        for (by, reason) in [
            (EndedBy::Timeout, Reason::TimedOut),
            (EndedBy::Cancelled, Reason::Cancelled),
            (EndedBy::OutputLimit, Reason::WriteLimit),
            (EndedBy::MemoryLimit, Reason::MemoryLimit),
            (EndedBy::FileSizeLimit, Reason::WriteLimit),
            (EndedBy::DiskQuota, Reason::WriteLimit),
        ] {
            for exit_code in [None, Some(0), Some(137)] {
                let ended_by = by.into();
                let command = ExecResult { ended_by, exit_code, ..Default::default() };
                let failure = cut_short(&OpResult::Exec(command.clone())).unwrap();
                assert_eq!(failure.reason, reason, "{by:?}");
                assert_eq!(cut_short(&OpResult::Shell(command)), Some(failure));
                let session = SessionResult { ended_by, exit_code, ..Default::default() };
                assert_eq!(cut_short(&OpResult::Session(session)).unwrap().reason, reason, "{by:?}");
            }
        }
        let killed = SessionResult { ended_by: EndedBy::Killed.into(), ..Default::default() };
        assert_eq!(cut_short(&OpResult::Session(killed)).unwrap().reason, Reason::Cancelled);
    }

    #[test]
    fn a_command_whose_run_ended_for_the_host_is_lost_to_the_infrastructure() {
        let fact = Evidence::new(END_CAUSE, "node_drained");
        let command = |by: EndedBy, evidence: &[&Evidence]| {
            let evidence = evidence.iter().map(|fact| fact.to_wire()).collect();
            unfinished(&ExecResult { ended_by: by.into(), evidence, ..Default::default() }).unwrap()
        };
        let lost = command(EndedBy::RunEnded, &[&fact]);
        assert_eq!((lost.reason, lost.fault()), (Reason::RunLost, Fault::Infrastructure));
        assert_eq!(lost.origin.evidence, std::slice::from_ref(&fact));
        assert!(!lost.is_retry_safe() && lost.message.contains("output up to then"), "{lost:?}");
        let other = Evidence::new("engine.exit_code", 137);
        for (by, evidence) in [(EndedBy::RunEnded, &other), (EndedBy::Cancelled, &fact)] {
            let failure = command(by, &[evidence]);
            assert_eq!((failure.reason, failure.fault()), (Reason::Cancelled, Fault::Caller), "{by:?}");
        }
    }

    #[test]
    fn commands_that_end_by_themselves_have_not_failed() {
        for (exit_code, signal) in [(Some(0), None), (Some(1), None), (Some(137), None), (None, Some(9))] {
            let command = ExecResult { exit_code, signal, ..Default::default() };
            assert_eq!(unfinished(&command), None, "{exit_code:?}, {signal:?}");
        }
        assert_eq!(cut_short(&OpResult::Session(SessionResult::default())), None);
        assert_eq!(unfinished(&ExecResult::default()).unwrap().reason, Reason::Internal);
    }
}
