//! How a call begins, whichever way its client wants to hear of it: it is found, or made.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use dialects::Limits;
use futures_util::FutureExt as _;
use identity::{CallId, Principal, RunId};
use ops::Reason;
use refusal::Refusal;
use wire::v1::{CallRequest, CallResponse, call_request, call_response};
use worker_protocol::detach_on_drop::DetachOnDrop;

use super::record::{Journal, Times};
use super::{CallTask, Client, Close, decode};
use crate::Calls;
use crate::escalation::Attempt;
use crate::table::{Begun, Call, Found, Keep};

/// How a client waits for its call, and takes the answer. None of it makes another call of a repeated request.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallOptions {
    /// Until a needed approval is decided on.
    pub(super) wait_for_approval: bool,
    /// The call is not worth going on with when the client goes away.
    pub(super) cancel_on_disconnect: bool,
    /// Refusals are an answer, not a status.
    dialect: bool,
}

/// A call that a request began, or that it began before.
pub(super) enum Lookup {
    /// It begins: its task, which comes to its end even if nobody waits for it.
    New(Arc<Call>, DetachOnDrop<()>),
    /// It is under way, or has finished lately.
    Call(Arc<Call>),
    /// It has finished.
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

    /// The answer to a call that was made before: in the form that the first one had.
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
    // The request is without these once it is compared with others of its id.
    client.waits_for_approval = request.wait_for_approval;
    client.refuses_awaiting = request.refuse_awaiting_approval;
    if calls.stop.is_cancelled() {
        return Err(Refusal::new(Reason::Overloaded, "the daemon is stopping and takes no more calls"));
    }
    calls.audit.check()?;
    match enter(calls, principal, &mut request).await {
        Ok(Begun::Stored(found)) => Ok(Lookup::Stored(found)),
        Ok(Begun::Known(call)) => Ok(Lookup::Call(call)),
        Ok(Begun::New(call)) => {
            let (calls, principal) = (calls.clone(), principal.clone());
            let task = CallTask { calls: calls.clone(), principal, call: call.clone(), taken, client };
            let task = watch(calls.clone(), call.clone(), task.run(request));
            let task = DetachOnDrop::new(calls.tasks.track_future(task));
            Ok(Lookup::New(call, task))
        }
        Err(refusal) => {
            let away = turned_away(calls.clone(), principal.clone(), request, refusal, taken);
            // Both records or none, whether or not the client stays.
            let away = DetachOnDrop::new(calls.tasks.track_future(AssertUnwindSafe(away).catch_unwind()));
            Err(away.await.unwrap_or_else(|_| Refusal::internal("refusing the call", &"it panicked")))
        }
    }
}

async fn enter(calls: &Calls, principal: &Principal, request: &mut CallRequest) -> Result<Begun, Refusal> {
    let run_id = RunId::parse(&request.run_id)?;
    if principal.run.is_some_and(|own| own != run_id) {
        calls.escalations.report(principal, Some(run_id), Attempt::OtherRun, &request.run_id);
    }
    calls.runs.check_use(run_id, principal)?;
    let request_id = request.request_id.clone();
    calls.table.begin(run_id, &principal.name, &request_id, decode::digest(request)).await
}

/// Sees a call to its end. Should it break, whoever waits for it is told all the same.
pub(super) async fn watch(calls: Arc<Calls>, call: Arc<Call>, task: impl Future<Output = ()> + Send) {
    if AssertUnwindSafe(task).catch_unwind().await.is_err() {
        let refusal = Refusal::internal("making the call", &"it panicked");
        let mut response = call.answer().response;
        response.set_status(call_response::Status::Failed);
        response.error = Some(ops::ToolFailure::from(refusal.clone()).into());
        calls.table.finish(&call, response, Some(refusal), Keep::Stored).await;
    }
}

/// A call that cannot even begin, for it names no run or is one too many, is on record as well.
async fn turned_away(
    calls: Arc<Calls>,
    principal: Arc<Principal>,
    request: CallRequest,
    refusal: Refusal,
    taken: Instant,
) -> Refusal {
    let run_id = request.run_id.clone();
    let named: String = run_id.chars().take(64).collect();
    let mut journal = Journal::new(
        named,
        CallId::new(),
        &principal,
        &decode::decode(request, &Limits::default(), &calls.gateway.policy()),
    );
    // Whose run it is, where they may use it: one call too many is that agent's.
    if let Ok(run) = RunId::parse(&run_id)
        && calls.runs.check_use(run, &principal).is_ok()
        && let Ok(record) = calls.runs.get(run)
    {
        journal.caller(&super::caller(&principal, run, &record.spec));
    }
    let close = Close::Refused(refusal.clone());
    match journal.close(&calls.audit, &close, &mut Times::begin(taken)).await {
        Ok(()) => refusal,
        Err(unavailable) => unavailable.into(),
    }
}
