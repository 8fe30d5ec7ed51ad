//! The story of a call: admit, record, execute, close.
//!
//! ```text
//!  request ─► decode ─► admit ──refuse──────────────────────────────► receipt ─► answer
//!                         │ │                                           ▲
//!                         │ └─ask─► intent ─► approval ─deny, expire────┤
//!                         │                      │ approve              │
//!                         └─permit─► intent ─────┴──► execute ──────────┘
//!             a former daemon's intent ─► resume ┘
//! ```
//!
//! Invariants: one intent and one receipt for each call, refused ones included; the intent of a call with an effect is
//! durable before the effect, its receipt before the answer; nothing is executed without a permit. A client that goes away
//! leaves nothing half done: its call goes on in a task of its own. One that breaks has its receipt as well.

mod begin;
mod decode;
mod facts;
mod place;
mod record;
mod resume;
mod review;
mod stream;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dialects::Facts;
use futures_util::FutureExt as _;
use gateway::limits::concurrency::{Place, Turn};
use gateway::{Admission, Approval, ApprovalState, Caller, Permit, Ticket};
use jail::Mount;
use ops::{OpResult, Operation, Reason};
use tokio::sync::oneshot;
use tokio_util::sync::DropGuard;
use wire::v1::{CallRequest, CallResponse, Timings};
use worker::client::Finished;

use crate::app::App;
use crate::approvals::Asker;
use crate::calls::{Answer, Call};
use crate::escalation::Attempt;
use crate::rpc::Principal;
use crate::runs::{Run, State};
use crate::status::Refusal;
use crate::time::micros;

pub(crate) use resume::resume;
pub(crate) use stream::{Events, stream};

use begin::{Manner, Taken};
use decode::{Decoded, Form};
use record::{Journal, Times};

/// Makes a call, or finds it made already, and waits for what is to be said of it.
pub(crate) async fn call(
    app: &Arc<App>,
    principal: &Arc<Principal>,
    request: CallRequest,
) -> Result<CallResponse, Refusal> {
    let manner = Manner::of(&request);
    let (call, story) = match begin::begin(app, principal, request).await? {
        Taken::Stored(found) => return manner.stored(found.response),
        Taken::Call(call) => (call, None),
        Taken::New(call, story) => (call, Some(story)),
    };
    // A client that goes away takes this future with it, and leaves the story to a task.
    let leaves = manner.cancel_on_disconnect.then(|| call.cancel.clone().drop_guard());
    let settled = call.settled(manner.wait_for_approval);
    let Answer { response, refusal, .. } = match story {
        None => settled.await,
        Some(story) => tokio::select! {
            biased;
            () = story => call.answer(),
            answer = settled => answer,
        },
    };
    leaves.map(DropGuard::disarm);
    refusal.map_or(Ok(response), Err)
}

/// The operation that a request asks for, without making a call of it.
pub(crate) fn operation(request: CallRequest) -> Result<Operation, Refusal> {
    decode::decode(request).operation
}

struct Story {
    app: Arc<App>,
    principal: Arc<Principal>,
    call: Arc<Call>,
    taken: Instant,
}

/// What a refused or executed call comes to.
enum Close {
    Executed(Box<Finished>),
    /// Its command was ended because the client asked for it; what it had written is there.
    Cancelled(Box<Finished>),
    Refused(Refusal),
    /// Something of ours broke on the way.
    Broken(Refusal),
}

impl Story {
    async fn tell(self, request: CallRequest) {
        let id = self.call.id;
        let decoded = decode::decode(request);
        let form = decoded.form.clone();
        let mut journal = Journal::new(self.call.run.to_string(), id, &self.principal, &decoded);
        journal.request(self.call.request_id.clone());
        let mut times = Times::begin(self.taken);

        let made = AssertUnwindSafe(self.make(decoded, &mut journal, &mut times)).catch_unwind().await;
        self.end(made.ok(), &form, journal, times).await;
    }

