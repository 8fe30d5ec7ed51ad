//! Makes a call, from the request to the answer: admit, record, execute, close.
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
//! Invariants:
//! - Each call has one intent and one receipt, also a call that is refused or that panics.
//! - The intent of a call with an effect is durable before the effect. The host lane prepares the effect meanwhile.
//! - The receipt is durable before the answer is sent.
//! - The executor runs no operation without a permit.
//! - A client that disconnects leaves nothing half done: its call goes on in a task.

mod access;
mod asked;
mod begin;
mod beside;
mod consent;
mod decode;
mod facts;
mod input;
mod record;
mod resume;
mod review;
mod slot;
mod standstill;
mod stream;
mod surroundings;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dialects::{Facts, Limits, ProcessView};
use futures_util::FutureExt as _;
use gateway::limits::concurrency::Turn;
use gateway::{Admission, Caller, Permit, Policy};
use identity::{Principal, RunId};
use jail::Mount;
use operations::transport::MAX_SHOWN;
use operations::{Bound, Delivery, Lane, OpResult, Operation, Outcome, Reason, ToolFailure};
use processes::LeftBy;
use refusal::Refusal;
use runs::{OnStop, Run};
use store::run::Spec;
use timestamp::micros;
use tokio_util::sync::DropGuard;
use wire::v1::{CallRequest, CallResponse, Timings};
use worker_protocol::client::{Finished, OutputSink, Usage};

use crate::Calls;
use crate::escalation::Attempt;
use crate::refused::refusal;
use crate::table::{Answer, Call, Keep};

pub use beside::awaiting;
pub use decode::limits;
#[cfg(test)]
pub(crate) use input::of as recorded_input;
pub use resume::resume;
pub use stream::{Events, stream};

use begin::{CallOptions, Lookup};
use beside::Patience;
use decode::{Decoded, ResponseFormat};
use record::{Journal, Times};
use slot::Slot;
use standstill::Standstill;
use surroundings::Surroundings;

/// Makes a call, or finds the one that the same request began, and waits for its answer.
pub async fn call(
    calls: &Arc<Calls>,
    principal: &Arc<Principal>,
    request: CallRequest,
) -> Result<CallResponse, Refusal> {
    make(calls, principal, request, Client::default()).await
}

/// Makes a call as [`call`] does, for a client that waits until `deadline` at most.
pub async fn call_until(
    calls: &Arc<Calls>,
    principal: &Arc<Principal>,
    request: CallRequest,
    deadline: Option<Instant>,
) -> Result<CallResponse, Refusal> {
    make(calls, principal, request, Client { deadline, ..Client::default() }).await
}

/// Makes a call as [`call`] does, for a download: the bytes that are read go to `output`.
pub async fn download(
    calls: &Arc<Calls>,
    principal: &Arc<Principal>,
    request: CallRequest,
    output: Arc<dyn OutputSink>,
) -> Result<CallResponse, Refusal> {
    make(calls, principal, request, Client { download: Some(output), ..Client::default() }).await
}

async fn make(
    calls: &Arc<Calls>,
    principal: &Arc<Principal>,
    request: CallRequest,
    client: Client,
) -> Result<CallResponse, Refusal> {
    let options = CallOptions::of(&request);
    let (call, task) = match begin::begin(calls, principal, request, client).await? {
        Lookup::Stored(found) => return options.stored(found.response),
        Lookup::Call(call) => (call, None),
        Lookup::New(call, task) => (call, Some(task)),
    };
    // A client that disconnects drops this future; the task then goes on alone.
    let leaves = options.cancel_on_disconnect.then(|| call.cancel.clone().drop_guard());
    let settled = call.settled(options.wait_for_approval);
    let Answer { response, refusal, .. } = match task {
        None => settled.await,
        Some(task) => tokio::select! {
            biased;
            () = task => call.answer(),
            answer = settled => answer,
        },
    };
    leaves.map(DropGuard::disarm);
    refusal.map_or(Ok(response), Err)
}

