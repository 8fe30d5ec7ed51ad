//! Failures of calls for which a lane gave no outcome.

use operations::{Fault, Reason, ToolFailure};
use worker_protocol::client::{CloseReason, LaneError};

/// Converts the error of a lane to a failure for the model. [`crate::Loss`] explains how a container's worker was lost.
pub fn failure(error: &LaneError) -> ToolFailure {
    match error {
        LaneError::Lost(CloseReason::Shutdown) => ToolFailure::new(
            Reason::Cancelled,
            "The run ended during the call. The call may have taken effect.",
        ),
        // The files that it reads and writes are those of the run's programs, which may know how to end it.
        LaneError::Lost(_) => ToolFailure::new(
            Reason::Cancelled,
            "The worker was lost during the call; it is restarting. The call may have taken effect; check before retrying.",
        )
        .with("retryable", "true")
        .by(Fault::Program),
        LaneError::TimedOut => ToolFailure::new(Reason::TimedOut, "the operation gave no outcome in time"),
        LaneError::Cancelled => ToolFailure::new(Reason::Cancelled, "the call was cancelled"),
        LaneError::Busy => ToolFailure::new(Reason::Overloaded, "too many terminals are open in this run; close one"),
        LaneError::TooLarge => ToolFailure::new(Reason::InvalidArgument, "the operation is too large to be sent"),
        LaneError::NotPlaced(_) => ToolFailure::new(
            Reason::Internal,
            "the command could not be confined and was not run; see the daemon's log",
        ),
    }
}
