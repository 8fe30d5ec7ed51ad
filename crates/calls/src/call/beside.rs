//! Handles a call beside an approval: its run is frozen while a reviewer is asked about another call.
//!
//! ```text
//!  permit ─┬─ looks ─────────────────────────────────────────────► executed at once
//!          ├─ starts a process, uses a session, must not wait ───► AWAITING_APPROVAL
//!          ├─ too many wait ─────────────────────────────────────► OVERLOADED
//!          └─ else ─► intent ─► waits in order of arrival ─┬─────► a slot, a fresh permit, its full time
//!                                                          ├─ its time is over ─► AWAITING_APPROVAL
//!                                                          └─ cancelled, run ended ─► CANCELLED
//! ```
//!
//! A call that waits holds no slot and no lock of its files. The rate limits count it once. Its intent is on disk before it
//! waits. If the daemon dies meanwhile, the next one closes the call as interrupted.
//!
//! A call that needs a reviewer itself does not wait here: it asks at once, and several that are approved take turns.

use std::time::{Duration, Instant};

use dialects::Limits;
use gateway::limits::concurrency::Turn;
use gateway::{Approval, ApprovalState, Caller, Gateway, Permit};
use operations::{Operation, Reason};
use refusal::Refusal;
use runs::{Readiness, Run};
use store::run::Hold;

use super::record::{Journal, Times};
use super::slot::{Slot, not_begun};
use super::{CallTask, Client};
use crate::limits::Queued;
use crate::refused::refusal;

/// Time after which a client may try again if too many calls wait. The real wait depends on a person.
const TRY_AGAIN: Duration = Duration::from_secs(30);
/// Operations that go on while a reviewer is asked, for the metadata of a refusal.
const MEANWHILE: &str =
    "read, list, glob, grep, git.status, git.diff, git.log, git.show, downloads, CancelCall, WatchApprovals";

/// Limits on a call's wait for a reviewer of another call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// The caller wants a refusal instead.
    refuses: bool,
    /// Longest execution that the caller allows.
    limit: Option<Duration>,
    /// Longest wait of a call without a timeout. `None`: until the approval is settled.
    otherwise: Option<Duration>,
    /// Moment at which the client's deadline passes.
    deadline: Option<Instant>,
}

impl Patience {
    /// Takes `limit` from the call and the usual time of a command from the profile.
    pub(super) fn new(client: &Client, limit: Option<Duration>, limits: &Limits) -> Self {
        let Client { deadline, waits_for_approval, refuses_awaiting: refuses, .. } = *client;
        let otherwise = (!waits_for_approval).then(|| Duration::from_secs(limits.default_timeout_s));
        Self { refuses, limit, otherwise, deadline }
    }

    /// Returns the longest wait: the shortest of the call's own limits, or the default for calls without one.
    fn longest(self, operation: &Operation) -> Option<Duration> {
        [operation.command_timeout(), self.limit].into_iter().flatten().min().or(self.otherwise)
    }

    /// Returns the end of a wait that begins now.
    fn until(self, operation: &Operation) -> Option<Instant> {
        let own = self.longest(operation).and_then(|own| Instant::now().checked_add(own));
        own.into_iter().chain(self.deadline).min()
    }
}

impl CallTask {
    /// Decides whether a call can be made in a run that may be held.
    ///
    /// Returns `None` if the call can be made now or in a moment. Returns a position among the waiting calls if an approval holds
    /// the run, or else a refusal.
    pub(super) fn beside(
        &self,
        run: &Run,
        caller: &Caller,
        operation: &Operation,
        patience: Patience,
    ) -> Result<Option<Queued>, Refusal> {
        match run.readiness(operation) {
            Readiness::Ready(_) | Readiness::Resuming => return Ok(None),
            Readiness::Held(refused) if refused.reason == Reason::AwaitingApproval => {}
            Readiness::Held(refused) | Readiness::Over(refused) => return Err(refused),
        }
        let gateway = &self.calls.gateway;
        if patience.refuses {
            return Err(awaiting(gateway, run, "the call asked not to wait for that"));
        }
        if operation.delivery().outlives_call() {
            return Err(awaiting(gateway, run, "processes and sessions do not wait for that"));
        }
        let queued =
            self.calls.limits.wait_beside(&self.policy, caller, &run.spec().profile).map_err(|full| {
                let metadata = awaiting(gateway, run, "").metadata;
                let full = metadata.into_iter().fold(full, |full, (name, value)| full.with(name, value));
                full.retry_after(TRY_AGAIN).with("retry_after_is", "estimated")
            })?;
        Ok(Some(queued))
    }

