//! Errors of the engine, as the client of a call or a run sees them.

use containers::EngineError;
use operations::{Evidence, Reason};
use refusal::{NO_ENGINE, Refusal, chain};

/// Converts an error of the engine to a refusal for a client.
#[allow(clippy::needless_pass_by_value)] // the shape that `map_err` asks for
pub fn engine_refusal(error: EngineError) -> Refusal {
    tracing::error!(error = %chain(&error), "the engine failed");
    match error {
        EngineError::Unreachable { .. } => Refusal::new(
            Reason::EngineUnavailable,
            "the container engine does not answer; run `coffer doctor`",
        )
        .shown_by(Evidence::new(NO_ENGINE.0, NO_ENGINE.1)),
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
