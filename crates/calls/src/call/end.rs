//! The end of a call, before its receipt and its answer.

use dialects::ProcessView;
use operations::OpResult;
use refusal::Refusal;
use worker_protocol::client::Finished;

/// The end of a refused or executed call.
pub(super) enum CallEnd {
    Executed(Box<Finished>),
    /// The answer of a process that an earlier call started.
    Accessed(Box<ProcessView>),
    Refused(Refusal),
    /// The daemon failed on the way.
    Broken(Refusal),
}

impl CallEnd {
    /// States whether a repetition of the call is safe. A call that was refused has done nothing, and one without an effect never does.
    pub(super) fn settle(&mut self, has_effect: bool) {
        let (origin, is_safe) = match self {
            Self::Refused(refusal) => (&mut refusal.origin, true),
            Self::Broken(refusal) => (&mut refusal.origin, !has_effect),
            Self::Executed(finished) => match &mut finished.outcome {
                Err(failure) => (&mut failure.origin, !has_effect),
                Ok(_) => return,
            },
            Self::Accessed(_) => return,
        };
        origin.retry_safe = Some(is_safe);
    }

    /// Returns the number of bytes that the command wrote beyond the `kept` ones.
    pub(super) fn output_beyond(&self, kept: [u64; 2]) -> u64 {
        let Self::Executed(finished) = self else { return 0 };
        let command = finished.outcome.as_ref().ok().and_then(OpResult::command);
        command.map_or(0, |command| {
            command.stdout_bytes.saturating_sub(kept[0]) + command.stderr_bytes.saturating_sub(kept[1])
        })
    }
}

#[cfg(test)]
mod tests {
    use operations::{Outcome, Reason, ToolFailure};
    use refusal::Refusal;

    use super::CallEnd;
    use crate::call::execute::finished;

    #[test]
    fn only_a_call_without_an_effect_or_before_it_is_safe_to_repeat() {
        let safe = |mut close: CallEnd, has_effect| {
            close.settle(has_effect);
            match close {
                CallEnd::Refused(refusal) | CallEnd::Broken(refusal) => refusal.origin.retry_safe,
                CallEnd::Executed(finished) => finished.outcome.unwrap_err().origin.retry_safe,
                CallEnd::Accessed(_) => None,
            }
        };
        let refusal = || Refusal::new(Reason::RunLost, "lost");
        let failed: Outcome = Err(ToolFailure::new(Reason::RateLimited, "whatever its reason is"));
        for (has_effect, executed) in [(true, Some(false)), (false, Some(true))] {
            assert_eq!(safe(CallEnd::Refused(refusal()), has_effect), Some(true));
            assert_eq!(safe(CallEnd::Broken(refusal()), has_effect), executed);
            assert_eq!(safe(CallEnd::Executed(Box::new(finished(failed.clone()))), has_effect), executed);
        }
    }
}
