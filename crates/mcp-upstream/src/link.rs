//! What both kinds of servers have in common: the handshake, the list of tools, and calls.

use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::fault::Fault;
use super::http::Http;
use super::stdio::Stdio;

/// Versions of the protocol that are spoken here, newest first. What differs between them is not used.
const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// Pages of one list.
const MAX_PAGES: usize = 64;
/// Bytes of a list's cursor.
const MAX_CURSOR: usize = 4 * 1024;
/// Bytes of all of a server's tools as JSON.
const MAX_LIST: usize = 4 * 1024 * 1024;

/// The way to a server.
pub(super) enum Link {
    /// In the container.
    Stdio(Stdio),
    /// Somewhere else.
    Http(Http),
}

/// A server's list of tools.
pub(super) struct Listed {
    /// As they came.
    pub(super) entries: Vec<Value>,
    /// There are more than are taken.
    pub(super) is_cut: bool,
}

impl Link {
    /// Says hello. A server without tools is none for us.
    pub(super) async fn hello(&self, until: Instant, cancel: &CancellationToken) -> Result<(), Fault> {
        let params = json!({
            "protocolVersion": VERSIONS[0],
            "capabilities": {},
            "clientInfo": {"name": "cofferd", "version": env!("CARGO_PKG_VERSION")},
        });
        let hello = self.request("initialize", &params, until, cancel).await?;
        let version = hello.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        let Some(version) = VERSIONS.iter().find(|known| **known == version) else {
            return Err(Fault::Broken("it speaks no version of the protocol that is spoken here".to_owned()));
        };
        if !hello.pointer("/capabilities/tools").is_some_and(Value::is_object) {
            return Err(Fault::Broken("it offers no tools".to_owned()));
        }
        if let Self::Http(http) = self {
            http.agreed(version);
        }
        match self {
            Self::Stdio(stdio) => stdio.notify("notifications/initialized", &json!({}), until).await,
            Self::Http(http) => http.notify("notifications/initialized", &json!({}), until).await,
        }
    }

    /// Lists its tools, at most so many.
    pub(super) async fn list(
        &self,
        most: usize,
        until: Instant,
        cancel: &CancellationToken,
    ) -> Result<Listed, Fault> {
        let (mut entries, mut bytes, mut cursor) = (Vec::new(), 0, None::<String>);
        for _ in 0..MAX_PAGES {
            let params = cursor.map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
            let mut page = self.request("tools/list", &params, until, cancel).await?;
            let next = page.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
            let Some(Value::Array(tools)) = page.get_mut("tools").map(Value::take) else {
                return Err(Fault::Broken("its list of tools is none".to_owned()));
            };
            for tool in tools {
                bytes += tool.to_string().len();
                if entries.len() >= most || bytes > MAX_LIST {
                    return Ok(Listed { entries, is_cut: true });
                }
                entries.push(tool);
            }
            match next {
                None => return Ok(Listed { entries, is_cut: false }),
                Some(next) if next.len() > MAX_CURSOR => {
                    return Err(Fault::Broken(format!(
                        "the cursor of its list has more than {MAX_CURSOR} bytes"
                    )));
                }
                next => cursor = next,
            }
        }
        Ok(Listed { entries, is_cut: true })
    }

    /// Calls a tool; its result as it came.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        until: Instant,
        cancel: &CancellationToken,
    ) -> Result<Value, Fault> {
        self.request("tools/call", &json!({"name": tool, "arguments": arguments}), until, cancel).await
    }

    /// Whether the server said, since this was last asked, that it has other tools now.
    pub(super) fn tools_changed(&self) -> bool {
        match self {
            Self::Stdio(stdio) => stdio.tools_changed(),
            Self::Http(http) => http.tools_changed(),
        }
    }

    /// Whether it is of no use any more.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Stdio(stdio) => stdio.is_over(),
            Self::Http(http) => http.is_over(),
        }
    }

    /// What the server said beside the protocol, for the operator's log.
    pub(super) fn last_words(&self) -> String {
        match self {
            Self::Stdio(stdio) => stdio.last_words(),
            Self::Http(_) => String::new(),
        }
    }

    async fn request(
        &self,
        method: &str,
        params: &Value,
        until: Instant,
        cancel: &CancellationToken,
    ) -> Result<Value, Fault> {
        match self {
            Self::Stdio(stdio) => stdio.request(method, params, until, cancel).await,
            Self::Http(http) => http.request(method, params, until, cancel).await,
        }
    }
}
