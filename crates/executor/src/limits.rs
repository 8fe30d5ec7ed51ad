//! Determines what ended a command early, and which limits it hit, from the daemon's own observations.
//!
//! The worker only knows a signal, and runs beside the command.

use containers::LimitEvents;
use ops::{EndedBy, ExecResult, Limit};

/// Observations of a command besides its result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Evidence {
    /// Limit events that the kernel counted for the container while the command ran.
    pub(crate) events: LimitEvents,
    /// Limit on its output in bytes.
    pub(crate) output_limit: u64,
    /// True if a client asked to end it.
    pub(crate) cancelled: bool,
    /// True if it was ended and did not end by itself. Always false for a command without a cgroup.
    pub(crate) forced: bool,
}

pub(crate) fn judge(result: &mut ExecResult, evidence: Evidence) {
    let Evidence { events, output_limit, cancelled, forced } = evidence;
    let too_much = result.stdout_bytes.saturating_add(result.stderr_bytes) > output_limit;
    let limit = ops::limit_that_ended(result.exit_code, result.signal, false, events.oom_kills > 0);
    let too_large = limit == Some(EndedBy::FileSizeLimit);
    // The order determines which signals came from the daemon.
    let ended_by = if result.timed_out {
        Some(EndedBy::Timeout)
    } else if too_much {
        Some(EndedBy::OutputLimit)
    } else if cancelled && (forced || result.exit_code.is_none()) {
        Some(EndedBy::Cancelled)
    } else {
        limit
    };
    let met = [
        (Limit::Memory, events.oom_kills > 0),
        (Limit::Processes, events.forks_refused > 0),
        (Limit::Output, too_much),
        (Limit::FileSize, too_large),
    ];
    result.set_ended_by(ended_by.unwrap_or_default());
    let mut limits: Vec<Limit> = result.limits_hit().collect();
    limits.extend(met.into_iter().filter(|(_, met)| *met).map(|(limit, _)| limit));
    ops::explain(result, limits);
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Evidence = Evidence {
        events: LimitEvents { oom_kills: 0, forks_refused: 0 },
        output_limit: 100,
        cancelled: false,
        forced: false,
    };
    const OUT_OF_MEMORY: Evidence =
        Evidence { events: LimitEvents { oom_kills: 1, forks_refused: 0 }, ..NOTHING };

    fn judged(result: ExecResult, evidence: Evidence) -> (Option<EndedBy>, Vec<Limit>) {
        let mut result = result;
        judge(&mut result, evidence);
        assert_eq!(result.hint.is_empty(), result.limits_hit.is_empty());
        (Some(result.ended_by()).filter(|by| *by != EndedBy::Unspecified), result.limits_hit().collect())
    }

    fn died(signal: i32) -> ExecResult {
        ExecResult { signal: Some(signal), ..ExecResult::default() }
    }

    fn exited(code: i32) -> ExecResult {
        ExecResult { exit_code: Some(code), ..ExecResult::default() }
    }

    #[test]
    fn what_is_not_known_stays_empty() {
        for result in [exited(0), exited(137), died(9), died(15), ExecResult::default()] {
            assert_eq!(judged(result, NOTHING), (None, vec![]));
        }
    }

    #[test]
    fn every_end_has_its_evidence() {
        assert_eq!(judged(died(9), OUT_OF_MEMORY), (Some(EndedBy::MemoryLimit), vec![Limit::Memory]));
        // A shell lives on when the kernel kills what it has started, and passes it on or goes on.
        assert_eq!(judged(exited(137), OUT_OF_MEMORY), (Some(EndedBy::MemoryLimit), vec![Limit::Memory]));
        assert_eq!(judged(exited(0), OUT_OF_MEMORY), (None, vec![Limit::Memory]));
        assert_eq!(judged(died(25), NOTHING), (Some(EndedBy::FileSizeLimit), vec![Limit::FileSize]));
        let cancelled = Evidence { cancelled: true, ..NOTHING };
        assert_eq!(judged(died(15), cancelled), (Some(EndedBy::Cancelled), vec![]));
        assert_eq!(judged(exited(0), cancelled), (None, vec![]), "it was over before it was told");
        let heard = Evidence { forced: true, ..cancelled };
        assert_eq!(
            judged(exited(0), heard),
            (Some(EndedBy::Cancelled), vec![]),
            "it ended because it was told"
        );
        let flood = ExecResult { stdout_bytes: 60, stderr_bytes: 41, ..died(9) };
        assert_eq!(judged(flood, OUT_OF_MEMORY).0, Some(EndedBy::OutputLimit));
        let full = ExecResult { stdout_bytes: 60, stderr_bytes: 40, ..exited(0) };
        assert_eq!(judged(full, NOTHING), (None, vec![]));
        let bomb = Evidence { events: LimitEvents { oom_kills: 0, forks_refused: 7 }, ..NOTHING };
        let late = ExecResult { timed_out: true, ..died(9) };
        assert_eq!(judged(late, bomb), (Some(EndedBy::Timeout), vec![Limit::Processes]));
    }

    #[test]
    fn what_the_worker_saw_is_kept() {
        let full = ExecResult { limits_hit: vec![Limit::TmpSpace.into()], ..exited(1) };
        assert_eq!(judged(full, OUT_OF_MEMORY), (None, vec![Limit::Memory, Limit::TmpSpace]));
    }
}
