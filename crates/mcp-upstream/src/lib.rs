#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![forbid(unsafe_code)]

mod events;
mod fault;
mod host;
mod http;
mod lines;
mod link;
mod link_state;
mod message;
mod result;
mod schema;
mod server;
mod stdio;
mod text;
mod tools;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use operations::{Mcp, McpTool, Outcome, Reason, ToolFailure};
use parking_lot::Mutex;
use policy::McpServer;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use fault::{Fault, is_gone};
pub use host::{Host, Output, Pipes, Subject};
pub use tools::Tool;

use server::Server;
use tools::Tools;

/// Servers of one run, by name. Dropping them ends them.
#[derive(Default)]
pub struct Servers(Mutex<HashMap<String, Arc<Server>>>);

pub struct Offer {
    /// Tools that the agent may see.
    pub tools: Vec<Arc<Tool>>,
    /// Tools that are not offered, with the reason, one line each.
    pub withheld: Vec<String>,
}

impl Servers {
    /// Makes a permitted call to the server with this definition, within the shorter of `limit` and the server's own timeout.
    ///
    /// Returns the outcome, and the number of bytes of the server's answer.
    pub async fn call(
        &self,
        host: &dyn Host,
        definition: &McpServer,
        mcp: &Mcp,
        limit: Option<Duration>,
        cancel: &CancellationToken,
    ) -> (Outcome, u64) {
        let own = Duration::from_secs(definition.call_timeout_s);
        let until = Instant::now() + limit.map_or(own, |limit| limit.min(own));
        let (tool, answer) = match self.ask(host, definition, mcp, until, cancel).await {
            Ok(answered) => answered,
            Err(failure) => return (Err(failure), 0),
        };
        tokio::task::block_in_place(|| {
            let text = answer.to_string();
            (result::outcome(&tool, &answer, &text, definition.max_result_bytes), text.len() as u64)
        })
    }

    async fn ask(
        &self,
        host: &dyn Host,
        definition: &McpServer,
        mcp: &Mcp,
        until: Instant,
        cancel: &CancellationToken,
    ) -> Result<(Arc<Tool>, Value), ToolFailure> {
        let name = mcp.tool.server();
        let session = self.server(name).session(host, definition, until, cancel).await;
        let session = session.map_err(|fault| fault.failure(name, false))?;
        let tool = known(&session.tools, &mcp.tool)?;
        let arguments = Value::Object(mcp.arguments.clone());
        // A hostile schema makes the check slow, though bounded: other tasks must not wait for it.
        tokio::task::block_in_place(|| tool.input.check(&arguments)).map_err(|why| {
            let message = format!("arguments: do not fit the tool's schema: {why}");
            ToolFailure::new(Reason::InvalidArgument, message)
        })?;
        let answer = session.link.call(mcp.tool.tool(), arguments, until, cancel).await;
        let answer = answer.map_err(|fault| fault.failure(name, true))?;
        Ok((tool, answer))
    }

    /// Lists the tools of a server, and starts or reaches it if needed.
    pub async fn offer(&self, host: &dyn Host, name: &str, definition: &McpServer) -> Result<Offer, String> {
        let until = Instant::now() + Duration::from_secs(definition.start_timeout_s);
        let session = self.server(name).session(host, definition, until, &CancellationToken::new()).await;
        let session = session.map_err(|fault| text::one_line(&fault.to_string(), 512))?;
        let Tools { offered, withheld, .. } = &*session.tools;
        Ok(Offer { tools: offered.values().cloned().collect(), withheld: withheld.clone() })
    }

    fn server(&self, name: &str) -> Arc<Server> {
        let mut servers = self.0.lock();
        Arc::clone(servers.entry(name.to_owned()).or_insert_with(|| Arc::new(Server::new(name))))
    }
}

fn known(tools: &Tools, tool: &McpTool) -> Result<Arc<Tool>, ToolFailure> {
    if let Some(tool) = tools.offered.get(tool.tool()) {
        return Ok(Arc::clone(tool));
    }
    let (server, called) = (tool.server(), tool.tool());
    if tools.changed.iter().any(|(changed, _, _)| changed == called) {
        let message = format!(
            "the tool `{called}` of the MCP server `{server}` is withheld: its definition has changed in \
             this run, or differs from the one that the policy pins"
        );
        return Err(ToolFailure::new(Reason::PreconditionFailed, message)
            .with("server", server)
            .with("kind", "changed"));
    }
    let message = format!("the MCP server `{server}` has no tool `{called}`; ListTools says which it has");
    Err(ToolFailure::new(Reason::NotFound, message).with("server", server))
}
