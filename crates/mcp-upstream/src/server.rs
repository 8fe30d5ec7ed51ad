//! One server of one run. A call starts or reaches it when it is first needed or was lost, at a limited rate.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use policy::McpServer;
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::fault::Fault;
use super::host::{Host, Subject};
use super::link::{Link, Listed};
use super::tools::Tools;

/// Wait after the first failure, doubled with each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Shortest time between two lists of the tools of one server.
const RELIST: Duration = Duration::from_secs(5);

pub(super) struct Server {
    name: String,
    slot: Mutex<Slot>,
}

#[derive(Default)]
struct Slot {
    session: Option<Arc<Session>>,
    /// Definitions of tools, as the run first saw them.
    seen: BTreeMap<String, String>,
    /// Number of times that it was started or reached.
    starts: u32,
    failures: u32,
    not_before: Option<Instant>,
    /// Last failure, for a call that comes too soon.
    why: Option<Fault>,
}

/// Server that answers, and its tools.
pub(super) struct Session {
    pub(super) link: Arc<Link>,
    pub(super) tools: Arc<Tools>,
    definition: McpServer,
    listed: Instant,
}

impl Server {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), slot: Mutex::default() }
    }

    /// Returns the session, with the tools that the server last listed. Other calls wait meanwhile.
    pub(super) async fn session(
        &self,
        host: &dyn Host,
        definition: &McpServer,
        until: Instant,
        cancel: &CancellationToken,
    ) -> Result<Arc<Session>, Fault> {
        let mut slot = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(Fault::Cancelled),
            slot = timeout_at(until, self.slot.lock()) => slot.map_err(|_| Fault::TimedOut)?,
        };
        let until = until.min(Instant::now() + Duration::from_secs(definition.start_timeout_s));
        if let Some(session) =
            slot.session.take_if(|session| session.link.is_over() || session.definition != *definition)
        {
            self.lost(&mut slot, host, &session).await;
        }
        if let Some(session) = &slot.session {
            let stale = session.listed.elapsed() >= RELIST && session.link.tools_changed();
            if !stale {
                return Ok(Arc::clone(session));
            }
        } else if let Some(wait) =
            slot.not_before.and_then(|moment| moment.checked_duration_since(Instant::now()))
        {
            let why = slot.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            return Err(Fault::Absent(format!("it is tried again in {} s{why}", wait.as_secs() + 1)));
        }
        let before = slot.session.take();
        let is_new = before.is_none();
        match self.renew(&mut slot, host, definition, before, until, cancel).await {
            Ok(session) => {
                let session = Arc::new(session);
                slot.session = Some(Arc::clone(&session));
                Ok(session)
            }
            Err(Fault::Cancelled) if is_new => Err(Fault::Cancelled),
            Err(fault) => {
                self.failed(&mut slot, host, &fault).await;
                Err(fault)
            }
        }
    }

    /// Starts or reaches the server and lists its tools.
    ///
    /// If only the server's tools have changed, they are listed again. The link stays, and the calls in progress continue.
    async fn renew(
        &self,
        slot: &mut Slot,
        host: &dyn Host,
        definition: &McpServer,
        before: Option<Arc<Session>>,
        until: Instant,
        cancel: &CancellationToken,
    ) -> Result<Session, Fault> {
        let is_new = before.is_none();
        let link = if let Some(before) = before {
            Arc::clone(&before.link)
        } else {
            slot.starts += 1;
            let name = format!("mcp-{}-{}", self.name, slot.starts);
            Arc::new(Link::open(host, &name, &definition.transport)?)
        };
        let most = usize::try_from(definition.max_tools).unwrap_or(usize::MAX);
        let asked = async {
            if is_new {
                link.hello(until, cancel).await?;
            }
            link.list(most, until, cancel).await
        };
        let listed = asked.await.inspect_err(|fault| {
            let (name, said) = (&self.name, link.last_words());
            tracing::warn!(server = %name, %fault, said, "an MCP server cannot be used");
        })?;
        let tools = self.read(slot, host, definition, listed).await;
        if is_new {
            let (offered, withheld) = (tools.offered.len(), tools.withheld.len());
            let details =
                json!({"server": self.name, "event": "started", "tools": offered, "withheld": withheld});
            host.record(Subject::Server, details).await;
        }
        let definition = definition.clone();
        Ok(Session { link, tools: Arc::new(tools), definition, listed: Instant::now() })
    }

    async fn read(&self, slot: &mut Slot, host: &dyn Host, definition: &McpServer, listed: Listed) -> Tools {
        let Listed { entries, is_cut } = listed;
        let (name, definition, mut seen) =
            (self.name.clone(), definition.clone(), std::mem::take(&mut slot.seen));
        // Compiling hostile schemas is bounded, but slow.
        let read = tokio::task::spawn_blocking(move || {
            let tools = Tools::read(&name, &definition, entries, &mut seen);
            (tools, seen)
        });
        let (mut tools, seen) = read.await.unwrap_or_default();
        slot.seen = seen;
        if is_cut {
            tools.withhold("others", "the server lists more tools than the limit");
        }
        for (tool, before, now) in &tools.changed {
            tracing::warn!(server = %self.name, tool, "the definition of an MCP tool has changed; it is withheld");
            let details =
                json!({"server": self.name, "tool": tool, "sha256_before": before, "sha256_now": now});
            host.record(Subject::ToolChanged, details).await;
        }
        tools
    }

    async fn failed(&self, slot: &mut Slot, host: &dyn Host, fault: &Fault) {
        slot.failures = slot.failures.saturating_add(1);
        slot.not_before = Some(Instant::now() + patience(slot.failures));
        slot.why = Some(fault.clone());
        let said = super::text::one_line(&fault.to_string(), 512);
        let details =
            json!({"server": self.name, "event": "failed", "problem": said, "failures": slot.failures});
        host.record(Subject::Server, details).await;
    }

    /// Handles the end of a session: the server ended, or the policy has replaced it.
    async fn lost(&self, slot: &mut Slot, host: &dyn Host, session: &Session) {
        let said = session.link.last_words();
        tracing::info!(server = %self.name, said, "an MCP server has ended");
        host.record(Subject::Server, json!({"server": self.name, "event": "ended"})).await;
        if session.link.has_proved() {
            slot.failures = 0;
            slot.not_before = None;
        } else {
            slot.failures = slot.failures.saturating_add(1);
            slot.not_before = Some(Instant::now() + patience(slot.failures - 1));
        }
    }
}

/// Returns the time to wait before the next start after so many failures.
fn patience(failures: u32) -> Duration {
    match failures {
        0 => Duration::ZERO,
        failures => FIRST_WAIT.saturating_mul(1 << (failures - 1).min(6)).min(LONGEST_WAIT),
    }
}
