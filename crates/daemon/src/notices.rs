//! Tells people of approvals that wait: gives the crate `notices` what the gateway and the tokens know.

use std::sync::Arc;

use calls::Approvals;
use gateway::{Approval, ApprovalFilter, ApprovalState, Gateway};
use identity::Role;
use listener::Tokens;
use notices::{Board, Notice, Push};
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use webhook::Sender;

use crate::config::Notices;

/// Starts the tasks that tell of approvals, if the configuration has somebody to tell.
pub(crate) fn start(
    settings: &Notices,
    (gateway, approvals, tokens): (Arc<Gateway>, Arc<Approvals>, Arc<Tokens>),
    push: Option<Arc<Push>>,
    (tasks, stop): (&TaskTracker, &CancellationToken),
) -> anyhow::Result<()> {
    let (hooks, links) = (settings.open()?, settings.links());
    if hooks.is_empty() && push.is_none() {
        return Ok(());
    }
    let sender = Sender::new().map_err(anyhow::Error::msg)?;
    let board = Arc::new(Board::default());
    for hook in hooks {
        tasks.spawn(hook.run(board.clone(), links.clone(), sender.clone(), stop.clone()));
    }
    if let Some(push) = push {
        let may_review = Box::new(move |principal: &str| may_review(&tokens, principal));
        let link = Box::new(move |_: &str, (approval, _): (&str, &str)| links.approval(approval));
        tasks.spawn(push.run(board.clone(), (link, may_review), sender, stop.clone()));
    }
    let stop = stop.clone();
    tasks.spawn(async move {
        stop.run_until_cancelled(follow(board, gateway, approvals)).await;
    });
    Ok(())
}

/// Keeps the board as the gateway's approvals are.
async fn follow(board: Arc<Board>, gateway: Arc<Gateway>, approvals: Arc<Approvals>) {
    loop {
        // Subscribes before it lists, so that no change is missed between the two.
        let mut changes = approvals.changes();
        let pending = ApprovalFilter { state: Some(ApprovalState::Pending), run_id: None };
        board.replace(gateway.list_approvals(&pending).iter().map(notice));
        loop {
            match changes.recv().await {
                Ok(approval) if approval.state == ApprovalState::Pending => board.waits(notice(&approval)),
                Ok(approval) => board.ended(&approval.approval_id, approval.state.as_str()),
                Err(RecvError::Lagged(_)) => break,
                Err(RecvError::Closed) => return,
            }
        }
    }
}

fn notice(approval: &Approval) -> Notice {
    Notice {
        approval_id: approval.approval_id.clone(),
        run_id: approval.run_id.clone(),
        operation: approval.operation.clone(),
        profile: approval.profile.clone(),
        risk: approval.risk.as_str(),
        requested_by: approval.requested_by.clone(),
        expires_at: approval.expires_at,
        preview: approval.preview.clone(),
    }
}

/// Returns false for the principal of tokens that have all ended or decide on nothing.
fn may_review(tokens: &Tokens, principal: &str) -> bool {
    let Some(name) = principal.strip_prefix("token:") else { return true };
    let reviews = |roles: identity::Roles| roles.has_any(&[Role::Approver, Role::Director]);
    tokens.list(false).iter().any(|token| token.name == name && reviews(token.roles))
}
