//! `ToolService`.

use std::sync::Arc;

use gateway::Verdict;
use ops::Reason;
use tonic::{Request, Response, Status};
use wire::v1;
use wire::v1::tool_service_server::ToolService;

use super::{Principal, principal};
use crate::app::App;
use crate::ids::{CallId, RunId};
use crate::status::Refusal;

/// `ToolService`.
pub(super) struct Service(pub(super) Arc<App>);

impl Service {
    fn tools(&self, principal: &Principal, request: &v1::ListToolsRequest) -> Result<String, Refusal> {
        let record = self.0.runs.of(RunId::parse(&request.run_id)?, principal)?;
        let name = if request.dialect.is_empty() { "native" } else { &request.dialect };
        let dialect = dialects::find(name).ok_or_else(|| {
            Refusal::new(
                Reason::NotFound,
                format!("dialect: there is no such dialect; there are {}", dialects::names().join(", ")),
            )
        })?;
        let format = match request.format() {
            v1::list_tools_request::Format::Unspecified | v1::list_tools_request::Format::Openai => {
                dialects::Format::OpenAi
            }
            v1::list_tools_request::Format::Anthropic => dialects::Format::Anthropic,
            v1::list_tools_request::Format::Mcp => dialects::Format::Mcp,
        };
        let policy = self.0.gateway.policy();
        let profile = policy.profile(&record.spec.profile);
        let role = policy.role(&record.spec.role);
        // What needs consent is offered, too: the agent may ask for it.
        let permitted = |operation: &str| {
            let verdict = profile.and_then(|profile| profile.operations.get(operation));
            let grant = role.and_then(|role| role.grant(operation, true));
            verdict.is_some_and(|verdict| *verdict != Verdict::Deny) && grant.is_some()
        };
        Ok(dialects::list(dialect, format, &permitted).to_string())
    }
}

#[tonic::async_trait]
impl ToolService for Service {
    async fn list_tools(
        &self,
        request: Request<v1::ListToolsRequest>,
    ) -> Result<Response<v1::ListToolsResponse>, Status> {
        let tools_json = self.tools(&*principal(&request)?, request.get_ref())?;
        Ok(Response::new(v1::ListToolsResponse { tools_json }))
    }

    async fn call(&self, request: Request<v1::CallRequest>) -> Result<Response<v1::CallResponse>, Status> {
        let principal = principal(&request)?;
        let response = crate::call::call(&self.0, &principal, request.into_inner()).await?;
        Ok(Response::new(response))
    }

    type CallStreamStream = tokio_stream::Empty<Result<v1::CallStreamResponse, Status>>;

    async fn call_stream(
        &self,
        _request: Request<v1::CallRequest>,
    ) -> Result<Response<Self::CallStreamStream>, Status> {
        Err(Status::unimplemented("not there yet"))
    }

    async fn get_call(
        &self,
        request: Request<v1::GetCallRequest>,
    ) -> Result<Response<v1::GetCallResponse>, Status> {
        let principal = principal(&request)?;
        let call = self.0.calls.get(CallId::parse(&request.get_ref().call_id)?, &principal).await?;
        Ok(Response::new(v1::GetCallResponse { call: Some(call), ..Default::default() }))
    }

    async fn cancel_call(
        &self,
        request: Request<v1::CancelCallRequest>,
    ) -> Result<Response<v1::CancelCallResponse>, Status> {
        let principal = principal(&request)?;
        let id = CallId::parse(&request.get_ref().call_id)?;
        // One that never was, or is somebody else's, is an error.
        self.0.calls.get(id, &principal).await?;
        let Some(call) = self.0.calls.known(id) else {
            // Only a call that is over can be in the store alone.
            return Ok(Response::new(v1::CancelCallResponse { cancelled: false }));
        };
        let cancelled = !call.answer().finished;
        call.cancel.cancel();
        Ok(Response::new(v1::CancelCallResponse { cancelled }))
    }
}