/// Returns the operation that a request asks for under a profile's limits, without making a call of it.
pub fn operation(request: CallRequest, limits: &Limits, policy: &Policy) -> Result<Operation, Refusal> {
    decode::decode(request, limits, policy).operation
}

/// Returns the caller that the gateway judges: the principal, with the run's agent and role.
fn caller(principal: &Principal, run: RunId, spec: &Spec) -> Caller {
    Caller {
        principal: principal.name.clone(),
        agent_id: spec.agent_id.clone(),
        role: spec.role.clone(),
        run_id: run.to_string(),
    }
}

/// Returns true if a request names an agent that is not the run's.
fn is_for_another(named: &str, spec: &Spec) -> bool {
    !named.is_empty() && named != spec.agent_id
}

/// The connected client of a call.
#[derive(Default)]
struct Client {
    /// The sink of a download.
    download: Option<Arc<dyn OutputSink>>,
    /// The moment at which the client stops waiting for its answer.
    deadline: Option<Instant>,
    /// The client waits for reviewers' decisions.
    waits_for_approval: bool,
    /// The client wants a refusal instead of a wait for the reviewer of another call.
    refuses_awaiting: bool,
}

struct CallTask {
    calls: Arc<Calls>,
    principal: Arc<Principal>,
    call: Arc<Call>,
    taken: Instant,
    client: Client,
    /// The policy in force when the call began, for its decoding and its first decision.
    ///
    /// A call that has waited is decided again under the policy that is in force by then: see `renew` and `redeem` of the gateway.
    policy: Arc<Policy>,
}

/// A call that may be executed now.
struct Admitted {
    run: Arc<Run>,
    permit: Permit,
    slot: Slot,
    /// The hold that may keep the run frozen until the call is over.
    still: Standstill,
}

/// Wraps the outcome of an operation of a process. The process's own usage is counted when it ends.
fn finished(outcome: Outcome) -> Finished {
    let usage = Usage::default();
    let bytes_out = outcome.as_ref().map_or(0, operations::output_bytes);
    Finished { outcome, bound: Bound::default(), usage, bytes_in: 0, bytes_out }
}

/// The end of a refused or executed call.
enum Close {
    Executed(Box<Finished>),
    /// The answer of a process that an earlier call started.
    Accessed(Box<ProcessView>),
    Refused(Refusal),
    /// The daemon failed on the way.
    Broken(Refusal),
}

impl Close {
    /// Returns the number of bytes that the command wrote beyond the `kept` ones.
    fn output_beyond(&self, kept: [u64; 2]) -> u64 {
        let Self::Executed(finished) = self else { return 0 };
        let command = finished.outcome.as_ref().ok().and_then(OpResult::command);
        command.map_or(0, |command| {
            command.stdout_bytes.saturating_sub(kept[0]) + command.stderr_bytes.saturating_sub(kept[1])
        })
    }
}

impl CallTask {
    async fn run(self, request: CallRequest) {
        let id = self.call.id;
        let access = access::of(&request);
        let mut decoded = decode::decode(request, &self.limits(), &self.policy);
        if let Some(access) = &access {
            decoded.asked.operation = Some(access.name());
        }
        let form = decoded.form.clone();
        let mut journal = Journal::new(self.call.run.to_string(), id, &self.principal, &decoded);
        journal.request(self.call.request_id.clone());
        let mut times = Times::begin(self.taken);

        let made = async {
            match access {
                Some(access) => self.access(access, &decoded.agent_id, &mut journal, &mut times).await,
                None => self.make(decoded, &mut journal, &mut times).await,
            }
        };
        let made = AssertUnwindSafe(made).catch_unwind().await;
        self.end(made.ok(), &form, journal, times).await;
    }

    /// Returns the limits of the run's profile. A run that is gone has the defaults, because it gets no further call.
    fn limits(&self) -> Limits {
        let run = self.calls.runs.living_run(self.call.run);
        let profile = run.ok().and_then(|run| self.policy.profile(&run.spec().profile).map(limits));
        profile.unwrap_or_default()
    }

