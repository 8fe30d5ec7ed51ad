//! Messages for a run that takes no call now: its state, or its holder and how the run continues.

use crate::record::{EndCause, Held, Hold, Record, State};
use operations::{Fault, Reason};
use refusal::Refusal;

/// Refuses a call, with the reason that the run's record shows. If the run is ending or over, see [`is_over`].
///
/// A pause, an alert or a terminal is named before an approval, which ends without the caller.
pub(crate) fn takes_no_call(record: &Record) -> Refusal {
    // The record has the hold before the run is PAUSED.
    let state = if record.state == State::Ready { State::Paused } else { record.state };
    if state != State::Paused {
        return is_over(record);
    }
    let refused = takes_no_calls(state);
    let holds = &record.holds;
    let Some(Held { hold, by, .. }) = holds.iter().find(|held| held.hold.is_total()).or(holds.first()) else {
        return refused;
    };
    let principal = by.as_deref().unwrap_or("the daemon");
    let (why, kind) = match hold {
        Hold::Operator => (
            format!(
                "{principal} paused it. It goes on after an operator resumes it (ResumeRun, `coffer run resume`)"
            ),
            "OPERATOR",
        ),
        Hold::Alert(alert) => (
            format!(
                "the alert {alert} froze it. It goes on after an operator lifts the alert's hold (ResumeRun with `lift_alerts`, \
                 `coffer run resume --lift-alerts`)"
            ),
            "ALERT",
        ),
        Hold::Terminal(session) => (
            format!(
                "{principal} has a terminal open in it for which it is paused (session {session}). It goes on when that terminal ends"
            ),
            "TERMINAL",
        ),
        Hold::Checkpoint(checkpoint) => (
            format!("{principal} makes a checkpoint of it ({checkpoint}). It goes on when that is copied"),
            "CHECKPOINT",
        ),
        Hold::Restore { checkpoint, .. } => (
            format!(
                "{principal} puts the files of the checkpoint {checkpoint} back. It goes on when they are there"
            ),
            "RESTORE",
        ),
        Hold::Approval(approval) => {
            let message =
                format!("the run is PAUSED: it waits for a reviewer of another call (approval {approval})");
            return Refusal::new(Reason::AwaitingApproval, message).with("approval_id", approval);
        }
    };
    let message = format!("{}: {why}; do not repeat this call before that", refused.message);
    Refusal { message, ..refused }.with("held_by", kind)
}

/// Refuses a call to a run that takes none. If it was lost, the refusal has the reason and the evidence.
pub(crate) fn is_over(record: &Record) -> Refusal {
    let refused = takes_no_calls(record.state);
    let Some(fault) = record.fault() else { return refused };
    let refused = Refusal { origin: record.origin(), ..refused }.retry_safe(true);
    if fault != Fault::Infrastructure {
        return refused;
    }
    let cause = record.end_cause.map(EndCause::as_str).unwrap_or_default();
    let why = record.failure.as_deref().unwrap_or(cause);
    let message = format!("the run was lost and does not come back: {why}. Make another run");
    Refusal { reason: Reason::RunLost, message, ..refused }
}

/// Refuses a call to a run in this state.
pub(crate) fn takes_no_calls(state: State) -> Refusal {
    let state = state.as_str();
    Refusal::new(Reason::RunNotReady, format!("the run is {state} and takes no calls")).with("state", state)
}

#[cfg(test)]
mod tests {
    use crate::record::{EndCause, Held, Hold, Record, State};
    use operations::Reason;
    use timestamp::Timestamp;

    use operations::{Evidence, Fault, ToolFailure};

    use super::{is_over, takes_no_call};

    #[test]
    fn a_call_to_a_lost_run_is_told_apart_from_one_to_a_run_that_its_programs_ended() {
        let ended = |failure: Option<ToolFailure>| {
            let mut record = crate::testing::record();
            let state = if failure.is_some() { State::Failed } else { State::Stopped };
            record.enter(state, failure);
            is_over(&record)
        };
        let lost = ToolFailure::new(Reason::RunLost, "killed from outside")
            .shown_by(Evidence::new("engine.exit_code", 137));
        let refused = ended(Some(lost.clone()));
        assert_eq!((refused.reason, refused.origin.fault), (Reason::RunLost, Some(Fault::Infrastructure)));
        assert!(refused.message.contains("killed from outside"), "{}", refused.message);
        assert_eq!(refused.origin.evidence, lost.origin.evidence);
        assert_eq!(refused.origin.retry_safe, Some(true), "nothing was done of this call");
        let lost_too = lost.clone();
        let own = ended(Some(lost.by(Fault::Program)));
        assert_eq!((own.reason, own.origin.fault), (Reason::RunNotReady, Some(Fault::Program)));
        // The same from its first moment of being ended, whichever way the call takes.
        let mut ending = crate::testing::record();
        ending.enter(State::Stopping, Some(lost_too));
        for refused in [is_over(&ending), takes_no_call(&ending)] {
            assert_eq!(
                (refused.reason, refused.origin.fault),
                (Reason::RunLost, Some(Fault::Infrastructure))
            );
        }
        // A drain is shown as well.
        let mut drained = crate::testing::record();
        drained.end_cause = Some(EndCause::NodeDrained);
        drained.enter(State::Stopped, None);
        let refused = is_over(&drained);
        assert_eq!((refused.reason, refused.origin.fault), (Reason::RunLost, Some(Fault::Infrastructure)));
        assert_eq!(refused.origin.evidence, [Evidence::new("run.end_cause", "node_drained")]);
        let stopped = ended(None);
        assert_eq!((stopped.reason, stopped.origin.fault), (Reason::RunNotReady, None));
    }

    #[test]
    fn a_refusal_names_the_holder_of_the_run_and_how_it_continues() {
        let held = |hold, by: Option<&str>| Held { hold, by: by.map(str::to_owned), since: Timestamp::now() };
        let operator = || held(Hold::Operator, Some("uid:7"));
        let alert = || held(Hold::Alert("a1".to_owned()), None);
        let approval = || held(Hold::Approval("p1".to_owned()), None);
        let checkpoint = || held(Hold::Checkpoint("c1".to_owned()), Some("uid:7"));
        let terminal = || held(Hold::Terminal("s1".to_owned()), Some("uid:7"));
        for (state, holds, reason, parts) in [
            (State::Stopped, vec![], Reason::RunNotReady, &["STOPPED"][..]),
            (State::Paused, vec![], Reason::RunNotReady, &["PAUSED"]),
            (
                State::Paused,
                vec![approval(), operator()],
                Reason::RunNotReady,
                &["PAUSED", "uid:7", "ResumeRun"],
            ),
            (State::Paused, vec![approval(), alert()], Reason::RunNotReady, &["alert a1", "lift_alerts"]),
            (State::Paused, vec![terminal()], Reason::RunNotReady, &["PAUSED", "uid:7", "session s1"]),
            (
                State::Paused,
                vec![approval(), checkpoint()],
                Reason::RunNotReady,
                &["uid:7", "checkpoint", "c1"],
            ),
            (State::Paused, vec![approval()], Reason::AwaitingApproval, &["approval p1"]),
        ] {
            let refused = takes_no_call(&Record { state, holds, ..crate::testing::record() });
            assert_eq!(refused.reason, reason, "{}", refused.message);
            assert!(parts.iter().all(|part| refused.message.contains(part)), "{}", refused.message);
        }
    }
}
