//! Calls whose run was lost while they were executed.

use operations::{Fault, Origin, Reason, ToolFailure};
use runs::record::Failed;

/// Returns the failure of a call whose run has failed meanwhile with `failed`, if the engine has shown that its infrastructure was lost.
///
/// The call itself has only seen that a worker, a keeper or the run was gone. `why` is the message of the run's failure.
pub(super) fn with_its_run(
    failed: Option<&Failed>,
    why: Option<&str>,
    failure: &ToolFailure,
) -> Option<ToolFailure> {
    let failed = failed.filter(|failed| failed.fault == Fault::Infrastructure)?;
    if !matches!(failure.reason, Reason::Cancelled | Reason::EngineUnavailable | Reason::Internal) {
        return None;
    }
    let why = why.unwrap_or("its container is gone");
    let message = format!("The run was lost during the call: {why}. The call may have taken effect.");
    let origin = Origin { retry_safe: Some(false), ..failed.origin() };
    Some(ToolFailure { origin, ..ToolFailure::new(Reason::RunLost, message) })
}

#[cfg(test)]
mod tests {
    use operations::Evidence;

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
}
