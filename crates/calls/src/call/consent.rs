//! Consent to a call: asked for, waited for, and turned into a permit, once.

use std::sync::Arc;
use std::time::Duration;

use gateway::limits::concurrency::Turn;
use gateway::{Approval, ApprovalState, Form, Permit, Ticket};
use ops::{Bound, Lane, Reason};
use refusal::Refusal;
use runs::{OnStop, Run};
use store::run::State;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::beside::Patience;
use super::decode::ResponseFormat;
use super::record::{Journal, Times};
use super::slot::Slot;
use super::standstill::Standstill;
use super::{Admitted, CallTask, review};
use crate::approvals::Asker;

/// A call that waits, and how its reviewers' answer arrives.
pub(super) type Waiting = (Approval, oneshot::Receiver<Approval>);

impl CallTask {
    /// The permit for a call whose consent a reviewer had remembered, while what it uses is what it was.
    pub(super) async fn recalled(
        &self,
        run: &Arc<Run>,
        ticket: &Ticket,
        patience: Patience,
        journal: &mut Journal,
        times: &mut Times,
    ) -> Result<Option<Admitted>, Refusal> {
        let Some(form) = self.calls.gateway.remembers(ticket) else { return Ok(None) };
        let (caller, operation) = (ticket.caller(), ticket.operation());
        let queued = match form {
            Form::Prefix => self.beside(run, caller, operation, patience)?,
            Form::Digest => None,
        };
        // What was seen once is run as it was seen; a prefix is leave for whatever begins with it.
        let freezes = form == Form::Digest && ticket.terms().freeze;
        let mut still = self.stand_still(run, freezes, &self.call.id.to_string()).await?;
        let recalled = async {
            let room = match queued {
                Some(queued) => {
                    self.room_beside(run, caller, operation, (queued, patience), journal, times).await?
                }
                None => self.room_for(run, ticket, &mut still, times).await?,
            };
            let bound = match form {
                Form::Digest => review::bound(&room.lanes, ticket).await?,
                Form::Prefix => Bound::default(),
            };
            Ok(self.calls.gateway.recall(ticket, &bound).map(|permit| (permit, room)))
        };
        match recalled.await {
            Ok(Some((permit, room))) => Ok(Some(Admitted { run: run.clone(), permit, room, still })),
            other => {
                still.end().await;
                other.map(|_| None)
            }
        }
    }

    /// What is kept of the call while it waits.
    pub(super) fn asker(
        &self,
        form: &ResponseFormat,
        task_id: String,
        correlation_id: String,
        limit: Option<Duration>,
    ) -> Asker {
        Asker {
            call: self.call.id,
            run: self.call.run,
            principal: self.principal.name.clone(),
            uid: self.principal.uid,
            gid: self.principal.gid,
            request_id: self.call.request_id.clone(),
            digest: self.call.digest.clone(),
            dialect: form.dialect(),
            task_id,
            correlation_id,
            via_token: self.principal.run.is_some(),
            limit,
        }
    }

    /// Asks a reviewer and waits. No lock and no place is held meanwhile; the run stands still if its profile says so.
    pub(super) async fn consent(
        &self,
        run: Arc<Run>,
        ticket: &Ticket,
        asker: Asker,
        form: &ResponseFormat,
        journal: &mut Journal,
        times: &mut Times,
    ) -> Result<Admitted, Refusal> {
        let approval_id = Uuid::now_v7();
        let freezes = ticket.terms().freeze;
        let mut still = self.stand_still(&run, freezes, &approval_id.to_string()).await?;
        match self.ask(&run, ticket, asker, form, journal, approval_id).await {
            Ok(waiting) => self.decided(run, ticket, waiting, still, times).await,
            Err(refusal) => {
                still.end().await;
                Err(refusal)
            }
        }
    }

    /// The run stands still from here on, if it has to.
    pub(super) async fn stand_still(
        &self,
        run: &Run,
        freezes: bool,
        approval_id: &str,
    ) -> Result<Standstill, Refusal> {
        if !freezes {
            return Ok(Standstill::none(&self.calls, self.call.run));
        }
        Standstill::begin(&self.calls, (self.call.run, run), approval_id).await
    }

    async fn ask(
        &self,
        run: &Run,
        ticket: &Ticket,
        asker: Asker,
        form: &ResponseFormat,
        journal: &mut Journal,
        approval_id: Uuid,
    ) -> Result<Waiting, Refusal> {
        let lanes = run.lanes_for_review()?;
        let redactor = self.calls.audit.redactor().of(&run.record().id.to_string());
        let mut review = review::of(&lanes, ticket, &redactor).await?;
        review.approval_id = Some(approval_id);
        let (approval, settled) = self.calls.approvals.ask(ticket, review, asker).await?;
        journal.approval(&approval.approval_id);
        let facts = self.facts(form, Duration::ZERO);
        self.call.pend(&approval.approval_id, form.pending(&facts, &approval.approval_id));
        Ok((approval, settled))
    }

