//! Approvals as the daemon runs them: the gateway keeps the states, this desk records, tells and watches the clock.
//!
//! A decision is on record before anything follows from it: whoever waits for an approval is told only after the
//! record is durable. When it cannot be recorded, the approval is void.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use audit::{Event, Kind};
use gateway::{
    Approval, ApprovalState, Choice, Clock, DecideError, Gateway, Review, Reviewer, SystemClock, Ticket,
};
use ops::Reason;
use tokio::sync::{Notify, broadcast, oneshot};
use tokio_util::sync::CancellationToken;

use crate::audit::AuditLog;
use crate::rpc::Principal;
use crate::status::Refusal;

/// Changes that a slow watcher may be behind before it is told to look again.
const CHANGES: usize = 1_024;

/// The desk. One for the daemon.
pub(crate) struct Desk {
    gateway: Arc<Gateway>,
    audit: Arc<AuditLog>,
    /// In place of the profile's, when the configuration says so.
    timeout: Option<Duration>,
    allow_self_approval: bool,
    waiting: Mutex<HashMap<String, oneshot::Sender<Approval>>>,
    changes: broadcast::Sender<Approval>,
    wake: Notify,
}

impl Desk {
    pub(crate) fn new(
        gateway: Arc<Gateway>,
        audit: Arc<AuditLog>,
        timeout: Option<Duration>,
        allow_self_approval: bool,
    ) -> Self {
        Self {
            gateway,
            audit,
            timeout,
            allow_self_approval,
            waiting: Mutex::default(),
            changes: broadcast::Sender::new(CHANGES),
            wake: Notify::new(),
        }
    }

    /// Asks for consent. The receiver resolves once: when the approval is no longer pending.
    pub(crate) async fn ask(
        &self,
        ticket: &Ticket,
        review: Review,
    ) -> Result<(Approval, oneshot::Receiver<Approval>), Refusal> {
        let (settled, receiver) = oneshot::channel();
        let approval = {
            // From the moment it is open it can be decided: whoever does so has to find who waits.
            let mut waiting = self.waiting();
            let approval = self
                .gateway
                .request_approval(ticket, review, self.timeout)
                .map_err(|refusal| Refusal::new(refusal.reason, refusal.message))?;
            waiting.insert(approval.approval_id.clone(), settled);
            approval
        };
        let event = event(Kind::ApprovalRequested, &approval).details(serde_json::json!({
            "risk": approval.risk.as_str(),
            "rule": approval.rule,
            "justification": approval.justification,
            "digest": approval.digest,
            "timeout_ms": approval.expires_at.0.saturating_sub(approval.created_at.0),
        }));
        if let Err(unavailable) = self.audit.record(event).await {
            self.waiting().remove(&approval.approval_id);
            self.gateway.cancel_call(&approval.call_id);
            return Err(unavailable.into());
        }
        self.publish(&approval);
        self.wake.notify_one();
        Ok((approval, receiver))
    }

    /// Takes a reviewer's decision.
    pub(crate) async fn decide(
        &self,
        approval_id: &str,
        principal: &Principal,
        choice: Choice,
        comment: &str,
    ) -> Result<Approval, Refusal> {
        // A decision that waits for a broken disk would be in force before it is on record.
        if !self.audit.is_available() {
            return Err(crate::audit::Unavailable.into());
        }
        let reviewer =
            Reviewer { principal: principal.name.clone(), may_decide_own: self.allow_self_approval };
        let approval = self
            .gateway
            .decide(approval_id, &reviewer, choice, comment)
            .map_err(|error| decide_refusal(&error))?;
        self.settle(vec![approval.clone()]).await?;
        Ok(approval)
    }

    /// A call no longer waits.
    pub(crate) async fn cancel(&self, call_id: &str) {
        // One that was decided at this very moment is on record as decided; its consent is void.
        let mut cancelled = self.gateway.cancel_call(call_id);
        cancelled.retain(|approval| approval.state == ApprovalState::Cancelled);
        // What cannot be recorded is void all the same.
        let _ = self.settle(cancelled).await;
    }

    /// Lets approvals expire and reminds reviewers, until `stop`.
    pub(crate) async fn keep_time(&self, stop: CancellationToken) {
        loop {
            let expired = self.gateway.expire_due();
            let _ = self.settle(expired).await;
            for approval in self.gateway.reminders_due() {
                tracing::warn!(
                    approval = approval.approval_id,
                    operation = approval.operation,
                    "half of the time to decide is over"
                );
                let _ = self.audit.enqueue(event(Kind::ApprovalReminded, &approval)).await;
                self.publish(&approval);
            }
            let now = SystemClock.now();
            // A wall clock may jump: it is looked at once a second at least while something waits.
            let sleep = self
                .gateway
                .next_due()
                .map(|due| due.since(now).clamp(Duration::from_millis(10), Duration::from_secs(1)));
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.wake.notified() => {}
                () = async {
                    match sleep {
                        Some(sleep) => tokio::time::sleep(sleep).await,
                        None => std::future::pending().await,
                    }
                } => {}
            }
        }
    }

    /// Changes from now on.
    pub(crate) fn changes(&self) -> broadcast::Receiver<Approval> {
        self.changes.subscribe()
    }

    /// Records settled approvals, then tells whoever waits.
    async fn settle(&self, settled: Vec<Approval>) -> Result<(), Refusal> {
        for approval in settled {
            let event = event(Kind::ApprovalDecided, &approval).details(serde_json::json!({
                "state": approval.state.as_str(),
                "decided_by": approval.decided_by,
                "comment": approval.comment,
                "digest": approval.digest,
            }));
            let recorded = self.audit.record(event).await;
            let waiting = self.waiting().remove(&approval.approval_id);
            if let Err(unavailable) = recorded {
                self.gateway.cancel_call(&approval.call_id);
                if approval.state == ApprovalState::Approved {
                    // Dropping the sender tells the call that no decision will come.
                    drop(waiting);
                    return Err(unavailable.into());
                }
            } else if let Some(waiting) = waiting {
                let _ = waiting.send(approval.clone());
            }
            self.publish(&approval);
        }
        Ok(())
    }

    fn publish(&self, approval: &Approval) {
        // Nobody watches: nothing to tell.
        let _ = self.changes.send(approval.clone());
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, HashMap<String, oneshot::Sender<Approval>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn event(kind: Kind, approval: &Approval) -> Event {
    Event::new(kind)
        .run(&approval.run_id)
        .call(&approval.call_id)
        .principal(&approval.requested_by)
        .agent(&approval.agent_id)
        .operation(&approval.operation)
        .approval(&approval.approval_id)
}

fn decide_refusal(error: &DecideError) -> Refusal {
    let message = error.to_string();
    match error {
        DecideError::NotFound => {
            Refusal::new(Reason::NotFound, "there is no such approval").with("resource", "approval")
        }
        DecideError::AlreadyDecided { state, .. } => {
            Refusal::new(Reason::PreconditionFailed, format!("the approval is decided: {message}"))
                .with("state", state.as_str())
        }
        DecideError::Expired => {
            Refusal::new(Reason::ApprovalExpired, "the approval has expired; the call was denied")
        }
        DecideError::SelfApproval => Refusal::new(
            Reason::PermissionDenied,
            format!("{message}; for development the operator can set approvals.allow_self_approval"),
        ),
        DecideError::CommentTooLong => Refusal::invalid("comment", message),
    }
}