    /// Waits in order of arrival until no approval holds the run, and then for a slot.
    pub(super) async fn slot_beside(
        &self,
        run: &Run,
        caller: &Caller,
        operation: &Operation,
        (queued, patience): (Queued, Patience),
        journal: &mut Journal,
        times: &mut Times,
    ) -> Result<Slot, Refusal> {
        let began = Instant::now();
        let until = patience.until(operation);
        let slot = async {
            let turn = self.unless_over(run, async { Ok(run.line.clone().lock_owned().await) }).await?;
            let slot = self.slot(run, caller, operation, Turn::Ordinary, times).await;
            drop(turn);
            slot
        };
        let over = async {
            match until {
                Some(until) => tokio::time::sleep_until(until.into()).await,
                None => std::future::pending().await,
            }
        };
        let slot = tokio::select! {
            biased;
            slot = slot => slot,
            () = over => Err(self.waited_too_long(run, operation, began.elapsed())),
        };
        drop(queued);
        journal.waited(began.elapsed());
        // A run that is ending refuses with its state, one that has ended with its end. In both cases the call has not begun.
        let is_over =
            |refused: &Refusal| refused.reason == Reason::RunNotReady && run.lanes_for_review().is_err();
        slot.map_err(|refused| if is_over(&refused) { not_begun() } else { refused })
    }

    /// Takes a fresh permit after a wait: policy, permissions and alerts may have changed.
    pub(super) fn renewed(
        &self,
        run: &Run,
        permit: Permit,
        journal: &mut Journal,
    ) -> Result<Permit, Refusal> {
        let (calls, spec) = (&self.calls, run.spec());
        calls.runs.check_deny_list(&spec, calls.gateway.policy().profile(&spec.profile))?;
        match calls.gateway.renew(permit, &run.scope()) {
            Ok(permit) => {
                journal.decided(permit.decision());
                Ok(permit)
            }
            Err(refused) => {
                journal.refused(&refused);
                Err(refusal(refused))
            }
        }
    }

    fn waited_too_long(&self, run: &Run, operation: &Operation, waited: Duration) -> Refusal {
        let millis = waited.as_millis().to_string();
        let refused = match run.readiness(operation) {
            Readiness::Ready(_) | Readiness::Resuming => {
                Refusal::new(Reason::Overloaded, "the call timed out while it waited for a slot; try again")
                    .retry_after(Duration::from_secs(1))
            }
            Readiness::Held(refused) if refused.reason == Reason::AwaitingApproval => {
                let why = format!(
                    "this call waited for {:.1} s, as long as its timeout allows",
                    waited.as_secs_f64()
                );
                awaiting(&self.calls.gateway, run, &why)
            }
            Readiness::Held(refused) | Readiness::Over(refused) => refused,
        };
        refused.with("waited_ms", millis)
    }
}

/// Returns the refusal of a call beside an approval. It says which approval, who decides, until when, and what is possible
/// meanwhile.
pub fn awaiting(gateway: &Gateway, run: &Run, why: &str) -> Refusal {
    let ids: Vec<String> = run
        .record()
        .holds
        .into_iter()
        .filter_map(|held| match held.hold {
            Hold::Approval(id) => Some(id),
            Hold::Operator | Hold::Alert(_) | Hold::Terminal(_) => None,
        })
        .collect();
    let of = |id: &String| gateway.approval(id);
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
    let message = format!("{}{why}. {}", situation(&approval), ADVICE.replace("ID", &approval.approval_id));
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

const ADVICE: &str = "Wait for approval ID; do not repeat this call before it is settled. Files can be read, listed and searched meanwhile";

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
