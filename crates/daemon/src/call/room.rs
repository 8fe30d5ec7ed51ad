//! What a call is executed in: its turn among the calls that run, and its run as it has to be.

use std::sync::Arc;

use futures_util::FutureExt as _;
use gateway::Caller;
use gateway::limits::concurrency::{Place, Turn};
use ops::{Lane, Operation, Reason};
use tokio::sync::OwnedRwLockReadGuard;

use super::Story;
use super::record::Times;
use crate::executor::Lanes;
use crate::runs::{Hold, Run};
use crate::status::Refusal;

/// Room for one call, until it is dropped.
pub(super) struct Room {
    pub(super) lanes: Arc<Lanes>,
    /// Among the calls of run, principal and daemon that run.
    _place: Place,
    /// It changes files on the host.
    _writing: Option<OwnedRwLockReadGuard<()>>,
}

impl Story {
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
    ) -> Result<Room, Refusal> {
        let spec = run.spec();
        let room = async {
            loop {
                // One that was let through before the run was paused waits, like those that were begun.
                run.resumed().await;
                let place = self.app.limits.place(caller, &spec.profile, turn).await?;
                let writing = writing(run, operation).await;
                if run.is_held_but_for(None) {
                    // Paused in this moment, unless it has ended.
                    run.lanes_for_review()?;
                    continue;
                }
                return Ok(Room { lanes: run.lanes()?, _place: place, _writing: writing });
            }
        };
        let room = tokio::select! {
            room = room => room,
            () = self.call.cancel.cancelled() => Err(Refusal::new(Reason::Cancelled, "the call was cancelled")),
            () = run.ended.cancelled() => Err(Refusal::new(Reason::Cancelled, "the run ended")),
        };
        times.queued();
        room
    }

    /// Room in a run that this call alone makes stand still. Nothing is waited for that may wait for the run itself.
    pub(super) async fn room_within(
        &self,
        run: &Run,
        caller: &Caller,
        operation: &Operation,
        own: &Hold,
    ) -> Option<Room> {
        let spec = run.spec();
        let place = self.app.limits.place(caller, &spec.profile, Turn::Consented).now_or_never()?.ok()?;
        let writing = writing(run, operation).await;
        if run.is_held_but_for(Some(own)) {
            return None;
        }
        Some(Room { lanes: run.lanes_for_review().ok()?, _place: place, _writing: writing })
    }
}

async fn writing(run: &Run, operation: &Operation) -> Option<OwnedRwLockReadGuard<()>> {
    let writes = operation.lane() == Lane::Host && operation.has_effect();
    if writes { Some(run.writing.clone().read_owned().await) } else { None }
}
