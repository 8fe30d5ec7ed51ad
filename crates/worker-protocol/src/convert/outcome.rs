//! Converts between [`Outcome`] and the message that a worker sends.
//!
//! Trust boundary: the container lane's worker runs beside an attacker. A message that is not a possible outcome is malformed, and the
//! stream that carried it is closed. The frame has limited the sizes already.

use operations::{Hint, Malformed, Outcome, Reason, ToolFailure, check_answer};
use prost::Message as _;
use wire::v1;
use wire::worker::v1 as worker;

use crate::frame::MAX_FRAME;

/// Most bytes of an outcome. The rest of its frame is for the id of the call.
pub const MAX_OUTCOME: usize = MAX_FRAME - 1024;
const MAX_DETAILS: usize = 64;
const MAX_HINTS: usize = 8;

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
pub fn outcome_from_wire(outcome: worker::Outcome) -> Result<Outcome, Malformed> {
    use worker::outcome::Kind;
    match outcome.kind {
        Some(Kind::Result(result)) => {
            let mut result = result.kind.ok_or_else(|| Malformed::new("outcome.result", "is empty"))?;
            check_answer(&mut result)?;
            Ok(Ok(result))
        }
        Some(Kind::Failure(failure)) => Ok(Err(failure_from(failure, &outcome.hints)?)),
        None => Err(Malformed::new("outcome", "is empty")),
    }
}

/// Parses and validates a failure without its outcome in the daemon.
pub fn failure_from_wire(failure: v1::ToolFailure) -> Result<ToolFailure, Malformed> {
    failure_from(failure, &[])
}

fn failure_from(failure: v1::ToolFailure, hints: &[String]) -> Result<ToolFailure, Malformed> {
    let reason = Reason::parse(&failure.reason)
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
    Ok(ToolFailure { reason, message: failure.message, details: failure.details, hints })
}
