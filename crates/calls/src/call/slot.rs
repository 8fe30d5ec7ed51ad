//! Gives a call its slot: a turn among the running calls, in a run that is ready for it.

use std::sync::Arc;

use executor::Lanes;
use futures_util::FutureExt as _;
use gateway::limits::concurrency::{Reservation, Turn};
use operations::{Lane, Operation, Reason};
use policy::Caller;
use refusal::Refusal;
use runs::{Readiness, Run};
use tokio::sync::{OwnedMutexGuard, OwnedRwLockReadGuard};

use super::CallTask;
use super::lost::refused_by_its_node;
use super::record::Times;

/// The slot of one call, until it is dropped.
pub(super) struct Slot {
    pub(super) lanes: Arc<Lanes>,
    /// The share of the running calls of run, principal and daemon.
    _reservation: Reservation,
    /// Held by a call that changes files on the host.
    _writing: Option<OwnedRwLockReadGuard<()>>,
    /// Held by an approved call: no other approved call of the run is executed meanwhile.
    _alone: Option<OwnedMutexGuard<()>>,
}

impl CallTask {
    /// Waits until run, principal and daemon are below their caps and nothing holds the run.
    ///
    /// Keeps no slot while the run is paused, so that a paused run does not keep others from running. A call takes its slot
    /// before its files are read for the last time, so that nothing waits after that.
    pub(super) async fn slot(
        &self,
        run: &Run,
        caller: &Caller,
        operation: &Operation,
        turn: Turn,
        times: &mut Times,
    ) -> Result<Slot, Refusal> {
        let spec = run.spec();
        let slot = async {
            loop {
                // A call that was admitted before the pause waits, like the calls that had begun.
                run.resumed_for(operation).await;
                let reservation = self.calls.control.limits.reserve(caller, &spec.profile, turn).await?;
                let writing = writing(run, operation).await;
                let lanes = match run.readiness(operation) {
                    Readiness::Ready(lanes) => lanes,
                    // Paused at this moment.
                    Readiness::Resuming | Readiness::Held(_) => continue,
                    Readiness::Over(refused) => return Err(refused),
                };
                self.calls.control.quotas.check(&run.disk, operation)?;
                return Ok(Slot { lanes, _reservation: reservation, _writing: writing, _alone: None });
            }
        };
        let slot = self.unless_over(run, slot).await;
        times.queued();
        slot
    }

    /// Returns the slot of an approved call, in a run that is frozen for it: until the slot is dropped, nothing else happens in
    /// that run.
    ///
    /// `None`: no slot is free now, and the frozen processes may hold one.
    pub(super) async fn slot_within(
        &self,
        run: &Run,
        caller: &Caller,
        operation: &Operation,
    ) -> Result<Option<Slot>, Refusal> {
        let spec = run.spec();
        let slot = async {
            loop {
                run.resumed_but_for_approvals().await;
                let alone = run.alone.clone().lock_owned().await;
                let reservation =
                    self.calls.control.limits.reserve(caller, &spec.profile, Turn::Consented).now_or_never();
                let Some(reservation) = reservation.transpose()? else { return Ok(None) };
                let writing = writing(run, operation).await;
                let lanes = run.lanes_for_review()?;
                if !run.is_held_totally() {
                    self.calls.control.quotas.check(&run.disk, operation)?;
                    return Ok(Some(Slot {
                        lanes,
                        _reservation: reservation,
                        _writing: writing,
                        _alone: Some(alone),
                    }));
                }
            }
        };
        self.unless_over(run, slot).await
    }

    pub(super) async fn unless_over<T>(
        &self,
        run: &Run,
        slot: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        tokio::select! {
            slot = slot => slot,
            () = self.call.cancel.cancelled() => Err(Refusal::new(Reason::Cancelled, "the call was cancelled")),
            () = run.ended.cancelled() => Err(not_begun(run)),
        }
    }
}

/// Returns the refusal of a call whose run ended while it waited.
pub(super) fn not_begun(run: &Run) -> Refusal {
    let message = "the run ended, or the daemon was stopped, before the call had begun";
    refused_by_its_node(run.record().end_cause, Refusal::new(Reason::Cancelled, message))
}

async fn writing(run: &Run, operation: &Operation) -> Option<OwnedRwLockReadGuard<()>> {
    // An upload goes through the host lane wherever it is written.
    let writes = operation.has_effect() && (operation.lane() == Lane::Host || operation.outside().is_some());
    if writes { Some(run.writing.clone().read_owned().await) } else { None }
}