    /// The receipt, the answer, and what is kept. `made` is nothing when the call broke.
    async fn end(self, made: Option<Close>, form: &Form, mut journal: Journal, mut times: Times) {
        if self.call.answer().suspended {
            // Its intent stays open, and its receipt comes with the next daemon.
            return;
        }
        let id = self.call.id;
        let close = if let Some(close) = made {
            close
        } else {
            self.app.desk.cancel(&id.to_string()).await;
            Close::Broken(Refusal::new(
                Reason::Internal,
                "the call broke; whether it had an effect is not known, and the daemon's log says more",
            ))
        };
        let refusal = match &close {
            Close::Refused(refusal) | Close::Broken(refusal) => Some(refusal.clone()),
            Close::Executed(_) | Close::Cancelled(_) => None,
        };
        journal.kept(self.call.output.kept());
        // A refusal of a call that had no intent yet has both written now.
        let recorded = journal.close(&self.app.audit, &close, &mut times).await;
        let facts = self.facts(form, times.execution);
        let mut response = form.respond(&self.call, close, facts);
        response.timings = Some(Timings {
            queue_us: micros(times.queue),
            policy_us: micros(times.policy),
            audit_us: micros(times.audit),
            execution_us: micros(times.execution),
        });
        // A dialect's caller reads refusals from `rendered`; a canonical one gets them as a status.
        let mut refusal = refusal.filter(|_| !form.is_dialect());
        if recorded.is_err() {
            tracing::error!(call = %id, "a call's receipt waits for the audit log");
            refusal = Some(Refusal::new(
                Reason::AuditUnavailable,
                "the call is over, but its receipt is not on disk: GetCall has its outcome, do not repeat it unseen",
            ));
        }
        let keep = journal.has_effect() || journal.was_asked();
        self.app.calls.finish(&self.call, response, refusal, keep).await;
        // Not before receipt and outcome are kept. When they could not be, the next daemon closes the call.
        if let Some(approval) = journal.approval_id().filter(|_| recorded.is_ok()) {
            self.app.desk.done(approval).await;
        }
    }

    async fn make(&self, decoded: Decoded, journal: &mut Journal, times: &mut Times) -> Close {
        match self.admit(decoded, journal, times).await {
            Ok((run, permit, place)) => self.execute(&run, permit, place, journal, times).await,
            Err(refusal) => Close::Refused(refusal),
        }
    }

    /// Until there is a permit and a place to use it in, or there is none.
    async fn admit(
        &self,
        decoded: Decoded,
        journal: &mut Journal,
        times: &mut Times,
    ) -> Result<(Arc<Run>, Permit, Place), Refusal> {
        let operation = decoded.operation?;
        let run = self.app.runs.living_run(self.call.run)?;
        let _busy = run.busy();
        let spec = run.spec();
        if !decoded.agent_id.is_empty() && decoded.agent_id != spec.agent_id {
            let (principal, run) = (&self.principal, Some(self.call.run));
            self.app.escalations.report(principal, run, Attempt::OtherAgent, &decoded.agent_id);
            return Err(Refusal::new(Reason::PermissionDenied, "agent_id: the run is for another agent"));
        }
        let caller = Caller {
            principal: self.principal.name.clone(),
            agent_id: spec.agent_id.clone(),
            role: spec.role.clone(),
            run_id: self.call.run.to_string(),
        };
        journal.caller(&caller);
        run.lanes()?;
        // The container has a directory of this name all the same.
        if spec.pkg_path.is_none() && operation.paths().iter().any(|path| path.mount() == Mount::Pkg) {
            return Err(Refusal::new(Reason::SandboxViolation, "this run has no @pkg").with("mount", "@pkg"));
        }
        times.queued();

        let admission = self.app.gateway.admit(&run.scope(), &caller, &self.call.id.to_string(), operation);
        times.decided();
        match admission {
            Admission::Refuse(refused) => {
                journal.refused(&refused);
                Err(refused.into())
            }
            Admission::Permit(permit) => {
                journal.decided(permit.decision());
                journal.open(&self.app.audit, times).await?;
                let place = self.place(&run, &caller, Turn::Ordinary, times).await?;
                Ok((run, permit, place))
            }
            Admission::Ask(ticket) => {
                if let Some((permit, place)) = self.recalled(&run, &ticket, times).await? {
                    journal.decided(permit.decision());
                    journal.open(&self.app.audit, times).await?;
                    return Ok((run, permit, place));
                }
                journal.decided(ticket.decision());
                journal.asked();
                let asker = self.asker(&decoded.form, decoded.task_id, decoded.correlation_id, decoded.limit);
                journal.open(&self.app.audit, times).await?;
                let (permit, place) =
                    self.consent(&run, &ticket, asker, &decoded.form, journal, times).await?;
                Ok((run, permit, place))
            }
        }
    }

