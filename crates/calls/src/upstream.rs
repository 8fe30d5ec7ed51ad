//! Connects runs with their upstream MCP servers. The crate `mcp-upstream` speaks with the servers.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use audit::{Event, Kind};
use audit_service::AuditLog;
use executor::Lanes;
use gateway::{Permit, PermitParts};
use identity::RunId;
use mcp_upstream::{Fault, Host, Offer, Pipes, Servers, Subject};
use operations::{Bound, Operation, Reason, ToolFailure};
use parking_lot::Mutex;
use policy::{McpServer, McpStdio};
use serde_json::Value;
use tokio_rustls::rustls::ClientConfig;
use tokio_util::sync::CancellationToken;
use webhook::Tls;
use worker_protocol::client::{Finished, Usage};

use runs::Run;

/// The servers of all runs.
pub struct Upstreams {
    audit: Arc<AuditLog>,
    /// Created when the first remote server is reached.
    tls: OnceLock<Option<Tls>>,
    runs: Arc<Mutex<HashMap<RunId, Arc<Servers>>>>,
}

/// A run during one call.
struct OfRun<'c> {
    upstreams: &'c Upstreams,
    run: &'c Run,
    lanes: &'c Lanes,
}

impl Upstreams {
    /// Returns an instance that has started or reached no server yet.
    pub fn new(audit: Arc<AuditLog>) -> Self {
        Self { audit, tls: OnceLock::new(), runs: Arc::default() }
    }

    /// Makes the call that a permit is for, within `limit` if that is shorter than the server's own limit.
    pub(crate) async fn execute(
        &self,
        run: &Run,
        lanes: &Lanes,
        permit: Permit,
        limit: Option<Duration>,
        cancel: &CancellationToken,
    ) -> Finished {
        let PermitParts { operation, server, .. } = permit.into_parts();
        let (bytes_in, (outcome, bytes_out)) =
            if let (Operation::Mcp(mcp), Some(definition)) = (operation, server) {
                let host = OfRun { upstreams: self, run, lanes };
                let called = self.of(run).call(&host, &definition, &mcp, limit, cancel).await;
                (Value::Object(mcp.arguments).to_string().len() as u64, called)
            } else {
                let failure = ToolFailure::new(Reason::Internal, "the permit is for no upstream server");
                (0, (Err(failure), 0))
            };
        Finished { outcome, bound: Bound::default(), usage: Usage::default(), bytes_in, bytes_out }
    }

    /// Returns the tools that a server offers. Starts or reaches the server first if it was not in use yet.
    pub async fn offer(
        &self,
        run: &Run,
        lanes: &Lanes,
        name: &str,
        definition: &McpServer,
    ) -> Result<Offer, String> {
        self.of(run).offer(&OfRun { upstreams: self, run, lanes }, name, definition).await
    }

    /// Returns the servers of a run. They end with the run.
    fn of(&self, run: &Run) -> Arc<Servers> {
        let id = run.record().id;
        let mut runs = self.runs.lock();
        if let Some(servers) = runs.get(&id) {
            return Arc::clone(servers);
        }
        let servers = Arc::<Servers>::default();
        runs.insert(id, Arc::clone(&servers));
        let (ended, runs) = (run.ended.clone(), Arc::clone(&self.runs));
        tokio::spawn(async move {
            ended.cancelled().await;
            let servers = runs.lock().remove(&id);
            drop(servers);
        });
        servers
    }
}

#[async_trait]
impl Host for OfRun<'_> {
    fn start(&self, name: &str, program: &McpStdio, pipes: Pipes) -> Result<(), Fault> {
        self.lanes.speak(name, program, pipes)
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, Fault> {
        let made = self.upstreams.tls.get_or_init(|| {
            tokio::task::block_in_place(Tls::new)
                .inspect_err(|error| tracing::error!(error, "no MCP server can be reached over TLS"))
                .ok()
        });
        made.as_ref().map(Tls::config).ok_or_else(|| Fault::Absent("TLS cannot be set up".to_owned()))
    }

    /// Writes the event to the audit log. A failure is only logged: an unwritable log admits no calls either.
    async fn record(&self, subject: Subject, details: Value) {
        let kind = match subject {
            Subject::Server => Kind::McpServer,
            Subject::ToolChanged => Kind::McpToolChanged,
        };
        let run = self.run.record().id;
        let event = Event::new(kind).run(run.to_string()).agent(&self.run.spec().agent_id).details(details);
        if self.upstreams.audit.enqueue(event).await.is_err() {
            tracing::error!(%run, "an event of an MCP server is not on record: the audit log cannot be written");
        }
    }
}
