//! Collects the facts of a call beside its outcome, for the dialects that show them to their models.

use std::time::Duration;

use dialects::Facts;
use timestamp::Timestamp;

use crate::Calls;
use crate::table::Call;

/// Returns the facts of a call that is over or waits. The command's usage is added later, if it is known.
pub(super) fn of(calls: &Calls, call: &Call, execution: Duration) -> Facts {
    let agent_id = calls.workers.runs.get(call.run).map(|run| run.spec.agent_id.clone()).unwrap_or_default();
    let approval_id = call.answer().response.approval_id;
    let approval =
        Some(&approval_id).filter(|id| !id.is_empty()).and_then(|id| calls.control.gateway.approval(id));
    let decided = approval.filter(|approval| approval.state == gateway::ApprovalState::Approved);
    Facts {
        call_id: call.id.to_string(),
        agent_id,
        execution_ms: millis(execution),
        approved_by: decided.as_ref().and_then(|approval| approval.decided_by.clone()).unwrap_or_default(),
        approved_at: decided
            .and_then(|approval| approval.decided_at)
            .map(|at| at.to_string())
            .unwrap_or_default(),
        approval_id,
        executed_at: Timestamp::now().to_string(),
        ..Facts::default()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
