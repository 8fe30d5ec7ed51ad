//! Handles one `tools/call`.
//!
//! ```text
//!  make ─► result ───────────────────────────────────────────────► answer
//!    └───► pending ─ client cannot ask ──────────────────────────► answer: it waits
//!             └──── ask the person ─ leave ──────────────────────► answer: it waits
//!                        ├─ wait, approve, deny ─► make, and wait ─► answer
//!                        └─ cancel ─► CancelCall ─► make, and wait ─► answer
//! ```
//!
//! "Make" is the same request each time, by the same request id: the API makes the call once, and finds it afterwards.
//!
//! A client that cancels or disconnects drops this future, which cancels the call: the command's whole process tree ends. A call
//! goes on after the client has been answered that it waits for a reviewer, as with every other client.

use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelledNotificationParam, ClientResult, ElicitRequest,
    ElicitResult, ProtocolVersion, ServerRequest,
};
use rmcp::service::{PeerRequestOptions, RequestContext};
use rmcp::{ErrorData, RoleServer};
use tokio::time::{Instant, sleep_until};
use tonic::{Status, Streaming};
use uuid::Uuid;
use wire::v1::call_stream_response::Event;
use wire::v1::{CallResponse, CallStreamResponse, call_output, call_response};

use crate::answer::{answer, refused};
use crate::api::{CallOptions, RunClient};
use crate::approver::Approver;
use crate::elicit::{Choice, KEY, Question, can_ask};
use crate::log::{Level, Wanted};
use crate::progress::Progress;
use crate::tools::{Shape, Tools};
use crate::waiting::{Key, Waiting, Waits};

/// Time between notifications of an idle call, for clients that give up on silence.
const STILL_HERE: Duration = Duration::from_secs(15);

/// Makes the call. Dropping the future cancels the call.
pub(crate) async fn call(
    session: Session<'_>,
    params: CallToolRequestParams,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let cancelled = context.ct.clone();
    let story = Story::new(session, params, context)?;
    tokio::select! {
        biased;
        // The client does not read this answer: MCP has none for a request that was cancelled.
        () = cancelled.cancelled() => Err(ErrorData::internal_error("the call was cancelled", None)),
        told = story.tell() => told,
    }
}

/// The state that a client's calls share.
pub(crate) struct Session<'a> {
    pub(crate) client: &'a RunClient,
    pub(crate) tools: &'a Tools,
    pub(crate) waiting: &'a Waiting,
    pub(crate) approver: Option<&'a Approver>,
    pub(crate) wanted: &'a Wanted,
}

struct Story<'a> {
    session: Session<'a>,
    context: RequestContext<RoleServer>,
    tool: String,
    arguments_json: String,
    key: Key,
    /// The record of an earlier request for the call, which waited then.
    known: Option<Waits>,
    request_id: String,
    /// The person's answer, if the client calls again with one.
    said: Option<ElicitResult>,
}

impl<'a> Story<'a> {
    fn new(
        session: Session<'a>,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<Self, ErrorData> {
        let tool = params.name.into_owned();
        let arguments_json = serde_json::to_string(&params.arguments.unwrap_or_default())
            .map_err(|_| ErrorData::invalid_params("arguments: cannot be encoded as JSON", None))?;
        let key = Key::of(&tool, &arguments_json);
        let known = session.waiting.get(key);
        // The client controls the state that it returns: it must name this call's approval, and can name nothing else.
        if let Some(state) = &params.request_state
            && known.as_ref().is_none_or(|waits| waits.approval_id != *state)
        {
            let message = "requestState: does not belong to a waiting call of this tool with these arguments";
            return Err(ErrorData::invalid_params(message, None));
        }
        let said = params.request_state.and(params.input_responses).and_then(|mut said| said.remove(KEY));
        let said = said.map(serde_json::from_value).transpose().map_err(|_| {
            ErrorData::invalid_params(
                format!("inputResponses.{KEY}: is not the result of an elicitation"),
                None,
            )
        })?;
        let request_id =
            known.as_ref().map_or_else(|| Uuid::new_v4().to_string(), |known| known.request_id.clone());
        Ok(Self { session, context, tool, arguments_json, key, known, request_id, said })
    }

