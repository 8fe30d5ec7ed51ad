//! Upstream MCP servers: the gateway in front of them.
//!
//! ```text
//!  permit ─► Upstreams ─► Server (of a run) ─► Session ─► Link ─┬─ stdio: a program in the run's container
//!                             │ seen tools                      └─ http: an address of the policy
//!                             └─ restarts, backoff
//! ```
//!
//! Trust boundary: a server lies, hangs, floods and dies. What it sends is bounded before it is parsed, what it offers is
//! withheld where it does not fit, and what it answers is checked against the schemas that it gave itself. Whatever it does
//! costs the calls to it and nothing else: no task is started for a message of a server, nothing of it is logged but the
//! last words of one that failed, and each run has its own.
//!
//! The client is our own and not the one of the `rmcp` crate, which starts a task for each request and notification of a
//! peer, logs what a peer notifies, and bounds neither messages nor what waits to be sent.

mod events;
mod fault;
mod http;
mod lines;
mod link;
mod message;
mod record;
mod result;
mod schema;
mod server;
mod stdio;
mod text;
mod tools;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use gateway::{McpServer, Permit, PermitParts};
use identity::RunId;
use ops::{Bound, McpTool, Operation, Outcome, Reason, ToolFailure};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use worker::client::{Finished, Usage};

use crate::audit::AuditLog;
use crate::executor::Lanes;
use crate::runs::Run;
use crate::tls::Tls;
use fault::Fault;
use record::Recorder;
use server::Server;
use tools::{Tool, Tools};

/// The servers of all runs.
pub(crate) struct Upstreams {
    audit: Arc<AuditLog>,
    /// Made when the first server is reached that is somewhere else.
    tls: OnceLock<Option<Tls>>,
    runs: Arc<Mutex<HashMap<RunId, Servers>>>,
}

/// The servers of one run, by name.
type Servers = HashMap<String, Arc<Server>>;

/// A tool for an agent's list.
pub(crate) struct Offered {
    pub(crate) tool: McpTool,
    pub(crate) description: String,
    pub(crate) input_schema: Value,
    /// SHA-256 of its definition as the server says it.
    pub(crate) digest: String,
}

/// What a server offers.
pub(crate) struct Offer {
    pub(crate) tools: Vec<Offered>,
    /// Tools that are not offered, and why, a line each.
    pub(crate) withheld: Vec<String>,
}

impl Upstreams {
    /// Nothing is started or reached.
    pub(crate) fn new(audit: Arc<AuditLog>) -> Self {
        Self { audit, tls: OnceLock::new(), runs: Arc::default() }
    }

    /// Makes the call that a permit is for, within `limit` if that is less than the server's own.
    pub(crate) async fn execute(
        &self,
        run: &Arc<Run>,
        lanes: &Lanes,
        permit: Permit,
        limit: Option<Duration>,
        cancel: &CancellationToken,
    ) -> Finished {
        let PermitParts { operation, server, .. } = permit.into_parts();
        let (Operation::Mcp(mcp), Some(definition)) = (operation, server) else {
            let failure = ToolFailure::new(Reason::Internal, "the permit is for no upstream server");
            return Finished {
                outcome: Err(failure),
                bound: Bound::default(),
                usage: Usage::default(),
                bytes_in: 0,
                bytes_out: 0,
            };
        };
        let own = Duration::from_secs(definition.call_timeout_s);
        let until = Instant::now() + limit.map_or(own, |limit| limit.min(own));
        let bytes_in = mcp.arguments_json().len() as u64;
        let mut bytes_out = 0;
        let server = self.server(run, mcp.tool.server());
        let outcome = self.call(&server, lanes, &definition, &mcp, until, cancel, &mut bytes_out).await;
        Finished { outcome, bound: Bound::default(), usage: Usage::default(), bytes_in, bytes_out }
    }

    #[allow(clippy::too_many_arguments)] // a call is what all of these say
    async fn call(
        &self,
        server: &Server,
        lanes: &Lanes,
        definition: &McpServer,
        mcp: &ops::Mcp,
        until: Instant,
        cancel: &CancellationToken,
        bytes_out: &mut u64,
    ) -> Outcome {
        let name = mcp.tool.server();
        let session = server.session(lanes, definition, &|| self.tls(), until, cancel).await;
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
            *bytes_out = text.len() as u64;
            result::outcome(&tool, &answer, &text, definition.max_result_bytes)
        })
    }

    /// What a server offers, started or reached for this where it was not before.
    pub(crate) async fn offer(
        &self,
        run: &Arc<Run>,
        lanes: &Lanes,
        name: &str,
        definition: &McpServer,
    ) -> Result<Offer, String> {
        let until = Instant::now() + Duration::from_secs(definition.start_timeout_s);
        let never = CancellationToken::new();
        let session = self.server(run, name).session(lanes, definition, &|| self.tls(), until, &never).await;
        let session = session.map_err(|fault| text::one_line(&fault.to_string(), 512))?;
        let tools = session.tools.offered.values().map(|tool| Offered {
            tool: tool.id.clone(),
            description: tool.description.clone(),
            input_schema: tool.input_schema.clone(),
            digest: tool.digest.clone(),
        });
        Ok(Offer { tools: tools.collect(), withheld: session.tools.withheld.clone() })
    }

    fn tls(&self) -> Result<Tls, Fault> {
        let made = self.tls.get_or_init(|| {
            tokio::task::block_in_place(Tls::new)
                .inspect_err(|error| tracing::error!(error, "no MCP server can be reached over TLS"))
                .ok()
        });
        made.clone().ok_or_else(|| Fault::Absent("TLS cannot be set up".to_owned()))
    }

    /// The server of a run. When the run ends, so do its servers.
    fn server(&self, run: &Arc<Run>, name: &str) -> Arc<Server> {
        let id = run.record().id;
        let mut runs = lock(&self.runs);
        let is_new = !runs.contains_key(&id);
        let recorder = || Recorder::new(self.audit.clone(), id, &run.spec().agent_id);
        let servers = runs.entry(id).or_default();
        let server =
            servers.entry(name.to_owned()).or_insert_with(|| Arc::new(Server::new(name, recorder())));
        let server = Arc::clone(server);
        drop(runs);
        if is_new {
            let (ended, runs) = (run.ended.clone(), Arc::clone(&self.runs));
            tokio::spawn(async move {
                ended.cancelled().await;
                let servers = lock(&runs).remove(&id);
                drop(servers);
            });
        }
        server
    }
}

fn lock(runs: &Mutex<HashMap<RunId, Servers>>) -> MutexGuard<'_, HashMap<RunId, Servers>> {
    runs.lock().unwrap_or_else(PoisonError::into_inner)
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
