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
use gateway::Permit;
use gateway::limits::concurrency::Turn;
use operations::{Operation, Reason};
use policy::Caller;
use refusal::Refusal;
use runs::{Readiness, Run};

use super::record::{Journal, Times};
use super::slot::{Slot, not_begun};
use super::{CallTask, Client};
use crate::limits::Queued;

/// Time after which a client may try again if too many calls wait. The real wait depends on a person.
const TRY_AGAIN: Duration = Duration::from_secs(30);

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
        let Client { waits_for_approval, refuses_awaiting: refuses, metadata, .. } = *client;
        let deadline = metadata.deadline;
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
        let gateway = &self.calls.control.gateway;
        if patience.refuses {
            return Err(gateway.awaiting(&run.awaited_approvals(), "the call asked not to wait for that"));
        }
        if operation.delivery().outlives_call() {
            return Err(
                gateway.awaiting(&run.awaited_approvals(), "processes and sessions do not wait for that")
            );
        }
        let queued =
            self.calls.control.limits.wait_beside(&self.policy, caller, &run.spec().profile).map_err(
                |full| {
                    let metadata = gateway.awaiting(&run.awaited_approvals(), "").metadata;
                    let full = metadata.into_iter().fold(full, |full, (name, value)| full.with(name, value));
                    full.retry_after(TRY_AGAIN).with("retry_after_is", "estimated")
                },
            )?;
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
        slot.map_err(|refused| if is_over(&refused) { not_begun(run) } else { refused })
    }

    /// Takes a fresh permit after a wait: policy, permissions and alerts may have changed.
    pub(super) fn renewed(
        &self,
        run: &Run,
        permit: Permit,
        journal: &mut Journal,
    ) -> Result<Permit, Refusal> {
        let (calls, spec) = (&self.calls, run.spec());
        calls.workers.runs.check_deny_list(&spec, calls.control.gateway.policy().profile(&spec.profile))?;
        match calls.control.gateway.renew(permit, &run.scope()) {
            Ok(permit) => {
                journal.decided(permit.decision());
                Ok(permit)
            }
            Err(refused) => {
                journal.refused(&refused);
                Err(refused.into())
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
                self.calls.control.gateway.awaiting(&run.awaited_approvals(), &why)
            }
            Readiness::Held(refused) | Readiness::Over(refused) => refused,
        };
        refused.with("waited_ms", millis)
    }
}
