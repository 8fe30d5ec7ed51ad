//! Runs the daemon's approvals: the gateway keeps their states; this module records, notifies and watches the clock.
//!
//! A decision is recorded before it has any effect: a waiting call gets its approval only after the record is durable. If a
//! decision cannot be recorded, the approval is void.
//!
//! Waiting calls outlive the daemon, and waiting connections (`connections.rs`) do not. From the request for approval until the call is over, the store has the call, sealed. The
//! use of a consent is stored before the permit is used. The audit log has the decisions. `reattach.rs` combines these after a
//! restart, and `call/resume.rs` continues the calls. The store keeps settled approvals to show them.

mod connections;
mod consents;
mod events;
mod pending;
mod pushes;
mod reattach;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use audit::Kind;
use audit_service::AuditLog;
use gateway::{Approval, ApprovalState, Ballot, DecideError, Gateway, Review, Reviewer, Ticket};
use identity::{Principal, Role, Roles};
use operations::{Operation, Reason};
use parking_lot::{Mutex, RwLock};
use policy::{DecisionTime, Level, Terms};
use refusal::{Refusal, chain};
use store::Store;
use timestamp::Clock;
use tokio::sync::{Notify, broadcast, oneshot};
use tokio_util::sync::CancellationToken;

pub(crate) use pending::{Asker, Pending};
pub use reattach::WaitingApprovals;

use pending::settled;

/// Most changes that a slow watcher may lag, before it has to list the approvals again.
const CHANGES: usize = 1_024;

/// The configuration's settings for approvals.
#[derive(Debug, Clone, Copy)]
pub struct ApprovalSettings {
    /// Longest time for a decision under any profile.
    pub longest: Option<Duration>,
    pub allow_self_approval: bool,
}

/// The approvals of the daemon.
pub struct Approvals {
    gateway: Arc<Gateway>,
    audit: Arc<AuditLog>,
    store: Store,
    clock: Arc<dyn Clock>,
    settings: RwLock<ApprovalSettings>,
    waiting: Mutex<HashMap<String, oneshot::Sender<Approval>>>,
    /// In an `Arc`: a channel keeps its last messages in memory, and these are large.
    changes: broadcast::Sender<Arc<Approval>>,
    wake: Notify,
    /// Held while a decision is taken and recorded, so that both have the same order.
    deciding: tokio::sync::Mutex<()>,
}

impl Approvals {
    /// Returns an instance without waiting calls. `clock` must be the gateway's.
    pub fn new(
        gateway: Arc<Gateway>,
        audit: Arc<AuditLog>,
        store: Store,
        clock: Arc<dyn Clock>,
        settings: ApprovalSettings,
    ) -> Self {
        Self {
            gateway,
            audit,
            store,
            clock,
            settings: RwLock::new(settings),
            waiting: Mutex::default(),
            changes: broadcast::Sender::new(CHANGES),
            wake: Notify::new(),
            deciding: tokio::sync::Mutex::default(),
        }
    }

    /// Replaces the settings. An approval that waits keeps the time that it was given.
    pub fn set(&self, settings: ApprovalSettings) {
        *self.settings.write() = settings;
    }

    fn longest(&self) -> Option<Duration> {
        self.settings.read().longest
    }

    /// Returns the time that reviewers have under these terms of a profile, and the setting that gives it.
    pub fn decision_time(&self, terms: &Terms, profile: &str) -> DecisionTime {
        terms.decision_time(profile, self.longest())
    }

    /// Asks for consent. The receiver resolves once: when the approval is no longer pending.
    pub(crate) async fn ask(
        &self,
        ticket: &Ticket,
        review: Review,
        asker: Asker,
    ) -> Result<(Approval, oneshot::Receiver<Approval>), Refusal> {
        let prepare = || self.gateway.prepare_approval(ticket, review, self.longest());
        self.begin(prepare, Some((asker, ticket.operation().clone()))).await
    }

    /// Asks for the consent that `prepare` makes an approval for. `call` is the call that waits for it.
    async fn begin(
        &self,
        prepare: impl FnOnce() -> Result<Approval, gateway::Refusal>,
        call: Option<(Asker, Operation)>,
    ) -> Result<(Approval, oneshot::Receiver<Approval>), Refusal> {
        let (settled, receiver) = oneshot::channel();
        let approval = {
            // The run may end before the approval is open: its cancellation has to find the waiting call.
            let mut waiting = self.waiting.lock();
            let approval = prepare().map_err(|refusal| Refusal::new(refusal.reason, refusal.message))?;
            waiting.insert(approval.approval_id.clone(), settled);
            approval
        };
        if let Err(refusal) = self.keep(&approval, call).await {
            self.waiting.lock().remove(&approval.approval_id);
            let cancelled = self.void(&approval.approval_id).await;
            // An approval whose end cannot be recorded is void all the same.
            let _ = self.settle(cancelled).await;
            return Err(refusal);
        }
        self.gateway.open_approval(&approval.approval_id);
        self.publish(&approval);
        self.wake.notify_one();
        Ok((approval, receiver))
    }

