#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![forbid(unsafe_code)]

mod events;
mod fault;
mod host;
mod http;
mod lines;
mod link;
mod message;
mod result;
mod schema;
mod server;
mod stdio;
mod text;
mod tools;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gateway::McpServer;
use ops::{Mcp, McpTool, Outcome, Reason, ToolFailure};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use fault::Fault;
pub use host::{Host, Output, Pipes, Subject};

use server::Server;
use tools::{Tool, Tools};

/// The servers of one run, by name. Dropping them ends them.
#[derive(Default)]
pub struct Servers(Mutex<HashMap<String, Arc<Server>>>);

/// What became of a call.
pub struct Called {
    /// For the agent.
    pub outcome: Outcome,
    /// Bytes of the server's answer.
    pub bytes: u64,
}

/// A tool for an agent's list.
pub struct Offered {
    /// Which.
    pub tool: McpTool,
    /// The server's words, and that they are.
    pub description: String,
    /// What its arguments have to fit.
    pub input_schema: Value,
    /// SHA-256 of its definition as the server says it.
    pub digest: String,
}

/// What a server offers.
pub struct Offer {
    /// What the agent may be shown.
    pub tools: Vec<Offered>,
    /// Tools that are not offered, and why, a line each.
    pub withheld: Vec<String>,
}

impl Servers {
    /// Makes a call that is permitted to the server of this definition, within `limit` if that is less than the server's own.
    pub async fn call(
        &self,
        host: &dyn Host,
        definition: &McpServer,
        mcp: &Mcp,
        limit: Option<Duration>,
        cancel: &CancellationToken,
    ) -> Called {
        let own = Duration::from_secs(definition.call_timeout_s);
        let until = Instant::now() + limit.map_or(own, |limit| limit.min(own));
        let mut bytes = 0;
        let outcome = self.call_within(host, definition, mcp, until, cancel, &mut bytes).await;
        Called { outcome, bytes }
    }

    async fn call_within(
        &self,
        host: &dyn Host,
        definition: &McpServer,
        mcp: &Mcp,
        until: Instant,
        cancel: &CancellationToken,
        bytes: &mut u64,
    ) -> Outcome {
        let name = mcp.tool.server();
        let session = self.server(name).session(host, definition, until, cancel).await;
        let session = session.map_err(|fault| fault.failure(name, false))?;
        let tool = known(&session.tools, &mcp.tool)?;
        let arguments = Value::Object(mcp.arguments.clone());
        // Checking what is hostile is bounded, and long enough not to be done where others wait.
        tokio::task::block_in_place(|| tool.input.check(&arguments)).map_err(|why| {
            ToolFailure::new(
                Reason::InvalidArgument,
                format!("arguments: do not fit the tool's schema: {why}"),
            )
        })?;
        let called = session.link.call(mcp.tool.tool(), &mcp.arguments, until, cancel).await;
        let answer = called.map_err(|fault| fault.failure(name, true))?;
        session.served.store(true, Ordering::Relaxed);
        tokio::task::block_in_place(|| {
            let text = answer.to_string();
            *bytes = text.len() as u64;
            result::outcome(&tool, &answer, &text, definition.max_result_bytes)
        })
    }

    /// What a server offers, started or reached for this where it was not before.
    pub async fn offer(&self, host: &dyn Host, name: &str, definition: &McpServer) -> Result<Offer, String> {
        let until = Instant::now() + Duration::from_secs(definition.start_timeout_s);
        let session = self.server(name).session(host, definition, until, &CancellationToken::new()).await;
        let session = session.map_err(|fault| text::one_line(&fault.to_string(), 512))?;
        let tools = session.tools.offered.values().map(|tool| Offered {
            tool: tool.id.clone(),
            description: tool.description.clone(),
            input_schema: tool.input_schema.clone(),
            digest: tool.digest.clone(),
        });
        Ok(Offer { tools: tools.collect(), withheld: session.tools.withheld.clone() })
    }

    fn server(&self, name: &str) -> Arc<Server> {
        let mut servers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
            "the tool `{called}` of the MCP server `{server}` is withheld: its definition is not what this run, or the \
             policy, knows it by"
        );
        return Err(ToolFailure::new(Reason::PreconditionFailed, message)
            .with("server", server)
            .with("kind", "changed"));
    }
    let message = format!("the MCP server `{server}` has no tool `{called}`; ListTools says which it has");
    Err(ToolFailure::new(Reason::NotFound, message).with("server", server))
}
