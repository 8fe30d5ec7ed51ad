//! Serves MCP's methods to a client, and passes each on to the API.

use std::sync::Arc;

use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, DiscoverResult, Implementation,
    InitializeRequestParams, InitializeResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ServerCapabilities, ServerConfig, SubscriptionFilter,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::api::RunClient;
use crate::approver::Approver;
use crate::log::{SetLevelRequestParams, Wanted};
use crate::tools::Tools;
use crate::waiting::Waiting;
use crate::{call, changes, resources};

/// Text for models, at the beginning of a session.
const INSTRUCTIONS: &str = "Tools of a Cofferdam run: they work on one workspace, in a container. Each call is judged by a \
policy and recorded. A call that is refused says why; do not try to get around it. PENDING_APPROVAL means that a reviewer has \
been asked and nothing has been done yet: go on with something else, and make the same call again later to learn its outcome. \
Files of the workspace can be read as resources, too: workspace:///PATH.";

/// Serves one run's tools to one client.
pub struct Bridge {
    client: RunClient,
    tools: Arc<Tools>,
    waiting: Arc<Waiting>,
    approver: Option<Approver>,
    wanted: Arc<Wanted>,
    ended: CancellationToken,
    _ends: DropGuard,
}

impl Bridge {
    /// Returns the bridge for the first client of a run.
    pub fn new(client: RunClient) -> Self {
        let tools = Arc::new(Tools::new(client.clone()));
        Self::of(client, tools, Arc::default(), None)
    }

    /// Adds the hosts that the run can reach to the text for models.
    async fn instructions(&self) -> String {
        match self.tools.network().await {
            Some(network) => format!("{INSTRUCTIONS} Network of commands: {network}"),
            None => {
                format!("{INSTRUCTIONS} The descriptions of the tools say which hosts commands can reach.")
            }
        }
    }

    fn of(client: RunClient, tools: Arc<Tools>, waiting: Arc<Waiting>, approver: Option<Approver>) -> Self {
        let ended = CancellationToken::new();
        let ends = ended.clone().drop_guard();
        Self { client, tools, waiting, approver, wanted: Arc::default(), ended, _ends: ends }
    }

    /// Lets the answers to elicitations decide on approvals, with the identity of `approver`.
    #[must_use]
    pub fn with_approver(self, approver: Approver) -> Self {
        Self::of(self.client, self.tools, self.waiting, Some(approver))
    }

    /// Returns the bridge for another client of the same run. Both know the waiting calls.
    #[must_use]
    pub fn for_another(&self) -> Self {
        Self::of(self.client.clone(), self.tools.clone(), self.waiting.clone(), self.approver.clone())
    }
}

impl ServerHandler for Bridge {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_logging()
            .enable_resources()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("cofferdam", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let answer = self.negotiate_initialize(&request)?;
        context.peer.set_peer_info(request);
        Ok(answer.with_instructions(self.instructions().await))
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let versions = self.supported_protocol_versions().into_owned();
        let info = self.get_info().with_instructions(self.instructions().await);
        Ok(DiscoverResult::from_server_info(versions, info))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.tools.list().await?;
        // The list is private to this run, and valid until the policy changes.
        Ok(ListToolsResult::with_all_items(tools).with_ttl_ms(0).with_cache_scope(CacheScope::Private))
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Self { client, tools, waiting, approver, wanted, .. } = self;
        let session = call::Session { client, tools, waiting, approver: approver.as_ref(), wanted };
        call::call(session, params, context).await
    }

    async fn list_resources(
        &self,
        params: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        resources::list(&self.client, params.and_then(|params| params.cursor)).await
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(resources::templates())
    }

    async fn read_resource(
        &self,
        params: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        tokio::select! {
            biased;
            () = context.ct.cancelled() => Err(ErrorData::internal_error("the read was cancelled", None)),
            read = resources::read(&self.client, &params.uri) => read.map(ReadResourceResponse::from),
        }
    }

    async fn set_level(
        &self,
        params: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.wanted.set(params.level);
        Ok(())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let (tools, wanted, ended) = (self.tools.clone(), self.wanted.clone(), self.ended.clone());
        tokio::spawn(ended.run_until_cancelled_owned(changes::tell(tools, wanted, context.peer)));
    }

    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        changes::listen(self.tools.clone(), subscription).await
    }
}
