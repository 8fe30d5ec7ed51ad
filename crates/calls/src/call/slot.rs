//! What a call is executed in: its turn among the calls that run, and its run as it has to be.

use std::sync::Arc;

use executor::Lanes;
use futures_util::FutureExt as _;
use gateway::Caller;
use gateway::limits::concurrency::{Place, Turn};
use ops::{Lane, Operation, Reason};
use refusal::Refusal;
use runs::{Readiness, Run};
use tokio::sync::{OwnedMutexGuard, OwnedRwLockReadGuard};

use super::CallTask;
use super::record::Times;

/// Slot for one call, until it is dropped.
pub(super) struct Slot {
    pub(super) lanes: Arc<Lanes>,
    /// Among the calls of run, principal and daemon that run.
    _place: Place,
    /// It changes files on the host.
    _writing: Option<OwnedRwLockReadGuard<()>>,
    /// No other call of the run that was approved is executed meanwhile.
    _alone: Option<OwnedMutexGuard<()>>,
}

impl CallTask {
    /// Waits until run, principal and daemon have a place for one more and nothing holds the run. None is kept while the run
    /// is paused: what stands still must not keep others from running. It is taken before files are looked at for the last
    /// time, so that nothing waits behind that.
    pub(super) async fn room(
        &self,
        run: &Run,
        caller: &Caller,
        operation: &Operation,
        turn: Turn,
        times: &mut Times,
    ) -> Result<Slot, Refusal> {
        let spec = run.spec();
        let room = async {
            loop {
                // One that was let through before the run was paused waits, like those that were begun.
                run.resumed_for(operation).await;
                let place = self.calls.limits.place(caller, &spec.profile, turn).await?;
                let writing = writing(run, operation).await;
                let lanes = match run.readiness(operation) {
                    Readiness::Ready(lanes) => lanes,
                    // Paused in this moment.
                    Readiness::Resuming | Readiness::Held(_) => continue,
                    Readiness::Over(refused) => return Err(refused),
                };
                self.calls.quotas.check(&run.disk, operation)?;
                return Ok(Slot { lanes, _place: place, _writing: writing, _alone: None });
            }
        };
        let room = self.unless_over(run, room).await;
        times.queued();
        room
    }

    /// Slot for a call that was approved, in a run that stands still for it: nothing else happens in that run until the room is
    /// dropped. `None`: there is no place now, and what has one may be among what stands still.
    pub(super) async fn room_within(
        &self,
        run: &Run,
        caller: &Caller,
        operation: &Operation,
    ) -> Result<Option<Slot>, Refusal> {
        let spec = run.spec();
        let room = async {
            loop {
                run.resumed_but_for_approvals().await;
                let alone = run.alone.clone().lock_owned().await;
                let place = self.calls.limits.place(caller, &spec.profile, Turn::Consented).now_or_never();
                let Some(place) = place.transpose()? else { return Ok(None) };
                let writing = writing(run, operation).await;
                let lanes = run.lanes_for_review()?;
                if !run.is_held_totally() {
                    self.calls.quotas.check(&run.disk, operation)?;
                    return Ok(Some(Slot { lanes, _place: place, _writing: writing, _alone: Some(alone) }));
                }
            }
        };
        self.unless_over(run, room).await
    }

    pub(super) async fn unless_over<T>(
        &self,
        run: &Run,
        room: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        tokio::select! {
            room = room => room,
            () = self.call.cancel.cancelled() => Err(Refusal::new(Reason::Cancelled, "the call was cancelled")),
            () = run.ended.cancelled() => Err(not_begun()),
        }
    }
}

/// The refusal of a call whose run ended while it waited.
pub(super) fn not_begun() -> Refusal {
    Refusal::new(Reason::Cancelled, "the run ended, or the daemon was stopped, before the call had begun")
}

async fn writing(run: &Run, operation: &Operation) -> Option<OwnedRwLockReadGuard<()>> {
    // What is uploaded goes through the host lane wherever it is written.
    let writes = operation.has_effect() && (operation.lane() == Lane::Host || operation.outside().is_some());
    if writes { Some(run.writing.clone().read_owned().await) } else { None }
}
