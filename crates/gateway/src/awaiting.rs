//! Message for a call that is not made, because its run is frozen while a reviewer is asked about another call.

use operations::Reason;
use refusal::Refusal;

use crate::approvals::{Approval, ApprovalState};
use crate::gateway::Gateway;

/// Operations that go on while a reviewer is asked, for the metadata of a refusal.
const MEANWHILE: &str =
    "read, list, glob, grep, git.status, git.diff, git.log, git.show, downloads, CancelCall, WatchApprovals";
const ADVICE: &str = "Wait for approval ID; do not repeat this call before it is settled. Files can be read, listed and searched meanwhile";

impl Gateway {
    /// Returns the refusal of a call beside the approvals for which its run is frozen, for this further reason.
    ///
    /// It says which approval, who decides, until when, and what is possible meanwhile.
    pub fn awaiting(&self, ids: &[String], why: &str) -> Refusal {
        let of = |id: &String| self.approval(id);
        let pending = ids.iter().filter_map(of).find(|approval| approval.state == ApprovalState::Pending);
        let approval = pending.or_else(|| ids.iter().find_map(of));
        let why = if why.is_empty() { String::new() } else { format!("; {why}") };
        let Some(approval) = approval else {
            // The approval is about to be asked for, or a remembered consent is used.
            let id = ids.first().cloned().unwrap_or_default();
            let message = format!(
                "not made: another call of this run waits for an approval, and the run is frozen until that \
                 call has ended{why}. Make this call again later; files can be read, listed and searched meanwhile"
            );
            return Refusal::new(Reason::AwaitingApproval, message)
                .with("approval_id", id)
                .with("possible_meanwhile", MEANWHILE);
        };
        let message =
            format!("{}{why}. {}", situation(&approval), ADVICE.replace("ID", &approval.approval_id));
        Refusal::new(Reason::AwaitingApproval, message)
            .with("approval_id", &approval.approval_id)
            .with("approval_state", approval.state.as_str())
            .with("awaited_call_id", &approval.call_id)
            .with("awaited_operation", &approval.operation)
            .with("level_needed", approval.level.as_str())
            .with("approvals_needed", approval.needed.to_string())
            .with("expires_at", approval.expires_at.to_string())
            .with("possible_meanwhile", MEANWHILE)
    }
}

fn situation(approval: &Approval) -> String {
    let Approval { approval_id, operation, .. } = approval;
    if approval.state != ApprovalState::Pending {
        return format!(
            "not made: the call of approval {approval_id} (`{operation}`) is decided but has not ended, and \
             the run is frozen until it has"
        );
    }
    let deciders = match approval.needed {
        0 | 1 => format!("one {}", approval.level.as_str()),
        needed => format!("{needed} people with the role {}", approval.level.as_str()),
    };
    format!(
        "not made: the run waits for a reviewer of another call (approval {approval_id}, `{operation}`; {deciders} can decide until {})",
        approval.expires_at
    )
}