    async fn tell(self) -> Result<CallToolResponse, ErrorData> {
        match self.made().await {
            Ok(told) => told,
            Err(status) => refused(&status).map(CallToolResponse::from),
        }
    }

    /// Makes the call. The outer error is the API's, the inner one the client's.
    async fn made(&self) -> Result<Result<CallToolResponse, ErrorData>, Status> {
        let mut progress = Progress::of(&self.context);
        let response = self.follow(self.make(CallOptions::Now).await?, &mut progress).await?;
        if response.status() != call_response::Status::PendingApproval {
            return Ok(self.over(&response).await);
        }
        let waits = Waits { request_id: self.request_id.clone(), approval_id: response.approval_id.clone() };
        self.session.waiting.remember(self.key, waits);
        progress.note(&format!("waits for approval {}", response.approval_id)).await;
        let waits = format!("{} waits for approval {}", self.tool, response.approval_id);
        self.session.wanted.say(&self.context, Level::Notice, &waits).await;

        let choice = match self.ask(&response, &mut progress).await? {
            Asked::Choice(choice) => choice,
            Asked::Settled(settled) => return Ok(self.over(&settled).await),
            Asked::Answer(answer) => return Ok(answer),
        };
        let mut note = None;
        match choice {
            Choice::Wait => {}
            Choice::Leave => return Ok(self.pending(&response, None).await),
            Choice::Cancel => self.session.client.cancel(&response.call_id).await?,
            Choice::Decide { approve, comment } => {
                note = self.decide(&response.approval_id, approve, &comment).await;
            }
        }
        if note.is_some() {
            return Ok(self.pending(&response, note).await);
        }
        let response = self.follow(self.make(CallOptions::Wait).await?, &mut progress).await?;
        Ok(self.over(&response).await)
    }

    /// Makes the same request each time.
    async fn make(&self, options: CallOptions) -> Result<Streaming<CallStreamResponse>, Status> {
        let (client, trace) = (self.session.client, self.context.meta.get_traceparent());
        client.call_tool(&self.request_id, &self.tool, &self.arguments_json, options, trace).await
    }

    /// Waits until the API has an answer. Meanwhile sends the command's output to the client.
    async fn follow(
        &self,
        mut events: Streaming<CallStreamResponse>,
        progress: &mut Progress,
    ) -> Result<CallResponse, Status> {
        let mut silent = Instant::now() + STILL_HERE;
        loop {
            let due = progress.due();
            tokio::select! {
                biased;
                () = sleep_until(due.unwrap_or(silent)), if due.is_some() => {
                    progress.tell().await;
                    silent = Instant::now() + STILL_HERE;
                }
                next = events.message() => match next?.and_then(|response| response.event) {
                    Some(Event::Output(output)) => {
                        let stream = usize::from(output.stream() == call_output::Stream::Stderr);
                        progress.take(stream, &output.data);
                    }
                    Some(Event::Result(response)) => {
                        progress.tell().await;
                        return Ok(response);
                    }
                    Some(_) => {}
                    None => return Err(Status::unavailable("the daemon ended the stream without a result")),
                },
                () = sleep_until(silent) => {
                    progress.note("still under way").await;
                    silent = Instant::now() + STILL_HERE;
                }
            }
        }
    }

