//! Calls whose run was lost, or ended for its node, while they were executed.

use operations::{END_CAUSE, EndedBy, Evidence, Fault, OpResult, Origin, Outcome, Reason, ToolFailure};
use refusal::Refusal;
use runs::record::{EndCause, Failed};

/// Returns the failure of a call whose run has failed meanwhile with `failed`, if the engine has shown that its infrastructure was lost.
///
/// The call itself has only seen that a worker, a keeper or the run was gone. `why` is the message of the run's failure.
pub(super) fn with_its_run(
    failed: Option<&Failed>,
    why: Option<&str>,
    failure: &ToolFailure,
) -> Option<ToolFailure> {
    let failed = failed.filter(|failed| failed.fault == Fault::Infrastructure)?;
    if !is_of_an_ended_run(failure) {
        return None;
    }
    let why = why.unwrap_or("its container is gone");
    let message = format!("The run was lost during the call: {why}. The call may have taken effect.");
    let origin = Origin { retry_safe: Some(false), ..failed.origin() };
    Some(ToolFailure { origin, ..ToolFailure::new(Reason::RunLost, message) })
}

/// Returns the failure of a call whose run was ended meanwhile by this cause, if the cause is the host's: a drain of the node.
///
/// The call itself has only seen that its worker was ended, or its MCP server with it. As after the end, the run is lost for its client.
pub(super) fn with_its_node(cause: Option<EndCause>, failure: &ToolFailure) -> Option<ToolFailure> {
    let shown = cause.and_then(EndCause::evidence).filter(|_| is_of_an_ended_run(failure))?;
    let message = format!(
        "The run was ended by its node during the call ({}). The call may have taken effect.",
        shown.value
    );
    Some(ToolFailure::new(Reason::RunLost, message).by(Fault::Infrastructure).shown_by(shown))
}

/// Returns true if the end of the run can be what the call has seen: that its worker, its keeper or its MCP server was gone.
fn is_of_an_ended_run(failure: &ToolFailure) -> bool {
    matches!(failure.reason, Reason::Cancelled | Reason::EngineUnavailable | Reason::Internal)
        || mcp_upstream::is_gone(failure)
}

/// Returns true for a failure of [`with_its_node`].
pub(super) fn is_of_its_node(failure: &ToolFailure) -> bool {
    failure.reason == Reason::RunLost && of_its_node(failure).next().is_some()
}

/// Returns the outcome of a call that was lost after its command put out a part of its result.
///
/// A command that the node ended keeps this part, with the fact that makes its failure the same.
pub(super) fn with_its_output(lost: ToolFailure, mut result: OpResult) -> Outcome {
    if is_of_its_node(&lost)
        && let OpResult::Exec(command) | OpResult::Shell(command) = &mut result
    {
        command.set_ended_by(EndedBy::RunEnded);
        command.evidence.extend(of_its_node(&lost).map(Evidence::to_wire));
        return Ok(result);
    }
    Err(lost)
}

/// Puts the refusal of a call that had not begun down to the host, if the host is the cause for which its run ends.
pub(super) fn refused_by_its_node(cause: Option<EndCause>, refused: Refusal) -> Refusal {
    let Some(shown) = cause.and_then(EndCause::evidence) else { return refused };
    refused.by(Fault::Infrastructure).retry_safe(true).shown_by(shown)
}

/// Returns the facts of a failure that show that the host ended the run.
fn of_its_node(failure: &ToolFailure) -> impl Iterator<Item = &Evidence> {
    failure.origin.evidence.iter().filter(|fact| fact.what == END_CAUSE)
}

#[cfg(test)]
mod tests {
    use operations::{ExecResult, SessionResult};

    use super::*;

