//! Converts between [`Outcome`] and the message that a worker sends.
//!
//! Trust boundary: the container lane's worker runs beside an attacker. A message that is not a possible outcome is malformed, and the
//! stream that carried it is closed. The frame has limited the sizes already.

use operations::{
    CommandReport, CommandUsage, Exit, Hint, KillMethod, Limit, Malformed, OpResult, Outcome, Reason, Stop,
    ToolFailure, Written, check_answer, is_space,
};
use prost::Message as _;
use wire::v1;
use wire::worker::v1 as worker;

use crate::frame::MAX_FRAME;

/// Most bytes of an outcome. The rest of its frame is for the id of the call.
pub const MAX_OUTCOME: usize = MAX_FRAME - 1024;
const MAX_DETAILS: usize = 64;
const MAX_HINTS: usize = 8;

/// Answer of a worker to a call that did not fail.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)] // a result is the common answer
pub enum Reply {
    /// Result of an operation.
    Result(OpResult),
    /// Facts about a command that has ended.
    Command(Box<CommandReport>),
}

impl Reply {
    /// Returns the result of an operation that is no command.
    pub fn result(self) -> Outcome {
        match self {
            Self::Result(result) => Ok(result),
            Self::Command(_) => {
                Err(ToolFailure::new(Reason::Internal, "the worker answered with the end of a command"))
            }
        }
    }

    /// Returns the facts about a command.
    pub fn command(self) -> Result<CommandReport, ToolFailure> {
        match self {
            Self::Command(report) => Ok(*report),
            Self::Result(_) => {
                Err(ToolFailure::new(Reason::Internal, "the worker answered without the end of the command"))
            }
        }
    }
}

/// Converts the worker's account of a command.
pub fn report_to_wire(report: Result<worker::CommandReport, ToolFailure>) -> worker::Outcome {
    match report {
        Ok(report) => {
            let kind = Some(worker::outcome::Kind::Command(report));
            worker::Outcome { kind, usage: None, bound: None, hints: Vec::new() }
        }
        Err(failure) => outcome_to_wire(Err(failure)),
    }
}

pub fn outcome_to_wire(outcome: Outcome) -> worker::Outcome {
    use worker::outcome::Kind;
    let mut hints = Vec::new();
    let kind = match outcome {
        Ok(result) => Kind::Result(result.into()),
        Err(mut failure) => {
            hints = std::mem::take(&mut failure.hints).iter().map(|hint| hint.as_str().to_owned()).collect();
            Kind::Failure(failure.into())
        }
    };
    worker::Outcome { kind: Some(kind), usage: None, bound: None, hints }
}

/// Returns the outcome, or a failure if it does not fit into a frame. So an outcome that is too large fails its call and not the worker.
pub fn carried(outcome: worker::Outcome) -> worker::Outcome {
    let bytes = outcome.encoded_len();
    if bytes <= MAX_OUTCOME {
        return outcome;
    }
    let message = format!(
        "the call was executed, but its outcome of {bytes} bytes is above the limit of {MAX_OUTCOME}: ask \
         for a smaller part"
    );
    outcome_to_wire(Err(ToolFailure::new(Reason::ReadLimit, message)))
}

/// Parses and validates an outcome in the daemon.
pub fn outcome_from_wire(outcome: worker::Outcome) -> Result<Result<Reply, ToolFailure>, Malformed> {
    use worker::outcome::Kind;
    match outcome.kind {
        Some(Kind::Result(result)) => {
            let mut result = result.kind.ok_or_else(|| Malformed::new("outcome.result", "is empty"))?;
            check_answer(&mut result)?;
            Ok(Ok(Reply::Result(result)))
        }
        Some(Kind::Command(report)) => Ok(Ok(Reply::Command(Box::new(report_from_wire(&report)?)))),
        Some(Kind::Failure(failure)) => Ok(Err(failure_from(failure, &outcome.hints)?)),
        None => Err(Malformed::new("outcome", "is empty")),
    }
}

fn report_from_wire(report: &worker::CommandReport) -> Result<CommandReport, Malformed> {
    use worker::command_report::Stop as Said;
    let exit = Exit::of(report.exit_code, report.signal)
        .ok_or_else(|| Malformed::new("outcome.command", "has an impossible exit"))?;
    let stop = match report.stop() {
        Said::Itself => Stop::Itself,
        Said::Deadline => Stop::Deadline,
        Said::Stopped => Stop::Stopped,
        Said::Unspecified => return Err(Malformed::new("outcome.command.stop", "is unknown")),
    };
    // A worker only sees which file systems are full. The daemon adds the other limits.
    let space = |limit: &i32| Limit::try_from(*limit).ok().filter(|limit| is_space(*limit));
    let full = report.full.iter().map(space).collect::<Option<Vec<_>>>();
    let full =
        full.ok_or_else(|| Malformed::new("outcome.command.full", "has a limit that no worker can see"))?;
    let kill = report.kill.unwrap_or_default();
    // Only the daemon has cgroups, and keeps processes.
    let own = [KillMethod::Unspecified, KillMethod::NoneNeeded, KillMethod::Descendants];
    if !own.contains(&kill.method()) || kill.running > 0 {
        return Err(Malformed::new("outcome.command.kill", "has evidence that no worker can have"));
    }
    let written = |bytes| Written { bytes, ..Written::default() };
    Ok(CommandReport {
        exit,
        stop,
        stdout: written(report.stdout_bytes),
        stderr: written(report.stderr_bytes),
        usage: CommandUsage {
            cpu_time_us: report.cpu_time_us,
            peak_memory_bytes: report.peak_memory_bytes,
            wall_time_us: report.wall_time_us,
        },
        full,
        kill,
    })
}

/// Parses and validates a failure without its outcome in the daemon.
pub fn failure_from_wire(failure: v1::ToolFailure) -> Result<ToolFailure, Malformed> {
    failure_from(failure, &[])
}

/// Returns true for the reason of a decision that only the daemon makes.
///
/// From a worker it would be a lie about a reviewer or a limit, and clients repeat some of these calls by themselves.
fn is_of_daemon(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::RateLimited
            | Reason::ApprovalDenied
            | Reason::ApprovalExpired
            | Reason::AwaitingApproval
            | Reason::TenantLimit
            | Reason::WrongNode
            | Reason::DaemonStopping
            | Reason::NodeDrained
            | Reason::AuditUnavailable
    )
}

fn failure_from(failure: v1::ToolFailure, hints: &[String]) -> Result<ToolFailure, Malformed> {
    let reason = Reason::parse(&failure.reason)
        .filter(|reason| !is_of_daemon(*reason))
        .ok_or_else(|| Malformed::new("outcome.failure.reason", "is unknown"))?;
    if failure.details.len() > MAX_DETAILS {
        return Err(Malformed::new("outcome.failure.details", "are too many"));
    }
    if hints.len() > MAX_HINTS {
        return Err(Malformed::new("outcome.hints", "are too many"));
    }
    let hint = |name: &String| {
        Hint::parse(name).ok_or_else(|| Malformed::new("outcome.hints", "has an unknown one"))
    };
    let hints = hints.iter().map(hint).collect::<Result<_, _>>()?;
    // The party to which it is put down is none of the worker's.
    Ok(ToolFailure { details: failure.details, hints, ..ToolFailure::new(reason, failure.message) })
}
