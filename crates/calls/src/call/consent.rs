//! Asks for consent to a call, waits for it, and turns it into a permit, once.

use std::sync::Arc;
use std::time::Duration;

use gateway::limits::concurrency::Turn;
use gateway::{Approval, ApprovalState, Permit, Ticket};
use operations::{Bound, Lane, Reason};
use policy::Form;
use refusal::Refusal;
use runs::record::State;
use runs::{OnStop, Run};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::beside::Patience;
use super::lost::refused_by_its_node;
use super::record::{Journal, Times};
use super::respond::ResponseFormat;
use super::slot::Slot;
use super::standstill::Standstill;
use super::{Admitted, CallTask, review};
use crate::approvals::Asker;

/// An approval and the channel on which the reviewers' decision arrives.
pub(super) type Waiting = (Approval, oneshot::Receiver<Approval>);

impl CallTask {
    /// Returns the permit of a call that a remembered consent covers, if the files it uses are unchanged.
    pub(super) async fn recalled(
        &self,
        run: &Arc<Run>,
        ticket: &Ticket,
        patience: Patience,
        journal: &mut Journal,
        times: &mut Times,
    ) -> Result<Option<Admitted>, Refusal> {
        let Some(form) = self.calls.control.gateway.remembers(ticket) else { return Ok(None) };
        let (caller, operation) = (ticket.caller(), ticket.operation());
        let queued = match form {
            Form::Prefix => self.beside(run, caller, operation, patience)?,
            Form::Digest => None,
        };
        // A consent to one exact call is bound to the files as they were seen. A consent to a prefix covers every call that begins
        // with it.
        let freezes = form == Form::Digest && ticket.terms().freeze;
        let mut still = self.stand_still(run, freezes, &self.call.id.to_string()).await?;
        let recalled = async {
            let slot = match queued {
                Some(queued) => {
                    self.slot_beside(run, caller, operation, (queued, patience), journal, times).await?
                }
                None => self.slot_for(run, ticket, &mut still, times).await?,
            };
            let bound = match form {
                Form::Digest => review::bound(&slot.lanes, ticket).await?,
                Form::Prefix => Bound::default(),
            };
            Ok(self.calls.control.gateway.recall(ticket, &bound).map(|permit| (permit, slot)))
        };
        match recalled.await {
            Ok(Some((permit, slot))) => Ok(Some(Admitted { run: run.clone(), permit, slot, still })),
            other => {
                still.end().await;
                other.map(|_| None)
            }
        }
    }

