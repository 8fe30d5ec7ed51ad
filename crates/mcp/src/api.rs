//! The API as the holder of one run's token sees it.

use api_access::{Api, LARGEST_MESSAGE};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Status, Streaming};
use wire::v1::operation::Kind as Operation;
use wire::v1::tool_service_client::ToolServiceClient;
use wire::v1::{self, CallRequest, CallResponse, CallStreamResponse, list_tools_request};

use crate::token::RunToken;

/// Length of the context of a trace, bytes.
const TRACEPARENT: usize = 55;

/// Sends the token with every request.
#[derive(Clone)]
struct Shows(RunToken);

impl Interceptor for Shows {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.authorization());
        Ok(request)
    }
}

/// The way to follow a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallOptions {
    /// Until it has an outcome or waits for an approval. Dropping the stream before that cancels the call.
    Now,
    /// Until it has an outcome. Dropping the stream before that cancels the call.
    Wait,
    /// Until it has an outcome. Dropping the stream has no effect.
    Watch,
}

/// One run's tools, in one dialect, by its token.
#[derive(Clone)]
pub struct RunClient {
    tools: ToolServiceClient<InterceptedService<Api, Shows>>,
    run: String,
    dialect: String,
    refuses_awaiting: bool,
}

impl RunClient {
    /// Returns a client that makes calls for the holder of `token`.
    pub fn new(api: Api, token: &RunToken, dialect: &str) -> Self {
        let tools = ToolServiceClient::with_interceptor(api, Shows(token.clone()));
        Self {
            tools: tools.max_decoding_message_size(LARGEST_MESSAGE),
            run: token.run().to_owned(),
            dialect: dialect.to_owned(),
            refuses_awaiting: false,
        }
    }

    /// Has calls refused that would wait for the reviewer of another call.
    #[must_use]
    pub fn refusing_awaiting_approval(self, refuses_awaiting: bool) -> Self {
        Self { refuses_awaiting, ..self }
    }

    /// Returns the tools that are offered now, as MCP's `tools/list` has them, and the network in words.
    pub async fn list_tools(&self) -> Result<v1::ListToolsResponse, Status> {
        let request = v1::ListToolsRequest {
            run_id: self.run.clone(),
            dialect: self.dialect.clone(),
            format: list_tools_request::Format::Mcp.into(),
        };
        Ok(self.tools.clone().list_tools(request).await?.into_inner())
    }

    /// Makes the call of a tool, or finds the one that `request_id` was used for before.
    pub(crate) async fn call_tool(
        &self,
        request_id: &str,
        name: &str,
        arguments_json: &str,
        options: CallOptions,
        traceparent: Option<&str>,
    ) -> Result<Streaming<CallStreamResponse>, Status> {
        let call = v1::DialectCall {
            dialect: self.dialect.clone(),
            name: name.to_owned(),
            arguments_json: arguments_json.to_owned(),
        };
        let request = CallRequest {
            request_id: request_id.to_owned(),
            wait_for_approval: options != CallOptions::Now,
            cancel_on_disconnect: options != CallOptions::Watch,
            refuse_awaiting_approval: self.refuses_awaiting,
            ..self.request(call)
        };
        let mut request = Request::new(request);
        // The daemon reads it strictly. A longer one is none.
        let traceparent = traceparent.filter(|traceparent| traceparent.len() == TRACEPARENT);
        if let Some(traceparent) = traceparent.and_then(|traceparent| traceparent.parse().ok()) {
            request.metadata_mut().insert("traceparent", traceparent);
        }
        Ok(self.tools.clone().call_stream(request).await?.into_inner())
    }

    /// Makes one call of an operation, without waiting for consent.
    pub(crate) async fn call(&self, operation: Operation) -> Result<CallResponse, Status> {
        Ok(self.tools.clone().call(self.request(operation)).await?.into_inner())
    }

    /// Cancels a call that waits or runs.
    pub(crate) async fn cancel(&self, call_id: &str) -> Result<(), Status> {
        let request = v1::CancelCallRequest { call_id: call_id.to_owned() };
        self.tools.clone().cancel_call(request).await.map(drop)
    }

    fn request(&self, request: impl Into<v1::call_request::Request>) -> CallRequest {
        CallRequest {
            run_id: self.run.clone(),
            cancel_on_disconnect: true,
            request: Some(request.into()),
            ..Default::default()
        }
    }
}