    /// Waits for the decision, and turns consent into a permit and room for the call. Whatever comes of it, a run that stood
    /// still for it goes on, unless the call is left to the next daemon.
    pub(super) async fn decided(
        &self,
        run: Arc<Run>,
        ticket: &Ticket,
        (approval, settled): Waiting,
        mut still: Standstill,
        times: &mut Times,
    ) -> Result<Admitted, Refusal> {
        let granted = match self.answer(&run, &approval, settled).await {
            Ok(()) => {
                self.call.resume();
                // The wait for a reviewer is nobody's time.
                times.resume();
                self.redeem(&run, ticket, &approval, &mut still, times).await
            }
            Err(refusal) => Err(refusal),
        };
        match granted {
            Ok((permit, room)) => Ok(Admitted { run, permit, room, still }),
            Err(refusal) => {
                if self.call.answer().suspended {
                    still.leave();
                } else {
                    still.end().await;
                }
                Err(refusal)
            }
        }
    }

    /// Waits until the approval is settled; whatever is no consent is a refusal.
    async fn answer(
        &self,
        run: &Run,
        approval: &Approval,
        settled: oneshot::Receiver<Approval>,
    ) -> Result<(), Refusal> {
        let approval = tokio::select! {
            // A decision that is there counts, whatever else has happened by now.
            biased;
            settled = settled => settled.map_err(|_| Refusal::from(audit_service::Unavailable))?,
            () = self.call.cancel.cancelled() => {
                self.calls.approvals.cancel(&approval.call_id).await;
                return Err(Refusal::new(Reason::Cancelled, "the call was cancelled before it was approved"));
            }
            () = run.ended.cancelled() => {
                let why = if self.is_left(run) {
                    // The run is left for the next daemon, and its call that waits with it.
                    self.call.suspend();
                    "the daemon was stopped before the call was approved; the call waits for the next one"
                } else {
                    self.calls.approvals.cancel(&approval.call_id).await;
                    "the run ended before the call was approved"
                };
                return Err(Refusal::new(Reason::Cancelled, why));
            }
        };
        match approval.state {
            ApprovalState::Approved => Ok(()),
            ApprovalState::Expired => Err(Refusal::new(
                Reason::ApprovalExpired,
                "no reviewer decided in time, so the call was denied",
            )),
            ApprovalState::Cancelled | ApprovalState::Pending => {
                Err(Refusal::new(Reason::Cancelled, "the call was cancelled before it was approved"))
            }
            ApprovalState::Denied => {
                let said = if approval.comment.is_empty() {
                    String::new()
                } else {
                    format!(": {}", approval.comment)
                };
                Err(Refusal::new(Reason::ApprovalDenied, format!("a reviewer denied the call{said}")))
            }
        }
    }

    /// Whether the daemon stops and leaves the run, with all that waits in it, to the next one.
    fn is_left(&self, run: &Run) -> bool {
        self.calls.stop.is_cancelled()
            && self.calls.on_stop == OnStop::Leave
            && matches!(run.record().state, State::Ready | State::Paused)
    }

    /// Everything that the gateway knows is looked at again when there is room for the call, and nothing is left to wait for.
    /// What the call uses is held against what was seen by its lane, in the effect.
    async fn redeem(
        &self,
        run: &Run,
        ticket: &Ticket,
        approval: &Approval,
        still: &mut Standstill,
        times: &mut Times,
    ) -> Result<(Permit, Slot), Refusal> {
        let room = match self.room_for(run, ticket, still, times).await {
            Ok(room) => room,
            Err(refusal) => {
                if self.is_left(run) {
                    // Approved in the moment of the stop: the next daemon goes on with it.
                    self.call.suspend();
                } else {
                    self.calls.approvals.cancel(&approval.call_id).await;
                }
                return Err(refusal);
            }
        };
        let spent = match self.calls.gateway.redeem(&approval.approval_id, ticket) {
            // On disk before the permit is used: a daemon that dies in between has executed it once or not at all.
            Ok(permit) => self.calls.approvals.spend(&approval.approval_id).await.map(|()| permit),
            Err(refusal) => Err(refusal.into()),
        };
        times.decided();
        if spent.is_err() {
            // Void from here on, whatever a later daemon finds.
            self.calls.approvals.cancel(&approval.call_id).await;
        }
        Ok((spent?, room))
    }

    /// Slot for a call that was approved. What stands still for it stands still until it is over: nothing of the run changes
    /// what was seen while it is used. A server of the run's tools stands still like the rest, and nothing is held for it: its
    /// calls use what nobody sees.
    async fn room_for(
        &self,
        run: &Run,
        ticket: &Ticket,
        still: &mut Standstill,
        times: &mut Times,
    ) -> Result<Slot, Refusal> {
        let (caller, operation) = (ticket.caller(), ticket.operation());
        if operation.lane() == Lane::Upstream {
            still.end().await;
        }
        while let Some(hold) = still.hold().cloned() {
            if let Some(room) = self.room_within(run, caller, operation).await? {
                times.queued();
                return Ok(room);
            }
            // Whatever has the last place may stand still for this very call.
            still.end().await;
            drop(self.room(run, caller, operation, Turn::Consented, times).await?);
            still.again(run, hold).await?;
        }
        self.room(run, caller, operation, Turn::Consented, times).await
    }
}
