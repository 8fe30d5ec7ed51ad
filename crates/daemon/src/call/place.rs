//! A call's turn: it runs when run, principal and daemon have a place for one more.

use gateway::limits::concurrency::{Place, Turn};
use gateway::{Caller, Permit, Ticket};
use ops::Reason;

use super::record::Times;
use super::{Story, review};
use crate::runs::Run;
use crate::status::Refusal;

impl Story {
    /// A place among the calls that run, for as long as it is held. Never while the run is paused: what stands still must
    /// not keep others from running. Taken before files are looked at for the last time, so that nothing waits behind that.
    pub(super) async fn place(
        &self,
        run: &Run,
        caller: &Caller,
        turn: Turn,
        times: &mut Times,
    ) -> Result<Place, Refusal> {
        let spec = run.spec();
        let placed = async {
            loop {
                // One that was let through before the run was paused waits, like those that were begun.
                run.resumed().await;
                let place = self.app.limits.place(caller, &spec.profile, turn).await?;
                if !run.is_paused() {
                    return Ok(place);
                }
            }
        };
        let placed = tokio::select! {
            placed = placed => placed,
            () = self.call.cancel.cancelled() => Err(Refusal::new(Reason::Cancelled, "the call was cancelled")),
            () = run.ended.cancelled() => Err(Refusal::new(Reason::Cancelled, "the run ended")),
        };
        times.queued();
        placed
    }

    /// The permit for a call whose consent a reviewer had remembered, while the files are what they were.
    pub(super) async fn recalled(
        &self,
        run: &Run,
        ticket: &Ticket,
        times: &mut Times,
    ) -> Result<Option<(Permit, Place)>, Refusal> {
        if !self.app.gateway.remembers(&ticket.caller().run_id) {
            return Ok(None);
        }
        let place = self.place(run, ticket.caller(), Turn::Ordinary, times).await?;
        let files = review::files(&*run.lanes()?, ticket.operation()).await?;
        Ok(self.app.gateway.recall(ticket, &files).map(|permit| (permit, place)))
    }
}
