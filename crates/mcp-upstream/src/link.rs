//! The connection to one server: the handshake, the list of tools, calls, and the cancellation of calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use policy::McpTransport;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::fault::Fault;
use super::host::Host;
use super::http::Http;
use super::link_state::LinkState;
use super::message;
use super::stdio::Stdio;

/// Supported versions of the protocol, newest first. Features that differ between them are not used.
const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// Lifetime after which a server does not count as one that fails repeatedly.
const LASTED: Duration = Duration::from_secs(30);
/// Most pages of one list.
const MAX_PAGES: usize = 64;
/// Most bytes of a list's cursor.
const MAX_CURSOR: usize = 4 * 1024;
/// Most bytes of all of a server's tools as JSON.
const MAX_LIST: usize = 4 * 1024 * 1024;

/// Connection to a server. Dropping it ends a program, and an HTTP session.
pub(super) struct Link {
    wire: Wire,
    next: AtomicU64,
    state: LinkState,
    began: Instant,
    /// True if it has answered a call.
    served: AtomicBool,
}

enum Wire {
    Stdio(Stdio),
    Http(Arc<Http>),
}

/// Server's list of tools.
pub(super) struct Listed {
    /// Entries as the server sent them.
    pub(super) entries: Vec<Value>,
    /// True if there are more entries than are accepted.
    pub(super) is_cut: bool,
}

impl Link {
    /// Starts a program under `name`, or prepares to connect. Only the handshake shows if the server answers.
    pub(super) fn open(host: &dyn Host, name: &str, transport: &McpTransport) -> Result<Self, Fault> {
        let state = LinkState::default();
        let wire = match transport {
            McpTransport::Stdio(program) => Wire::Stdio(Stdio::start(host, name, program, state.clone())?),
            McpTransport::Http(server) => {
                Wire::Http(Arc::new(Http::new(server, host.tls()?, state.clone())?))
            }
        };
        Ok(Self {
            wire,
            next: AtomicU64::new(1),
            state,
            began: Instant::now(),
            served: AtomicBool::new(false),
        })
    }

    /// Performs the handshake. A server without tools is refused.
    pub(super) async fn hello(&self, until: Instant, cancel: &CancellationToken) -> Result<(), Fault> {
        let params = json!({
            "protocolVersion": VERSIONS[0],
            "capabilities": {},
            "clientInfo": {"name": "cofferd", "version": env!("CARGO_PKG_VERSION")},
        });
        let hello = self.request("initialize", &params, until, cancel).await?;
        let version = hello.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        let Some(version) = VERSIONS.iter().find(|known| **known == version) else {
            return Err(Fault::Broken("it supports no MCP version that Cofferdam supports".to_owned()));
        };
        if !hello.pointer("/capabilities/tools").is_some_and(Value::is_object) {
            return Err(Fault::Broken("it offers no tools".to_owned()));
        }
        let ready = message::notification("notifications/initialized", &json!({}));
        let told = async {
            match &self.wire {
                Wire::Stdio(stdio) => stdio.send(ready).await,
                Wire::Http(http) => {
                    http.agreed(version);
                    http.send(ready).await
                }
            }
        };
        timeout_at(until, told).await.map_err(|_| Fault::TimedOut)?
    }

    /// Lists its tools, up to a maximum.
    pub(super) async fn list(
        &self,
        most: usize,
        until: Instant,
        cancel: &CancellationToken,
    ) -> Result<Listed, Fault> {
        let (mut entries, mut bytes, mut params) = (Vec::new(), 0, json!({}));
        for _ in 0..MAX_PAGES {
            let mut page = self.request("tools/list", &params, until, cancel).await?;
            let Some(Value::Array(tools)) = page.get_mut("tools").map(Value::take) else {
                return Err(Fault::Broken("its list of tools is invalid".to_owned()));
            };
            for tool in tools {
                bytes += tool.to_string().len();
                if entries.len() >= most || bytes > MAX_LIST {
                    return Ok(Listed { entries, is_cut: true });
                }
                entries.push(tool);
            }
            match page.get("nextCursor").and_then(Value::as_str) {
                None => return Ok(Listed { entries, is_cut: false }),
                Some(next) if next.len() > MAX_CURSOR => {
                    return Err(Fault::Broken(format!(
                        "the cursor of its list has more than {MAX_CURSOR} bytes"
                    )));
                }
                Some(next) => params = json!({"cursor": next}),
            }
        }
        Ok(Listed { entries, is_cut: true })
    }

    /// Calls a tool, and returns its result unchanged.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: Value,
        until: Instant,
        cancel: &CancellationToken,
    ) -> Result<Value, Fault> {
        let params = json!({"name": tool, "arguments": arguments});
        let answer = self.request("tools/call", &params, until, cancel).await?;
        self.served.store(true, Ordering::Relaxed);
        Ok(answer)
    }

    /// Returns true if the server does not fail repeatedly. If it is lost, it may be started again at once.
    pub(super) fn has_proved(&self) -> bool {
        self.served.load(Ordering::Relaxed) || self.began.elapsed() >= LASTED
    }

    /// Returns true if the server has announced changed tools since the last call of this function.
    pub(super) fn tools_changed(&self) -> bool {
        self.state.changed.swap(false, Ordering::Relaxed)
    }

    /// Returns true if it can no longer be used.
    pub(super) fn is_over(&self) -> bool {
        self.state.end.is_cancelled()
    }

    /// Returns the server's output outside of the protocol, for the operator's log.
    pub(super) fn last_words(&self) -> String {
        match &self.wire {
            Wire::Stdio(stdio) => stdio.last_words(),
            Wire::Http(_) => String::new(),
        }
    }

    /// Sends a request and waits for the answer. A request that is abandoned is cancelled at the server.
    async fn request(
        &self,
        method: &str,
        params: &Value,
        until: Instant,
        cancel: &CancellationToken,
    ) -> Result<Value, Fault> {
        let id = self.id();
        let message = message::request(id, method, params);
        let exchange = async {
            match &self.wire {
                Wire::Stdio(stdio) => stdio.exchange(id, message).await,
                Wire::Http(http) => http.exchange(id, message).await,
            }
        };
        let fault = tokio::select! {
            biased;
            () = cancel.cancelled() => Fault::Cancelled,
            answer = timeout_at(until, exchange) => match answer {
                Ok(answer) => {
                    if answer.as_ref().is_err_and(Fault::is_final) {
                        self.state.end.cancel();
                    }
                    return answer;
                }
                Err(_) => Fault::TimedOut,
            },
        };
        let cancelled = message::cancelled(id, &fault.to_string());
        match &self.wire {
            Wire::Stdio(stdio) => stdio.give_up(cancelled, self.id()),
            Wire::Http(http) => http.say_aside(cancelled),
        }
        Err(fault)
    }

    fn id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.state.end.cancel();
        if let Wire::Http(http) = &self.wire {
            http.hang_up();
        }
    }
}
