//! Serves `ToolService`.

use std::sync::Arc;

use calls::{Approvals, CallTable, Calls, Found, Transcripts, Upstreams};
use egress_rules::{Narrowed, Rules};
use gateway::Gateway;
use identity::{CallId, Principal, RunId};
use operations::Reason;
use operations::transport::MESSAGE;
use prost::Message as _;
use refusal::{Refusal, chain};
use runs::Runs;
use store::spool::{Piece, Spool, Stream};
use tonic::{Request, Response, Status};
use wire::v1;
use wire::v1::tool_service_server::ToolService;

use super::egress::network;
use super::metadata::{metadata, traced};
use super::offered::Offered;
use super::portion::{answer, piece};
use super::{principal, upstreams};

/// Maximum size of a call together with the pieces of its output, bytes.
const PIECES: usize = MESSAGE - 16 * 1024;
/// Minimum size of a piece, bytes. The response of a call leaves space for one of each stream.
const LEAST_PIECE: usize = 64 * 1024;

#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) calls: Arc<Calls>,
    pub(crate) transcripts: Arc<Transcripts>,
    pub(crate) table: Arc<CallTable>,
    pub(crate) approvals: Arc<Approvals>,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) runs: Arc<Runs>,
    pub(crate) spool: Arc<Spool>,
    pub(crate) upstreams: Arc<Upstreams>,
}

impl Service {
    async fn tools(
        &self,
        principal: &Principal,
        request: &v1::ListToolsRequest,
    ) -> Result<v1::ListToolsResponse, Refusal> {
        let run = RunId::parse(&request.run_id)?;
        let record = self.runs.of(run, principal)?;
        let name = if request.dialect.is_empty() { "native" } else { &request.dialect };
        let dialect = dialects::find(name).ok_or_else(|| {
            Refusal::new(
                Reason::NotFound,
                format!(
                    "dialect: there is no such dialect; the dialects are {}",
                    dialects::names().join(", ")
                ),
            )
        })?;
        let format = match request.format() {
            v1::list_tools_request::Format::Unspecified | v1::list_tools_request::Format::Openai => {
                dialects::Format::OpenAi
            }
            v1::list_tools_request::Format::Anthropic => dialects::Format::Anthropic,
            v1::list_tools_request::Format::Mcp => dialects::Format::Mcp,
        };
        // Tools that need consent are offered too, because the agent may ask for it.
        let offered = Offered::of(&self.gateway, &record.spec);
        let network = self.runs.living_run(run).ok().and_then(|run| network(&run));
        let (mut tools, prompt) = {
            let permitted = |operation: &str| offered.permits(operation);
            let consent = |operation: &str| offered.consent(operation);
            let (denied, limits) = (offered.denied(), offered.limits());
            let policy = dialects::Policy {
                permitted: &permitted,
                consent: &consent,
                denied: &denied,
                network: network.as_deref(),
            };
            let offer = dialects::Offer { dialect, policy, limits };
            (offer.list(format), offer.prompt().unwrap_or_default())
        };
        let upstream = upstreams::offer(&self.runs, &self.upstreams, run, &offered).await;
        if let Some(tools) = tools.as_array_mut() {
            let taken = |name: &str| dialect.tool(name).is_ok();
            tools.extend(upstream.entries(format, taken));
        }
        Ok(v1::ListToolsResponse {
            tools_json: tools.to_string(),
            prompt,
            mcp_servers: upstream.servers,
            network: network.unwrap_or_else(|| Narrowed::new(Rules::none()).words()),
        })
    }

    /// Returns a call that `principal` may use.
    async fn found(&self, id: CallId, principal: &Principal) -> Result<Found, Refusal> {
        let found = self.table.get(id, principal).await?;
        if principal.scope.is_some() {
            self.runs.check_use(found.run, principal)?;
        }
        Ok(found)
    }

    /// Returns the stored output of a stream from `offset` on; `None` if the client did not ask for it.
    async fn output(
        &self,
        call: &Found,
        stream: Stream,
        offset: Option<u64>,
        most: usize,
    ) -> Result<Option<v1::OutputChunk>, Refusal> {
        let Some(offset) = offset else { return Ok(None) };
        let piece = self.spool.read(call.run, call.id, stream, offset, most).await;
        let Piece { data, kept } =
            piece.map_err(|error| Refusal::internal("reading the output", &chain(&error)))?;
        Ok(Some(v1::OutputChunk { offset, data, kept_bytes: kept, complete: call.finished }))
    }
}

#[tonic::async_trait]
impl ToolService for Service {
    async fn list_tools(
        &self,
        request: Request<v1::ListToolsRequest>,
    ) -> Result<Response<v1::ListToolsResponse>, Status> {
        let principal = principal(&request)?;
        answer(self.tools(&principal, request.get_ref()).await?)
    }

    async fn call(&self, request: Request<v1::CallRequest>) -> Result<Response<v1::CallResponse>, Status> {
        let principal = principal(&request)?;
        let metadata = metadata(request.metadata());
        let response = calls::call(&self.calls, &principal, request.into_inner(), metadata).await?;
        Ok(Response::new(response))
    }

    async fn step_transcript(
        &self,
        request: Request<v1::StepTranscriptRequest>,
    ) -> Result<Response<v1::StepTranscriptResponse>, Status> {
        let principal = principal(&request)?;
        let metadata = traced(request.metadata());
        answer(self.transcripts.step(&principal, request.into_inner(), metadata).await?)
    }

    type CallStreamStream = calls::Events;

    async fn call_stream(
        &self,
        request: Request<v1::CallRequest>,
    ) -> Result<Response<Self::CallStreamStream>, Status> {
        let principal = principal(&request)?;
        let metadata = metadata(request.metadata());
        let events = calls::stream(&self.calls, &principal, request.into_inner(), metadata).await?;
        Ok(Response::new(events))
    }

    async fn get_call(
        &self,
        request: Request<v1::GetCallRequest>,
    ) -> Result<Response<v1::GetCallResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let id = CallId::parse(&request.call_id)?;
        let most = piece("max_output_bytes", request.max_output_bytes)?;
        // The call is read first: if it has finished, its output is complete.
        let found = self.found(id, &principal).await?;
        let asked = [request.stdout_offset, request.stderr_offset].into_iter().flatten().count();
        let share = PIECES.saturating_sub(found.response.encoded_len()) / asked.max(1);
        let most = most.min(share.max(LEAST_PIECE));
        let stdout = self.output(&found, Stream::Stdout, request.stdout_offset, most).await?;
        let stderr = self.output(&found, Stream::Stderr, request.stderr_offset, most).await?;
        answer(v1::GetCallResponse { call: Some(found.response), stdout, stderr })
    }

    async fn cancel_call(
        &self,
        request: Request<v1::CancelCallRequest>,
    ) -> Result<Response<v1::CancelCallResponse>, Status> {
        let principal = principal(&request)?;
        let id = CallId::parse(&request.get_ref().call_id)?;
        // A call that does not exist, or that belongs to another principal, is an error.
        self.found(id, &principal).await?;
        let Some(call) = self.table.known(id) else {
            // Only a finished call can be in the store and not in the table.
            return Ok(Response::new(v1::CancelCallResponse { cancelled: false }));
        };
        let cancelled = !call.answer().finished;
        call.cancel.cancel();
        // Before the answer, because the next daemon must not go on with the call if this one dies now.
        self.approvals.cancel(&call.id.to_string()).await;
        Ok(Response::new(v1::CancelCallResponse { cancelled }))
    }
}