    /// Writes the receipt, gives the answer and keeps the outcome. `made` is `None` when the call panicked.
    async fn end(self, made: Option<Close>, form: &ResponseFormat, mut journal: Journal, mut times: Times) {
        if self.call.answer().suspended {
            // Its intent stays open; the next daemon writes its receipt.
            return;
        }
        let id = self.call.id;
        let mut close = if let Some(close) = made {
            close
        } else {
            self.calls.approvals.cancel(&id.to_string()).await;
            Close::Broken(Refusal::new(
                Reason::Internal,
                "the call failed with an internal error and may have taken effect; see the daemon's log",
            ))
        };
        let refusal = match &close {
            Close::Refused(refusal) | Close::Broken(refusal) => Some(refusal.clone()),
            Close::Executed(_) | Close::Accessed(_) => None,
        };
        let kept = self.call.output.kept();
        journal.kept(kept);
        let unkept = close.output_beyond(kept);
        // Before the receipt: an answer that is too large for a message fails the call.
        let facts = self.facts(form, times.execution);
        let mut response = form.respond(self.call.answer().response, &mut close, facts);
        // A call that is refused before it has an intent gets both records now.
        let recorded = journal.close(&self.calls.audit, &close, &mut times).await;
        response.output_not_kept_bytes = unkept;
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
                "the call has ended, but its receipt is not on disk. Read its outcome with GetCall before \
                 you repeat it",
            ));
        }
        let keep = match (journal.was_asked(), journal.has_effect()) {
            (true, _) => Keep::First,
            (false, true) => Keep::Stored,
            (false, false) => Keep::Briefly,
        };
        self.calls.table.finish(&self.call, response, refusal, keep).await;
        if journal.has_effect()
            && let Ok(lanes) = self.calls.runs.living_run(self.call.run).and_then(|run| run.lanes())
        {
            lanes.answered();
        }
        // Only after receipt and outcome are kept. If they could not be, the next daemon closes the call.
        if let Some(approval) = journal.approval_id().filter(|_| recorded.is_ok()) {
            self.calls.approvals.done(approval).await;
        }
    }

    async fn make(&self, decoded: Decoded, journal: &mut Journal, times: &mut Times) -> Close {
        let form = decoded.form.clone();
        match self.admit(decoded, journal, times).await {
            Ok(admitted) => self.execute(admitted, &form, journal, times).await,
            Err(refusal) => Close::Refused(refusal),
        }
    }

    /// Waits until the call has a permit and a slot, or is refused.
    async fn admit(
        &self,
        decoded: Decoded,
        journal: &mut Journal,
        times: &mut Times,
    ) -> Result<Admitted, Refusal> {
        let run = match self.calls.runs.living_run(self.call.run) {
            Ok(run) => run,
            Err(gone) => {
                // The record of an ended run still has its owner.
                if let Ok(ended) = self.calls.runs.get(self.call.run) {
                    journal.caller(&self.caller(&ended.spec));
                }
                // A malformed request is refused as malformed first.
                return Err(decoded.operation.err().unwrap_or(gone));
            }
        };
        let _busy = run.busy();
        let spec = run.spec();
        let caller = self.caller(&spec);
        if !is_for_another(&decoded.agent_id, &spec) {
            journal.caller(&caller);
        }
        let patience = Patience::new(&self.client, decoded.limit, &self.limits());
        // Refused before the policy is asked, but recorded with its caller.
        let operation = decoded.operation?;
        self.check_agent(&decoded.agent_id, &spec)?;
        self.calls.runs.check_deny_list(&spec, self.policy.profile(&spec.profile))?;
        // Calls that wait for a reviewer do not keep further calls from asking. Any other hold on the run does.
        run.check_asking()?;
        // Checked here, since the container has this directory even without a package.
        if spec.pkg_path.is_none() && operation.paths().iter().any(|path| path.mount() == Mount::Pkg) {
            return Err(Refusal::new(Reason::SandboxViolation, "this run has no @pkg").with("mount", "@pkg"));
        }
        times.queued();

        let call_id = self.call.id.to_string();
        let admission = self.calls.gateway.admit(&self.policy, &run.scope(), &caller, &call_id, operation);
        times.decided();
        match admission {
            Admission::Refuse(refused) => {
                journal.refused(&refused);
                Err(refusal(refused))
            }
            Admission::Permit(mut permit) => {
                let operation = permit.operation();
                let queued = self.beside(&run, &caller, operation, patience)?;
                self.calls.quotas.check(&run.disk, operation)?;
                journal.decided(permit.decision());
                if queued.is_none() && operation.lane() == Lane::Host && journal.has_effect() {
                    journal.begin(&self.calls.audit);
                } else {
                    journal.open(&self.calls.audit, times).await?;
                }
                let slot = match queued {
                    None => self.slot(&run, &caller, operation, Turn::Ordinary, times).await?,
                    Some(queued) => {
                        let queued = (queued, patience);
                        let slot = self.slot_beside(&run, &caller, operation, queued, journal, times).await?;
                        permit = self.renewed(&run, permit, journal)?;
                        slot
                    }
                };
                Ok(self.admitted(run, permit, slot))
            }
            Admission::Ask(ticket) => {
                self.calls.quotas.check(&run.disk, ticket.operation())?;
                if let Some(admitted) = self.recalled(&run, &ticket, patience, journal, times).await? {
                    journal.decided(admitted.permit.decision());
                    journal.open(&self.calls.audit, times).await?;
                    return Ok(admitted);
                }
                journal.decided(ticket.decision());
                journal.asked();
                let asker = self.asker(&decoded.form, decoded.task_id, decoded.correlation_id, decoded.limit);
                journal.open(&self.calls.audit, times).await?;
                self.consent(run, &ticket, asker, &decoded.form, journal, times).await
            }
        }
    }

    /// Returns the failure of a call that was not cancelled, but whose worker was ended with the run or with the daemon.
    ///
    /// Such a call is not started again.
    fn cut_off(&self, run: &Run, failure: &ToolFailure) -> Option<ToolFailure> {
        if failure.reason != Reason::Cancelled || self.call.cancel.is_cancelled() {
            return None;
        }
        let unknown = "the call may have taken effect";
        let message = if self.calls.stop.is_cancelled() && self.calls.on_stop == OnStop::Leave {
            format!(
                "the daemon was stopped during the call and hands the run over to the next daemon: \
                 {unknown}; check before you repeat it"
            )
        } else if self.calls.stop.is_cancelled() {
            format!("the daemon was stopped during the call, and the run was ended with it: {unknown}")
        } else if run.ended.is_cancelled() && failure.details.contains_key("retryable") {
            format!("the run was ended during the call: {unknown}")
        } else {
            return None;
        };
        Some(ToolFailure::new(Reason::Cancelled, message))
    }

    /// Refuses a request that names an agent other than the run's, and records the attempt.
    fn check_agent(&self, named: &str, spec: &Spec) -> Result<(), Refusal> {
        if !is_for_another(named, spec) {
            return Ok(());
        }
        let (principal, run) = (&self.principal, Some(self.call.run));
        self.calls.escalations.report(principal, run, Attempt::OtherAgent, named);
        Err(Refusal::new(Reason::PermissionDenied, "agent_id: the run is for another agent"))
    }

    fn caller(&self, spec: &Spec) -> Caller {
        caller(&self.principal, self.call.run, spec)
    }

    /// Returns true if the run's profile allows background processes now, for the caller's next call.
    fn has_processes(&self, run: &Run) -> bool {
        let policy = self.calls.gateway.policy();
        let verdict = policy.profile(&run.spec().profile).and_then(|profile| profile.operation("process"));
        verdict.is_some_and(|(_, verdict)| verdict < gateway::Verdict::Deny)
    }

    /// Returns the admission of a call that needs no reviewer.
    fn admitted(&self, run: Arc<Run>, permit: Permit, slot: Slot) -> Admitted {
        Admitted { run, permit, slot, still: Standstill::none(&self.calls, self.call.run) }
    }

    /// Returns the facts of the call that dialects show to their models. A typed answer has none.
    fn facts(&self, form: &ResponseFormat, execution: Duration) -> Facts {
        if form.is_dialect() { facts::of(&self.calls, &self.call, execution) } else { Facts::default() }
    }

    /// Returns the sink for the output of an operation.
    fn output(&self, operation: &Operation) -> Result<Arc<dyn OutputSink>, ToolFailure> {
        match &self.client.download {
            _ if !operation.is_download() => Ok(Arc::new(self.call.output.clone())),
            Some(download) => Ok(download.clone()),
            None => {
                let message = "a download needs a connected client: call DownloadFile or DownloadArchive, and again after a restart of the daemon";
                Err(ToolFailure::new(Reason::InvalidArgument, message))
            }
        }
    }

    /// Executes the permit in its lane. Then it releases the run if it was frozen for this call.
    async fn execute(
        &self,
        admitted: Admitted,
        form: &ResponseFormat,
        journal: &mut Journal,
        times: &mut Times,
    ) -> Close {
        let Admitted { run, mut permit, slot, mut still } = admitted;
        if form.is_dialect() {
            permit.read_at_most(MAX_SHOWN);
        }
        let _busy = run.busy();
        let cancel = self.call.cancel.child_token();
        let limit = journal.limit();
        let began = Instant::now();
        let intent = journal.begun();
        let leaves = permit.bounds().keep_background.then(|| permit.operation().process());
        let caller = permit.caller().clone();
        let surroundings = Surroundings {
            processes: &self.calls.processes,
            run: &run,
            by: leaves.map(|request| LeftBy {
                call: self.call.id,
                principal: &caller.principal,
                agent: &caller.agent_id,
                request,
            }),
            began,
            offers_processes: self.has_processes(&run),
        };
        let mut finished = match (permit.operation().delivery(), permit.operation().lane(), &intent) {
            (Delivery::Upstream, ..) => {
                self.calls.upstreams.execute(&run, &slot.lanes, permit, limit, &cancel).await
            }
            (Delivery::Process, ..) => finished(self.calls.processes.start(&run, &slot.lanes, permit).await),
            (Delivery::Session, ..) => finished(self.calls.processes.perform(&run, permit, &cancel).await),
            (_, Lane::Host, Some(intent)) => {
                let go = intent.clone().map(|recorded| recorded.is_ok()).boxed();
                slot.lanes.execute_after(permit, limit, go, cancel).await
            }
            _ => match self.output(permit.operation()) {
                Ok(output) => slot.lanes.execute(permit, limit, output, cancel, &surroundings).await,
                Err(failure) => finished(Err(failure)),
            },
        };
        drop(slot);
        times.executed();
        still.end().await;
        if let Some(intent) = intent
            && let Err(unavailable) = intent.await
        {
            return Close::Refused(unavailable.into());
        }
        if run.disk.is_over() {
            self.calls.quotas.look_again();
        }
        if let Err(failure) = &mut finished.outcome
            && let Some(truth) = self.cut_off(&run, failure)
        {
            *failure = truth;
        }
        if let Err(failure) = &finished.outcome
            && operations::is_void(failure)
        {
            return Close::Refused(failure.clone().into());
        }
        let command = finished.outcome.as_ref().ok().and_then(OpResult::command);
        if let Some(command) = command
            && let Some(left) = operations::not_ended(command)
        {
            // No process may continue unseen. If a command's processes cannot be ended, the run fails and its container is ended.
            run.fail(format!("{left} processes of a command could not be ended")).await;
        }
        Close::Executed(Box::new(finished))
    }
}