    #[test]
    fn a_call_has_the_fault_with_which_its_run_was_lost() {
        let failed = |fault| Failed {
            reason: "RUN_LOST".to_owned(),
            fault,
            evidence: vec![Evidence::new("engine.exit_code", 137)],
        };
        let gone = ToolFailure::new(Reason::EngineUnavailable, "its keeper did not start").claimed();
        let lost = with_its_run(Some(&failed(Fault::Infrastructure)), Some("killed"), &gone).unwrap();
        assert_eq!((lost.reason, lost.fault()), (Reason::RunLost, Fault::Infrastructure));
        assert_eq!(lost.origin.evidence, [Evidence::new("engine.exit_code", 137)]);
        assert!(lost.message.contains("killed") && !lost.is_retry_safe(), "{lost:?}");
        assert_eq!(with_its_run(Some(&failed(Fault::Program)), None, &gone), None);
        assert_eq!(with_its_run(None, None, &gone), None);
        let own = ToolFailure::new(Reason::TimedOut, "the command took too long");
        assert_eq!(with_its_run(Some(&failed(Fault::Infrastructure)), None, &own), None);
    }

    #[test]
    fn a_call_that_a_drain_ends_is_put_down_to_the_host_and_one_of_a_run_that_was_due_is_not() {
        let cut = ToolFailure::new(Reason::Cancelled, "the run ended during the call");
        let drained = with_its_node(Some(EndCause::NodeDrained), &cut).unwrap();
        assert_eq!((drained.reason, drained.fault()), (Reason::RunLost, Fault::Infrastructure));
        assert_eq!(drained.origin.evidence, [Evidence::new("run.end_cause", "node_drained")]);
        assert!(!drained.is_retry_safe(), "{drained:?}");
        let own = ToolFailure::new(Reason::TimedOut, "the command took too long");
        assert_eq!(with_its_node(Some(EndCause::NodeDrained), &own), None);
        let server = |kind: &str| ToolFailure::new(Reason::UpstreamFailed, "its server").with("kind", kind);
        assert_eq!(with_its_node(Some(EndCause::NodeDrained), &server("lost")), Some(drained));
        assert_eq!(with_its_node(Some(EndCause::NodeDrained), &server("tool")), None);
        let waited = || Refusal::new(Reason::Cancelled, "the run ended before the call had begun");
        let refused = refused_by_its_node(Some(EndCause::NodeDrained), waited());
        assert_eq!((refused.reason, refused.origin.fault), (Reason::Cancelled, Some(Fault::Infrastructure)));
        assert_eq!(refused.origin.retry_safe, Some(true), "nothing was done");
        for cause in [None, Some(EndCause::Ttl), Some(EndCause::IdleTimeout), Some(EndCause::Lease)] {
            assert_eq!(with_its_node(cause, &cut), None, "{cause:?}");
            assert_eq!(refused_by_its_node(cause, waited()), waited(), "{cause:?}");
        }
    }

    #[test]
    fn a_command_that_a_drain_cuts_off_keeps_its_output_and_its_failure() {
        let cut = ToolFailure::new(Reason::Cancelled, "the run ended during the call");
        let drained = with_its_node(Some(EndCause::NodeDrained), &cut).unwrap();
        let command = ExecResult { stdout: "so far".to_owned(), ..ExecResult::default() };
        for result in [OpResult::Exec(command.clone()), OpResult::Shell(command.clone())] {
            let kept = with_its_output(drained.clone(), result).unwrap();
            assert_eq!(kept.command().unwrap().stdout, "so far");
            let shown = operations::cut_short(&kept).unwrap();
            assert_eq!((shown.reason, shown.fault()), (Reason::RunLost, Fault::Infrastructure));
            assert_eq!(
                (shown.origin.evidence.as_slice(), shown.is_retry_safe()),
                (&drained.origin.evidence[..], false)
            );
        }
        let session = OpResult::Session(SessionResult::default());
        assert_eq!(with_its_output(drained.clone(), session), Err(drained));
        let gone = Failed {
            reason: "RUN_LOST".to_owned(),
            fault: Fault::Infrastructure,
            evidence: vec![Evidence::new("engine.exit_code", 137)],
        };
        let killed = with_its_run(Some(&gone), None, &cut).unwrap();
        assert_eq!(with_its_output(killed.clone(), OpResult::Exec(command)), Err(killed));
    }
}
