//! Errors of the engine, as the client of a call or a run sees them.

use containers::EngineError;
use operations::{Evidence, Reason};
use refusal::{Refusal, chain};

/// Fact that shows that no engine answers.
const UNREACHABLE: (&str, &str) = ("engine.state", "unreachable");

/// Returns true if the refusal is of an engine that does not answer at all. No program of a run can bring that about.
pub(crate) fn is_unreachable(refusal: &Refusal) -> bool {
    refusal.origin.evidence.iter().any(|fact| (fact.what.as_ref(), fact.value.as_str()) == UNREACHABLE)
}

/// Converts an error of the engine to a refusal for a client.
#[allow(clippy::needless_pass_by_value)] // the shape that `map_err` asks for
pub fn engine_refusal(error: EngineError) -> Refusal {
    tracing::error!(error = %chain(&error), "the engine failed");
    match error {
        EngineError::Unreachable { .. } => Refusal::new(
            Reason::EngineUnavailable,
            "the container engine does not answer; run `coffer doctor`",
        )
        .shown_by(Evidence::new(UNREACHABLE.0, UNREACHABLE.1)),
        EngineError::TimedOut { attempt, .. } => {
            Refusal::new(Reason::EngineUnavailable, format!("the container engine did not {attempt} in time"))
                .shown_by(Evidence::new("engine.state", "no answer in time"))
        }
        EngineError::NotFound { attempt }
        | EngineError::Conflict { attempt, .. }
        | EngineError::Api { attempt, .. }
        | EngineError::Malformed { attempt, .. } => Refusal::new(
            Reason::EngineUnavailable,
            format!("the container engine failed to {attempt}; see the daemon's log"),
        ),
    }
}