    /// Returns the person's choice, if there is one who can be asked.
    async fn ask(&self, response: &CallResponse, progress: &mut Progress) -> Result<Asked, Status> {
        let capabilities = self.context.client_capabilities();
        if !can_ask(capabilities.as_ref()) {
            return Ok(Asked::Choice(Choice::Leave));
        }
        let question = self.question(&response.approval_id).await;
        if let Some(said) = &self.said {
            return Ok(Asked::Choice(question.choice(said)));
        }
        let version = self.context.protocol_version();
        if version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str()) {
            let required = question.required(&response.approval_id).map(CallToolResponse::from);
            return Ok(Asked::Answer(required));
        }
        self.elicit(&question, response, progress).await
    }

    async fn question(&self, approval_id: &str) -> Question {
        if let Some(approver) = self.session.approver
            && let Ok(approval) = approver.show(approval_id).await
        {
            return Question::whether_to_approve(&approval);
        }
        Question::whether_to_wait(&self.tool, &self.arguments_json, approval_id)
    }

    /// Asks by a separate request (before MCP 2026-07-28), until there is an answer or the question is settled.
    async fn elicit(
        &self,
        question: &Question,
        response: &CallResponse,
        progress: &mut Progress,
    ) -> Result<Asked, Status> {
        let peer = &self.context.peer;
        let params = match question.params() {
            Ok(params) => params,
            Err(error) => return Ok(Asked::Answer(Err(error))),
        };
        let request = ServerRequest::ElicitRequest(ElicitRequest::new(params));
        let Ok(asked) = peer.send_request_with_option(request, PeerRequestOptions::no_options()).await else {
            return Ok(Asked::Choice(Choice::Leave));
        };
        let id = asked.id.clone();
        // A reviewer may be faster. Until the person has chosen, only the client's disconnect cancels the call.
        let leaves = Leaves::new(self.session.client, &response.call_id);
        let settled = async { self.follow(self.make(CallOptions::Watch).await?, progress).await };
        let asked = tokio::select! {
            said = asked.await_response() => match said {
                Ok(ClientResult::ElicitResult(said)) => Asked::Choice(question.choice(&said)),
                _ => Asked::Choice(Choice::Leave),
            },
            settled = settled => {
                let reason = Some("a reviewer has decided".to_owned());
                let _ = peer.notify_cancelled(CancelledNotificationParam::new(Some(id), reason)).await;
                Asked::Settled(Box::new(settled?))
            }
        };
        leaves.stay();
        Ok(asked)
    }

    /// Decides with the identity of the user that started the bridge. Returns a note for the model if the daemon refuses.
    async fn decide(&self, approval_id: &str, approve: bool, comment: &str) -> Option<String> {
        let approver = self.session.approver?;
        let refused = approver.decide(approval_id, approve, comment).await.err()?;
        tracing::debug!(%refused, "the decision was not accepted");
        Some(format!("The decision was not accepted: {}", refused.message()))
    }

    /// Returns the answer to a call that has an outcome.
    async fn over(&self, response: &CallResponse) -> Result<CallToolResponse, ErrorData> {
        self.session.waiting.forget(self.key);
        let note = self.known.as_ref().filter(|_| self.said.is_none()).map(|known| {
            format!(
                "This is the outcome of the call that waited for approval {}; it was not made again.",
                known.approval_id
            )
        });
        let reason = response.error.as_ref().map_or("", |error| error.reason.as_str());
        match self.session.tools.shape(&self.tool).await {
            // After the API has refused and recorded it.
            Shape::Unknown if matches!(reason, "NOT_FOUND" | "INVALID_ARGUMENT") => {
                Err(ErrorData::invalid_params(format!("Unknown tool: {}", response.rendered), None))
            }
            shape => Ok(answer(response, shape == Shape::Structured, note).into()),
        }
    }

    /// Returns the answer to a client that does not wait for the approval.
    async fn pending(
        &self,
        response: &CallResponse,
        note: Option<String>,
    ) -> Result<CallToolResponse, ErrorData> {
        let how = format!(
            "PENDING_APPROVAL: a reviewer has been asked (approval {}). When it is approved the call is made once, by itself. \
             To learn its outcome, call {} again with the same arguments: that does not make it a second time.",
            response.approval_id, self.tool
        );
        let note = note.map_or_else(|| how.clone(), |note| format!("{note}\n{how}"));
        let structured = self.session.tools.shape(&self.tool).await == Shape::Structured;
        Ok(answer(response, structured, Some(note)).into())
    }
}

enum Asked {
    Choice(Choice),
    /// The call had an outcome before the person's answer.
    Settled(Box<CallResponse>),
    /// The client gets this answer first.
    Answer(Result<CallToolResponse, ErrorData>),
}

/// Cancels the call if the client disconnects while its person is being asked.
struct Leaves<'a> {
    client: &'a RunClient,
    call_id: Option<String>,
}

impl<'a> Leaves<'a> {
    fn new(client: &'a RunClient, call_id: &str) -> Self {
        Self { client, call_id: Some(call_id.to_owned()) }
    }

    fn stay(mut self) {
        self.call_id = None;
    }
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        let (Some(call_id), Ok(runtime)) = (self.call_id.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let client = self.client.clone();
        runtime.spawn(async move { client.cancel(&call_id).await });
    }
}