    /// Records the approval, then stores it. Reviewers can see it and decide on it only after that.
    async fn keep(&self, approval: &Approval, call: Option<(Asker, Operation)>) -> Result<(), Refusal> {
        let line = self.audit.record(events::requested(approval)).await?;
        let stored = pending::stored(approval, call, line.record.sequence)
            .map_err(|error| Refusal::internal("keeping the call", &error))?;
        let stored = self.store.with(move |store| store.insert_approval(&stored)).await;
        stored.map_err(|error| Refusal::internal("keeping the call", &chain(&error)))
    }

    /// Returns a receiver for the decision on an approval that an earlier daemon left.
    pub(crate) fn wait_for(&self, approval: &Approval) -> oneshot::Receiver<Approval> {
        let (settled, receiver) = oneshot::channel();
        if approval.state == ApprovalState::Pending {
            self.waiting.lock().insert(approval.approval_id.clone(), settled);
        } else {
            let _ = settled.send(approval.clone());
        }
        receiver
    }

    /// Takes a reviewer's decision. It settles the approval, unless more votes are needed.
    pub async fn decide(
        &self,
        approval_id: &str,
        principal: &Principal,
        ballot: &Ballot,
    ) -> Result<Approval, Refusal> {
        // A decision that waits for a broken disk would be in force before it is on record.
        self.audit.check()?;
        let level = level(principal.roles).ok_or_else(|| {
            Refusal::new(
                Reason::PermissionDenied,
                "deciding on approvals needs the role approver or director",
            )
        })?;
        let reviewer = Reviewer {
            principal: principal.name.clone(),
            level,
            may_decide_own: self.settings.read().allow_self_approval,
        };
        let _in_order = self.deciding.lock().await;
        let approval = self
            .gateway
            .decide(approval_id, &reviewer, ballot)
            .map_err(|error| decide_refusal(approval_id, &error))?;
        if approval.state == ApprovalState::Pending {
            if let Err(unavailable) = self.audit.record(events::voted(&approval)).await {
                // A vote must not count without a record. The approval becomes void, and consent has to be asked for again.
                self.waiting.lock().remove(approval_id);
                self.void(approval_id).await;
                return Err(unavailable.into());
            }
            self.publish(&approval);
            return Ok(approval);
        }
        self.settle(vec![approval.clone()]).await?;
        Ok(approval)
    }

    /// Cancels the approval of a call that no longer waits.
    pub async fn cancel(&self, call_id: &str) {
        let cancelled = self.spend_decided(self.gateway.cancel_call(call_id)).await;
        // An approval whose end cannot be recorded is void all the same.
        let _ = self.settle(cancelled).await;
    }

    /// Voids an approval. Returns it if it was pending: its end is not recorded yet.
    async fn void(&self, approval_id: &str) -> Vec<Approval> {
        self.spend_decided(self.gateway.cancel_approval(approval_id)).await
    }

    /// Takes out the approvals that were decided at this very moment, and are recorded as decided. Their consent is void, also after a
    /// restart.
    async fn spend_decided(&self, mut cancelled: Vec<Approval>) -> Vec<Approval> {
        for approval in cancelled.extract_if(.., |approval| approval.state != ApprovalState::Cancelled) {
            let _ = self.spend(&approval.approval_id).await;
        }
        cancelled
    }