    /// Returns the facts of the call that are kept while it waits.
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
            trace: self.trace,
        }
    }

    /// Asks a reviewer and waits. Holds no lock and no slot meanwhile; freezes the run if its profile says so.
    pub(super) async fn consent(
        &self,
        run: Arc<Run>,
        ticket: &Ticket,
        asker: Asker,
        form: &ResponseFormat,
        journal: &mut Journal,
        times: &mut Times,
    ) -> Result<Admitted, Refusal> {
        let approval_id = node_id::new_id();
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

    /// Freezes the run from here on, if `freezes`.
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
        let redactor = self.calls.records.audit.redactor().of(&run.record().id.to_string());
        let mut review = review::of(&lanes, ticket, &redactor).await?;
        review.approval_id = Some(approval_id);
        let (approval, settled) = self.calls.control.approvals.ask(ticket, review, asker).await?;
        journal.approval(&approval.approval_id);
        let facts = self.facts(form, Duration::ZERO);
        self.call.pend(&approval.approval_id, form.pending(&facts, &approval.approval_id));
        Ok((approval, settled))
    }

    /// Waits for the decision, and turns consent into a permit and a slot.
    ///
    /// In every case it releases a run that was frozen for the call, unless the call is left to the next daemon.
    pub(super) async fn decided(
        &self,
        run: Arc<Run>,
        ticket: &Ticket,
        (approval, settled): Waiting,
        mut still: Standstill,
        times: &mut Times,
    ) -> Result<Admitted, Refusal> {
        let answer = self.answer(&run, &approval, settled).await;
        // The wait for a reviewer is not counted.
        times.resume();
        let granted = match answer {
            Ok(()) => {
                self.call.resume();
                self.redeem(&run, ticket, &approval, &mut still, times).await
            }
            Err(refusal) => Err(refusal),
        };
        match granted {
            Ok((permit, slot)) => Ok(Admitted { run, permit, slot, still }),
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

    /// Waits until the approval is settled. Returns a refusal for everything but consent.
    async fn answer(
        &self,
        run: &Run,
        approval: &Approval,
        settled: oneshot::Receiver<Approval>,
    ) -> Result<(), Refusal> {
        let approval = tokio::select! {
            // A decision that has arrived counts, even if the call was cancelled or the run has ended.
            biased;
            settled = settled => settled.map_err(|_| Refusal::from(audit_service::Unavailable))?,
            () = self.call.cancel.cancelled() => {
                self.calls.control.approvals.cancel(&approval.call_id).await;
                return Err(Refusal::new(Reason::Cancelled, "the call was cancelled before it was approved"));
            }
            () = run.ended.cancelled() => {
                let why = if self.is_left(run) {
                    // The run and its waiting call are left to the next daemon.
                    self.call.suspend();
                    "the daemon was stopped before the call was approved; the call waits for the next one"
                } else {
                    self.calls.control.approvals.cancel(&approval.call_id).await;
                    "the run ended before the call was approved"
                };
                let refused = Refusal::new(Reason::Cancelled, why);
                return Err(refused_by_its_node(run.record().end_cause, refused));
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

    /// Returns true if the daemon stops and leaves the run, with all that waits in it, to the next one.
    fn is_left(&self, run: &Run) -> bool {
        self.calls.life.stop.is_cancelled()
            && self.calls.life.on_stop.now() == OnStop::Leave
            && matches!(run.record().state, State::Ready | State::Paused)
    }

    /// Gets a slot, redeems the approval at the gateway and marks it as spent.
    ///
    /// The gateway checks everything again once the call has its slot and has nothing left to wait for. The lane compares the files
    /// that the call uses with the reviewed ones, during the effect.
    async fn redeem(
        &self,
        run: &Run,
        ticket: &Ticket,
        approval: &Approval,
        still: &mut Standstill,
        times: &mut Times,
    ) -> Result<(Permit, Slot), Refusal> {
        let slot = match self.slot_for(run, ticket, still, times).await {
            Ok(slot) => slot,
            Err(refusal) => {
                if self.is_left(run) {
                    // Approved at the moment of the stop: the next daemon goes on with it.
                    self.call.suspend();
                } else {
                    self.calls.control.approvals.cancel(&approval.call_id).await;
                }
                return Err(refusal);
            }
        };
        let spent = match self.calls.control.gateway.redeem(&approval.approval_id, ticket) {
            // Durable before the permit is used: a daemon that dies in between has executed it once or not at all.
            Ok(permit) => self.calls.control.approvals.spend(&approval.approval_id).await.map(|()| permit),
            Err(refused) => Err(refused.into()),
        };
        times.decided();
        if spent.is_err() {
            // The consent is void from here on, in a later daemon too.
            self.calls.control.approvals.cancel(&approval.call_id).await;
        }
        Ok((spent?, slot))
    }

    /// Returns the slot of a call that was approved.
    ///
    /// A frozen run stays frozen until the call is over, so that nothing in the run changes the reviewed files while they are used.
    /// A call to an upstream server freezes nothing: it uses no reviewed files, and a server of the run's tools is frozen with the
    /// rest. Neither does one that makes or restores a checkpoint: it holds the run itself, and a checkpoint does not change.
    async fn slot_for(
        &self,
        run: &Run,
        ticket: &Ticket,
        still: &mut Standstill,
        times: &mut Times,
    ) -> Result<Slot, Refusal> {
        let (caller, operation) = (ticket.caller(), ticket.operation());
        if matches!(operation.lane(), Lane::Upstream | Lane::Daemon) {
            still.end().await;
        }
        while let Some(hold) = still.hold().cloned() {
            if let Some(slot) = self.slot_within(run, caller, operation).await? {
                times.queued();
                return Ok(slot);
            }
            // The holder of the last slot may be frozen for this very call.
            still.end().await;
            drop(self.slot(run, caller, operation, Turn::Consented, times).await?);
            still.again(run, hold).await?;
        }
        self.slot(run, caller, operation, Turn::Consented, times).await
    }
}