    /// What is kept of the call while it waits.
    fn asker(&self, form: &Form, task_id: String, correlation_id: String, limit: Option<Duration>) -> Asker {
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
            limit,
        }
    }

    /// Asks a reviewer and waits. No lock and no place is held meanwhile.
    async fn consent(
        &self,
        run: &Run,
        ticket: &Ticket,
        asker: Asker,
        form: &Form,
        journal: &mut Journal,
        times: &mut Times,
    ) -> Result<(Permit, Place), Refusal> {
        let lanes = run.lanes_for_review()?;
        let review = review::of(&lanes, ticket, self.app.audit.redactor()).await?;
        let (approval, settled) = self.app.desk.ask(ticket, review, asker).await?;
        journal.approval(&approval.approval_id);
        let facts = self.facts(form, Duration::ZERO);
        self.call.pend(&approval.approval_id, form.pending(&facts, &approval.approval_id));
        self.decided(run, ticket, &approval, settled, times).await
    }

    /// Waits for the decision, and turns consent into a permit, once.
    async fn decided(
        &self,
        run: &Run,
        ticket: &Ticket,
        approval: &Approval,
        settled: oneshot::Receiver<Approval>,
        times: &mut Times,
    ) -> Result<(Permit, Place), Refusal> {
        let approval = tokio::select! {
            settled = settled => settled.map_err(|_| Refusal::from(crate::audit::Unavailable))?,
            () = self.call.cancel.cancelled() => {
                self.app.desk.cancel(&approval.call_id).await;
                return Err(Refusal::new(Reason::Cancelled, "the call was cancelled before it was approved"));
            }
            () = run.ended.cancelled() => {
                if self.app.stop.is_cancelled() && run.record().state == State::Ready {
                    // The run is left for the next daemon, and its call that waits with it.
                    self.call.suspend();
                } else {
                    self.app.desk.cancel(&approval.call_id).await;
                }
                return Err(Refusal::new(Reason::Cancelled, "the run ended before the call was approved"));
            }
        };
        match approval.state {
            ApprovalState::Approved => {}
            ApprovalState::Expired => {
                return Err(Refusal::new(
                    Reason::ApprovalExpired,
                    "nobody decided in time, so the call was denied",
                ));
            }
            ApprovalState::Cancelled | ApprovalState::Pending => {
                return Err(Refusal::new(Reason::Cancelled, "the call was cancelled before it was approved"));
            }
            ApprovalState::Denied => {
                let said = if approval.comment.is_empty() {
                    String::new()
                } else {
                    format!(": {}", approval.comment)
                };
                return Err(Refusal::new(
                    Reason::ApprovalDenied,
                    format!("a reviewer denied the call{said}"),
                ));
            }
        }
        times.resume();
        let redeemed = self.redeem(run, ticket, &approval.approval_id, times).await;
        if redeemed.is_err() {
            // Void from here on, whatever a later daemon finds.
            self.app.desk.cancel(&approval.call_id).await;
        }
        let (permit, place) = redeemed?;
        self.call.resume();
        Ok((permit, place))
    }

    /// Everything is looked at again. That the consent is spent is on disk before its permit is used: a daemon that dies
    /// in between has executed it once or not at all.
    async fn redeem(
        &self,
        run: &Run,
        ticket: &Ticket,
        approval_id: &str,
        times: &mut Times,
    ) -> Result<(Permit, Place), Refusal> {
        // Consent holds for what is there when the run goes on and the call's turn has come.
        let place = self.place(run, ticket.caller(), Turn::Consented, times).await?;
        let files = review::files(&*run.lanes()?, ticket.operation()).await?;
        let permit = self.app.gateway.redeem(approval_id, ticket, &files)?;
        self.app.desk.spend(approval_id).await?;
        Ok((permit, place))
    }

    /// Only dialects tell them.
    fn facts(&self, form: &Form, execution: Duration) -> Facts {
        if form.is_dialect() { facts::of(&self.app, &self.call, execution) } else { Facts::default() }
    }

    /// Spends the permit in its lane.
    async fn execute(
        &self,
        run: &Arc<Run>,
        permit: Permit,
        mut place: Place,
        journal: &mut Journal,
        times: &mut Times,
    ) -> Close {
        times.resume();
        let _busy = run.busy();
        let cancel = self.call.cancel.child_token();
        if run.is_paused() {
            drop(place);
            let turn = permit.approval_id().map_or(Turn::Ordinary, |_| Turn::Consented);
            place = match self.place(run, permit.caller(), turn, times).await {
                Ok(place) => place,
                Err(refusal) => return Close::Refused(refusal),
            };
        }
        let lanes = match run.lanes() {
            Ok(lanes) => lanes,
            Err(refusal) => return Close::Refused(refusal),
        };
        let limit = journal.limit();
        let finished = lanes.execute(permit, limit, self.call.output.clone(), cancel).await;
        drop(place);
        times.executed();
        let command = finished.outcome.as_ref().ok().and_then(OpResult::command);
        if let Some(command) = command
            && command.kill.left > 0
        {
            // Nothing may run on unseen: a command that cannot be ended costs the run its container.
            run.fail(format!("{} processes of a command could not be ended", command.kill.left)).await;
        }
        // A command that ended by itself before the cancellation reached it did what was asked.
        let cut = command.is_some_and(|command| command.exit_code.is_none());
        let finished = Box::new(finished);
        if cut && self.call.cancel.is_cancelled() {
            Close::Cancelled(finished)
        } else {
            Close::Executed(finished)
        }
    }
}
