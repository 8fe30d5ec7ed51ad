//! Steps a transcript: takes one text of a model, and returns the text to send to it next. `StepTranscript` calls it.
//!
//! ```text
//!  text ─► first block? ──none──► PLAIN_TEXT, untouched
//!              │ yes
//!          take a turn ──none left──► MAX_TURNS
//!              │
//!          the call, as any other of the dialect `forge` ──► TOOL_RESULT or PENDING_APPROVAL
//! ```
//!
//! A turn is counted, durably, before its call is made: a crash in between costs the turn, and never exceeds the count. With a
//! request id, a repetition finds the turn. It finds the call by an id made of session and request, and so gets the same outcome.

use std::sync::Arc;

use dialects::forge::transcript::{self, Block, Step};
use identity::{Principal, RunId, check_client_name};
use operations::Reason;
use refusal::{Refusal, chain};
use runs::Runs;
use sha2::{Digest as _, Sha256};
use store::{MAX_SESSIONS, Store, Taken, Turn};
use wire::v1::step_transcript_response::Status;
use wire::v1::{
    CallRequest, DialectCall, StepTranscriptRequest, StepTranscriptResponse, call_request, call_response,
};

use crate::{Calls, Metadata};

/// Most turns of a session, and their number unless the session sets one.
const MAX_TURNS: u32 = 10;

/// Transcripts of all runs.
pub struct Transcripts {
    pub calls: Arc<Calls>,
    pub runs: Arc<Runs>,
    pub store: Store,
}

impl Transcripts {
    /// Takes one step.
    pub async fn step(
        &self,
        principal: &Arc<Principal>,
        request: StepTranscriptRequest,
        metadata: Metadata,
    ) -> Result<StepTranscriptResponse, Refusal> {
        let run = RunId::parse(&request.run_id)?;
        self.runs.of(run, principal)?;
        check(&request)?;
        let Step::Call(block) = transcript::first(&request.text) else {
            return plain(&self.store, run, &request).await;
        };
        let wanted = Turn {
            run,
            session: request.session_id.clone(),
            max_turns: request.max_turns.min(MAX_TURNS),
            default_turns: MAX_TURNS,
            request_id: Some(request.request_id.clone()).filter(|id| !id.is_empty()),
            digest: Sha256::digest(&request.text).to_vec(),
        };
        let taken = self.store.with(move |store| store.take_turn(&wanted)).await;
        let taken = taken.map_err(|error| Refusal::internal("taking a turn", &chain(&error)))?;
        let answer = StepTranscriptResponse {
            prose: block.before.to_owned(),
            tool: block.tool.chars().take(200).collect(),
            ..Default::default()
        };
        match taken {
            Taken::Turn { turn, of } => {
                let answer = StepTranscriptResponse { turn, max_turns: of, ..answer };
                call(&self.calls, principal, (&request, metadata), &block, answer).await
            }
            Taken::Exhausted { of } => Ok(StepTranscriptResponse {
                status: Status::MaxTurns.into(),
                message: format!(
                    "[forge:tool error] all {of} turns of this session are used, so nothing was run; answer without a tool"
                ),
                turn: of,
                max_turns: of,
                ..answer
            }),
            Taken::OtherText => Err(Refusal::new(
                Reason::AlreadyExists,
                "request_id: this id was used for a different text; a repetition must have the same text",
            )),
            Taken::OtherTurns { of } => Err(Refusal::invalid(
                "max_turns",
                format_args!("the session's first step set it to {of}; leave it out or give the same"),
            )),
            Taken::TooManySessions => Err(Refusal::new(
                Reason::Overloaded,
                format!("the run has {MAX_SESSIONS} sessions, which is the limit: continue one of them"),
            )),
            Taken::NoRun => {
                Err(Refusal::new(Reason::NotFound, "there is no such run").with("resource", "run"))
            }
        }
    }
}

fn check(request: &StepTranscriptRequest) -> Result<(), Refusal> {
    if request.session_id.is_empty() {
        return Err(Refusal::invalid("session_id", "is missing: name the conversation"));
    }
    check_client_name("session_id", &request.session_id)?;
    check_client_name("request_id", &request.request_id)?;
    if request.text.len() > transcript::MAX_TEXT {
        return Err(Refusal::invalid("text", format_args!("is longer than {} bytes", transcript::MAX_TEXT)));
    }
    Ok(())
}

/// Returns the model's final answer: makes no call and counts no turn.
async fn plain(
    store: &Store,
    run: RunId,
    request: &StepTranscriptRequest,
) -> Result<StepTranscriptResponse, Refusal> {
    let session = request.session_id.clone();
    let turns = store.with(move |store| store.turns(run, &session)).await;
    let turns = turns.map_err(|error| Refusal::internal("looking a session up", &chain(&error)))?;
    let asked = if request.max_turns == 0 { MAX_TURNS } else { request.max_turns.min(MAX_TURNS) };
    let (turn, max_turns) = turns.unwrap_or((0, asked));
    Ok(StepTranscriptResponse {
        status: Status::PlainText.into(),
        message: request.text.clone(),
        turn,
        max_turns,
        ..Default::default()
    })
}

/// Makes the block's call. A malformed block is a call, too: it is refused, answered and recorded.
async fn call(
    calls: &Arc<Calls>,
    principal: &Arc<Principal>,
    (request, metadata): (&StepTranscriptRequest, Metadata),
    block: &Block<'_>,
    answer: StepTranscriptResponse,
) -> Result<StepTranscriptResponse, Refusal> {
    let made = CallRequest {
        run_id: request.run_id.clone(),
        request_id: call_id(request),
        task_id: request.task_id.clone(),
        correlation_id: request.correlation_id.clone(),
        wait_for_approval: request.wait_for_approval,
        refuse_awaiting_approval: request.refuse_awaiting_approval,
        request: Some(call_request::Request::Dialect(DialectCall {
            dialect: "forge".to_owned(),
            name: block.tool.to_owned(),
            arguments_json: block.arguments.to_owned(),
        })),
        ..Default::default()
    };
    let response = crate::call::call(calls, principal, made, metadata).await?;
    let waits = response.status() == call_response::Status::PendingApproval;
    let status = if waits { Status::PendingApproval } else { Status::ToolResult };
    Ok(StepTranscriptResponse {
        status: status.into(),
        call_status: response.status().as_str_name().to_owned(),
        message: response.rendered,
        call_id: response.call_id,
        approval_id: response.approval_id,
        ..answer
    })
}

/// Returns the request id of a step's call. Session and request determine it, and no other step has it.
fn call_id(request: &StepTranscriptRequest) -> String {
    if request.request_id.is_empty() {
        return String::new();
    }
    let mut hash = Sha256::new();
    for part in [&request.session_id, &request.request_id] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    format!("transcript:{}", hex::encode(hash.finalize()))
}
