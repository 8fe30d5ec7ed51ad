//! Begins a call, or finds it begun, for each kind of client.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use audit_service::Attempt;
use dialects::Limits;
use futures_util::FutureExt as _;
use identity::{CallId, Principal, RunId};
use operations::Reason;
use refusal::Refusal;
use traces::{CallTrace, Context};
use tracing::{Instrument as _, Span};
use wire::v1::{CallRequest, CallResponse, call_request, call_response};
use worker_protocol::detach_on_drop::DetachOnDrop;

use super::record::{Journal, Times};
use super::{CallEnd, CallTask, Client, parse};
use crate::Calls;
use crate::table::{Begun, Call, Found, Keep};

/// The client's choice of how it waits for its call and takes the answer. It may differ between repetitions of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallOptions {
    /// Wait until a needed approval is decided.
    pub(super) wait_for_approval: bool,
    /// Cancel the call when the client disconnects.
    pub(super) cancel_on_disconnect: bool,
    /// Return a refusal as an answer, not as a status.
    dialect: bool,
}

/// The call of a request: a new one, or the one that the request began before.
pub(super) enum Lookup {
    /// A new call and its task. The task runs to its end even if it is dropped.
    New(Arc<Call>, DetachOnDrop<()>),
    /// A call that is under way, or that finished recently.
    Call(Arc<Call>),
    /// A finished call from the store.
    Stored(Box<Found>),
}

impl CallOptions {
    pub(super) fn of(request: &CallRequest) -> Self {
        Self {
            wait_for_approval: request.wait_for_approval,
            cancel_on_disconnect: request.cancel_on_disconnect,
            dialect: matches!(request.request, Some(call_request::Request::Dialect(_))),
        }
    }

    /// Returns the answer to a call that was made before, in the form that the first answer had.
    pub(super) fn stored(self, mut response: CallResponse) -> Result<CallResponse, Refusal> {
        if response.status() == call_response::Status::Denied
            && !self.dialect
            && let Some(failure) = response.error.take()
        {
            return Err(Refusal::from(failure).with("call_id", response.call_id));
        }
        Ok(response)
    }
}

/// Begins the call, or finds it begun.
pub(super) async fn begin(
    calls: &Arc<Calls>,
    principal: &Arc<Principal>,
    mut request: CallRequest,
    mut client: Client,
) -> Result<Lookup, Refusal> {
    let taken = Instant::now();
    // These fields are cleared when the request is compared with others that have its id.
    client.waits_for_approval = request.wait_for_approval;
    client.refuses_awaiting = request.refuse_awaiting_approval;
    // Taken before the check, so that whoever closes can wait for those that were not refused.
    let _entering = calls.life.entering.token();
    if calls.life.closing.is_cancelled() {
        return Err(Refusal::new(
            Reason::DaemonStopping,
            "the daemon is stopping and takes no further calls; try again after its start",
        ));
    }
    calls.records.audit.check()?;
    match enter(calls, principal, &mut request).await {
        Ok(Begun::Stored(found)) => Ok(Lookup::Stored(found)),
        Ok(Begun::Known(call)) => Ok(Lookup::Call(call)),
        Ok(Begun::New(call)) => {
            let (calls, principal) = (calls.clone(), principal.clone());
            let policy = calls.control.gateway.policy();
            let trace = calls.records.traces.begin(client.metadata.trace);
            let task = CallTask {
                calls: calls.clone(),
                principal,
                call: call.clone(),
                taken,
                client,
                trace,
                policy,
            };
            let task =
                watch(calls.clone(), call.clone(), task.run(request)).instrument(log_span(trace.as_ref()));
            let task = DetachOnDrop::new(calls.life.tasks.track_future(task));
            Ok(Lookup::New(call, task))
        }
        Err(refusal) => {
            let began = (taken, client.metadata.trace);
            let away = turned_away(calls.clone(), principal.clone(), request, refusal, began);
            // Writes both records or none, also if the client disconnects.
            let away =
                DetachOnDrop::new(calls.life.tasks.track_future(AssertUnwindSafe(away).catch_unwind()));
            Err(away.await.unwrap_or_else(|_| Refusal::internal("refusing the call", &"it panicked")))
        }
    }
}

/// Returns the span by which lines of the log that are written during the call name its trace. A call whose trace is not sampled has none,
/// because a span takes several microseconds.
pub(super) fn log_span(trace: Option<&CallTrace>) -> Span {
    let context = trace.map(CallTrace::context).filter(|context| context.is_sampled());
    let Some(context) = context else { return Span::none() };
    tracing::info_span!("call", trace_id = context.trace_id(), span_id = context.span_id())
}

async fn enter(calls: &Calls, principal: &Principal, request: &mut CallRequest) -> Result<Begun, Refusal> {
    let run_id = RunId::parse(&request.run_id)?;
    if principal.run.is_some_and(|own| own != run_id) {
        calls.records.escalations.report(principal, Some(run_id), Attempt::OtherRun, &request.run_id);
    }
    calls.workers.runs.check_use(run_id, principal)?;
    let request_id = request.request_id.clone();
    calls.records.table.begin(run_id, &principal.name, &request_id, parse::digest(request)).await
}

/// Runs a call to its end. If it panics, its waiters still get an answer.
pub(super) async fn watch(calls: Arc<Calls>, call: Arc<Call>, task: impl Future<Output = ()> + Send) {
    if AssertUnwindSafe(task).catch_unwind().await.is_err() {
        let refusal = Refusal::internal("making the call", &"it panicked");
        let mut response = call.answer().response;
        response.set_status(call_response::Status::Failed);
        response.error = Some(operations::ToolFailure::from(refusal.clone()).into());
        calls.records.table.finish(&call, response, Some(refusal), Keep::Stored).await;
    }
}

/// Records a call that cannot begin, because it names no run or is one too many.
async fn turned_away(
    calls: Arc<Calls>,
    principal: Arc<Principal>,
    request: CallRequest,
    refusal: Refusal,
    (taken, parent): (Instant, Option<Context>),
) -> Refusal {
    let run_id = request.run_id.clone();
    let named: String = run_id.chars().take(64).collect();
    let mut journal = Journal::new(
        named,
        CallId::new(),
        &principal,
        &parse::parse(request, &Limits::default(), &calls.control.gateway.policy()),
    );
    // If the principal may use the run, the record names the run's agent, which made one call too many.
    if let Ok(run) = RunId::parse(&run_id)
        && calls.workers.runs.check_use(run, &principal).is_ok()
        && let Ok(record) = calls.workers.runs.get(run)
    {
        journal.caller(&super::caller(&principal, run, &record.spec));
    }
    let trace = calls.records.traces.begin(parent);
    journal.traced(trace);
    let (close, mut times) = (CallEnd::Refused(refusal.clone()), Times::begin(taken, trace.as_ref()));
    let recorded = journal.close(&calls.records.audit, &close, &mut times).await;
    calls.records.traces.send(journal.spans(&mut times));
    match recorded {
        Ok(()) => refusal,
        Err(unavailable) => unavailable.into(),
    }
}
