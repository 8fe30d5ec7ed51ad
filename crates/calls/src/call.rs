//! Makes a call, from the request to the answer: admit, record, execute, close.
//!
//! ```text
//!  request ─► parse ─► admit ──refuse───────────────────────────────► receipt ─► answer
//!                         │ │                                           ▲
//!                         │ └─ask─► intent ─► approval ─deny, expire────┤
//!                         │                      │ approve              │
//!                         └─permit─► intent ─────┴──► execute ──────────┘
//!           an earlier daemon's intent ─► resume ┘
//! ```
//!
//! Invariants:
//! - Each call has one intent and one receipt, also a call that is refused or that panics.
//! - The intent of a call with an effect is durable before the effect. The host lane prepares the effect meanwhile.
//! - The receipt is durable before the answer is sent.
//! - The executor runs no operation without a permit.
//! - A client that disconnects leaves nothing half done: its call goes on in a task.

mod access;
mod admit;
mod asked;
mod begin;
mod beside;
mod checkpoint;
mod close;
mod consent;
mod end;
mod execute;
mod facts;
mod input;
mod lost;
mod parse;
mod record;
mod respond;
mod resume;
mod review;
mod slot;
mod so_far;
mod standstill;
mod stream;
mod surroundings;
mod to_spool;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use dialects::Limits;
use futures_util::FutureExt as _;
use gateway::Permit;
use identity::{Principal, RunId};
use operations::Operation;
use policy::{Caller, Policy};
use refusal::Refusal;
use runs::Run;
use runs::record::Spec;
use tokio_util::sync::DropGuard;
use traces::{CallTrace, Context};
use wire::v1::{CallRequest, CallResponse};
use worker_protocol::client::OutputSink;

use crate::Calls;
use crate::table::{Answer, Call};

#[cfg(test)]
pub(crate) use input::of as recorded_input;
pub use parse::limits;
pub use resume::resume;
pub use stream::{Events, stream};

use begin::{CallOptions, Lookup};
use end::CallEnd;
use parse::Parsed;
use record::{Journal, Times};
use slot::Slot;
use standstill::Standstill;

/// Facts that a client sends beside its request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Metadata {
    /// The moment at which the client stops waiting for its answer.
    pub deadline: Option<Instant>,
    /// The span of the client that the call is a child of.
    pub trace: Option<Context>,
}

/// Makes a call, or finds the one that the same request began, and waits for its answer.
pub async fn call(
    calls: &Arc<Calls>,
    principal: &Arc<Principal>,
    request: CallRequest,
    metadata: Metadata,
) -> Result<CallResponse, Refusal> {
    make(calls, principal, request, Client { metadata, ..Client::default() }).await
}

/// Makes a call as [`call`] does, for a download: the bytes that are read go to `output`.
pub async fn download(
    calls: &Arc<Calls>,
    principal: &Arc<Principal>,
    request: CallRequest,
    output: Arc<dyn OutputSink>,
    metadata: Metadata,
) -> Result<CallResponse, Refusal> {
    make(calls, principal, request, Client { download: Some(output), metadata, ..Client::default() }).await
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
    parse::parse(request, limits, policy).operation
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
    metadata: Metadata,
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
    trace: Option<CallTrace>,
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

impl CallTask {
    async fn run(self, request: CallRequest) {
        let access = access::of(&request);
        let mut parsed = parse::parse(request, &self.limits(), &self.policy);
        if let Some(access) = &access {
            parsed.asked.operation = Some(access.name());
        }
        let form = parsed.form.clone();
        let mut journal = Journal::new(self.call.run.to_string(), self.call.id, &self.principal, &parsed);
        journal.request(self.call.request_id.clone());
        journal.traced(self.trace);
        let mut times = Times::begin(self.taken, self.trace.as_ref());

        let made = async {
            match access {
                Some(access) => self.access(access, &parsed.agent_id, &mut journal, &mut times).await,
                None => self.make(parsed, &mut journal, &mut times).await,
            }
        };
        let made = AssertUnwindSafe(made).catch_unwind().await;
        self.close(made.ok(), &form, journal, times).await;
    }

    /// Returns the limits of the run's profile. A run that is gone has the defaults, because it gets no further call.
    fn limits(&self) -> Limits {
        let run = self.calls.workers.runs.living_run(self.call.run);
        let profile = run.ok().and_then(|run| self.policy.profile(&run.spec().profile).map(limits));
        profile.unwrap_or_default()
    }

    async fn make(&self, parsed: Parsed, journal: &mut Journal, times: &mut Times) -> CallEnd {
        let form = parsed.form.clone();
        match self.admit(parsed, journal, times).await {
            Ok(admitted) => self.execute(admitted, &form, journal, times).await,
            Err(refusal) => CallEnd::Refused(refusal),
        }
    }

    fn caller(&self, spec: &Spec) -> Caller {
        caller(&self.principal, self.call.run, spec)
    }
}