    /// Marks a consent as used, durably. It permits no execution before that, and none after this one.
    pub(crate) async fn spend(&self, approval_id: &str) -> Result<(), Refusal> {
        let id = approval_id.to_owned();
        match self.store.with(move |store| store.spend_approval(&id)).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Refusal::new(Reason::PreconditionFailed, "the approval has been used")),
            Err(error) => Err(Refusal::internal("marking the approval as used", &chain(&error))),
        }
    }

    /// Settles the approval of a call that is over and whose outcome is kept. From then on it is only shown.
    pub(crate) async fn done(&self, approval_id: &str) {
        let id = approval_id.to_owned();
        let settled = self.gateway.approval(approval_id).and_then(|approval| settled(approval, true).ok());
        let done = self.store.with(move |store| match settled {
            Some(settled) => store.settle_approval(&settled),
            None => store.delete_approval(&id),
        });
        if let Err(error) = done.await {
            tracing::error!(approval_id, error = %chain(&error), "a call that is over is still kept");
        }
    }

    /// Lets approvals expire and reminds reviewers, until `stop`.
    pub async fn keep_time(&self, stop: CancellationToken) {
        loop {
            self.look().await;
            let now = self.clock.now();
            // A wall clock may jump, so it is checked at least once a second while an approval waits.
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

    /// Expires approvals that are due, and reminds reviewers of those that have waited for half of their time.
    async fn look(&self) {
        let expired = self.gateway.expire_due();
        let _ = self.settle(expired).await;
        for approval in self.gateway.reminders_due() {
            self.remind(&approval).await;
        }
    }

    /// Reminds reviewers, after the reminder was recorded: a restart must not repeat it.
    async fn remind(&self, approval: &Approval) {
        if self.audit.record(events::event(Kind::ApprovalReminded, approval)).await.is_ok() {
            tracing::warn!(
                approval = approval.approval_id,
                operation = approval.operation,
                "half of the time to decide is over"
            );
            self.publish(approval);
        }
    }

    /// Returns the changes from now on.
    pub fn changes(&self) -> broadcast::Receiver<Arc<Approval>> {
        self.changes.subscribe()
    }

    /// Records settled approvals, then notifies the waiting calls.
    async fn settle(&self, settled: Vec<Approval>) -> Result<(), Refusal> {
        for approval in settled {
            let recorded = self.audit.record(events::decided(&approval)).await;
            let waiting = self.waiting.lock().remove(&approval.approval_id);
            if let Err(unavailable) = recorded {
                self.gateway.cancel_approval(&approval.approval_id);
                if approval.state == ApprovalState::Approved {
                    // Dropping the sender tells the call that no decision will come.
                    drop(waiting);
                    return Err(unavailable.into());
                }
            } else {
                // Consent to a connection is remembered in the rules of its run.
                if let Some(consent) = approval.remembered.as_ref().filter(|_| !approval.is_of_connection()) {
                    self.remember(consent.clone()).await;
                }
                if let Some(waiting) = waiting {
                    let _ = waiting.send(approval.clone());
                }
            }
            self.publish(&approval);
        }
        Ok(())
    }

    fn publish(&self, approval: &Approval) {
        // Without a watcher the message is dropped.
        let _ = self.changes.send(Arc::new(approval.clone()));
    }
}

/// Returns the highest level of approvals that the roles may decide.
fn level(roles: Roles) -> Option<Level> {
    if roles.has(Role::Director) {
        Some(Level::Director)
    } else {
        roles.has(Role::Approver).then_some(Level::Approver)
    }
}

fn decide_refusal(approval_id: &str, error: &DecideError) -> Refusal {
    let message = error.to_string();
    match error {
        DecideError::NotFound => Refusal::absent("approval", approval_id, "there is no such approval"),
        DecideError::AlreadyDecided { state, .. } => {
            Refusal::new(Reason::PreconditionFailed, format!("the approval is decided: {message}"))
                .with("state", state.as_str())
        }
        DecideError::Expired => {
            Refusal::new(Reason::ApprovalExpired, "the approval has expired; the call was denied")
        }
        DecideError::SelfApproval => Refusal::new(
            Reason::PermissionDenied,
            format!(
                "{message}: another user with the role approver decides, or a holder of a token with that role \
                 (`coffer token create NAME --role approver`). Where one person plays both, the operator sets \
                 approvals.allow_self_approval: true in the configuration and reloads it"
            ),
        )
        .with("setting", "approvals.allow_self_approval"),
        DecideError::LevelTooLow { needed } => Refusal::new(
            Reason::PermissionDenied,
            format!("{message}; the operator grants it under `access` in the configuration"),
        )
        .with("level", needed.as_str()),
        DecideError::AlreadyVoted { .. } => {
            Refusal::new(Reason::PreconditionFailed, message).with("state", ApprovalState::Pending.as_str())
        }
        DecideError::PasskeyNeeded => Refusal::new(
            Reason::PermissionDenied,
            format!("{message}: approve it in the console with a passkey that is registered there, or deny it"),
        )
        .with("proof", "passkey"),
        DecideError::NotRemembered(_) => Refusal::invalid("remember", message),
        DecideError::CommentTooLong => Refusal::invalid("comment", message),
    }
}
