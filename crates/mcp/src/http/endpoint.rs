//! Serves one run over HTTP.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use rmcp::transport::streamable_http_server::session::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::codegen::http::request::Parts;
use tonic::codegen::http::{HeaderMap, Method, Request, Response, StatusCode};

use super::access::{Refused, plain};
use super::held::{Held, ResponseBody};
use super::sessions::{Busy, Sessions};
use super::settings::{LARGEST_BODY, Settings};
use crate::api::RunClient;
use crate::bridge::Bridge;
use crate::token::RunToken;
use api_access::Api;

/// Most requests of one run that are answered at the same time, so that it cannot take other runs' connections. A stream of events
/// counts as one.
const REQUESTS: usize = 32;
/// Time until the connection of a client that has just left is seen to be closed.
const LEAVING: Duration = Duration::from_millis(500);
/// HTTP header of a session id.
const SESSION: &str = "mcp-session-id";

/// Serves one run's clients.
pub(super) struct Endpoint {
    token: RunToken,
    service: StreamableHttpService<Bridge, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    most_sessions: usize,
    uses: Sessions,
    slots: Arc<Semaphore>,
    /// Held while a session may be created, so that there is never one too many.
    making: Mutex<()>,
    used: parking_lot::Mutex<Instant>,
    ends: CancellationToken,
}

impl Endpoint {
    pub(super) fn new(api: Api, token: RunToken, settings: &Settings, stop: &CancellationToken) -> Self {
        let ends = stop.child_token();
        let mut config = SessionConfig::default();
        config.keep_alive = Some(settings.session_idle_timeout);
        let mut sessions = LocalSessionManager::default();
        sessions.session_config = config;
        let sessions = Arc::new(sessions);
        let mut config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(settings.hosts.clone())
            .with_allowed_origins(settings.origins.clone())
            .enforce_origin_validation();
        config.max_request_body_bytes = LARGEST_BODY;
        config.cancellation_token = ends.clone();
        let first = Bridge::new(RunClient::new(api, &token, &settings.dialect));
        let service = StreamableHttpService::new(move || Ok(first.for_another()), sessions.clone(), config);
        Self {
            token,
            service,
            sessions,
            most_sessions: settings.sessions_per_run,
            uses: Sessions::default(),
            slots: Arc::new(Semaphore::new(REQUESTS)),
            making: Mutex::default(),
            used: parking_lot::Mutex::new(Instant::now()),
            ends,
        }
    }

    pub(super) fn token(&self) -> &RunToken {
        &self.token
    }

    /// Returns a slot for a request with the run's token, before its body is read. `None`: too many are under way.
    pub(super) fn enter(&self) -> Option<OwnedSemaphorePermit> {
        let slot = self.slots.clone().try_acquire_owned().ok()?;
        *self.used.lock() = Instant::now();
        Some(slot)
    }

    /// Answers a request that has a slot. Its token may have been replaced while the body came.
    pub(super) async fn answer(
        &self,
        slot: OwnedSemaphorePermit,
        head: Parts,
        body: Bytes,
    ) -> Response<Held> {
        if self.ends.is_cancelled() {
            return Response::from(Refused::bad_token()).map(|body| Held::new(body, None));
        }
        let (response, busy) = self.answer_in_place(head, body).await;
        response.map(|body| Held::new(body, Some((slot, busy))))
    }

    /// Returns the answer, and a guard that keeps its session in use until the answer has been sent.
    async fn answer_in_place(&self, head: Parts, body: Bytes) -> (Response<ResponseBody>, Option<Busy>) {
        let session = id(&head.headers).map(|id| self.uses.enter(id));
        let begins = head.method == Method::POST && session.is_none() && says_initialize(&body);
        let ends = head.method == Method::DELETE;
        let request = Request::from_parts(head, Full::new(body));
        if !begins {
            let mut response = self.service.handle(request).await;
            // The session has ended. Python clients treat any other success status as a failure.
            if ends && response.status() == StatusCode::ACCEPTED {
                *response.status_mut() = StatusCode::NO_CONTENT;
            }
            return (response, session.flatten());
        }
        let _making = self.making.lock().await;
        if !self.makes_room().await {
            let message = "this run has its maximum of MCP sessions, and all are in use: end one with DELETE";
            return (plain(StatusCode::SERVICE_UNAVAILABLE, message), None);
        }
        let response = self.service.handle(request).await;
        let busy = id(response.headers()).map(|id| self.uses.begin(id));
        (response, busy)
    }

    /// Returns true if there is space for another session. Ends the one that was idle longest if necessary.
    ///
    /// Clients leave without notice. One that comes back learns that its session is gone, and begins another.
    async fn makes_room(&self) -> bool {
        let give_up = Instant::now() + LEAVING;
        loop {
            let end = self.uses.next_end();
            let living: Vec<_> = self.sessions.sessions.read().await.keys().cloned().collect();
            if living.len() < self.most_sessions {
                return true;
            }
            let Some(idle) = self.uses.evict(&living) else {
                if timeout_at(give_up, end).await.is_err() {
                    return false;
                }
                continue;
            };
            if let Some(id) = living.iter().find(|id| ***id == *idle)
                && let Err(error) = self.sessions.close_session(id).await
            {
                tracing::debug!(%error, "an MCP session did not end in order");
            }
        }
    }

    /// Ends its sessions and streams, and the calls in them.
    pub(super) fn end(&self) {
        self.ends.cancel();
    }

    /// Ends it when `replaced` resolves. The task ends with the endpoint at the latest.
    pub(super) fn end_after(&self, replaced: impl Future<Output = ()> + Send + 'static) {
        let ends = self.ends.clone();
        tokio::spawn(async move {
            if ends.run_until_cancelled(replaced).await.is_some() {
                ends.cancel();
            }
        });
    }

    /// Returns true if it has been unused for so long, and no client is connected.
    pub(super) async fn is_idle(&self, long: Duration) -> bool {
        let used = *self.used.lock();
        used.elapsed() > long
            && self.slots.available_permits() == REQUESTS
            && self.sessions.sessions.read().await.is_empty()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the session of a message.
fn id(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION).map(|id| id.to_str().unwrap_or_default())
}

/// Returns true if a message asks for a session: only `initialize` does.
fn says_initialize(message: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow)]
        method: Option<Cow<'a, str>>,
    }
    serde_json::from_slice::<Named<'_>>(message)
        .is_ok_and(|message| message.method.as_deref() == Some("initialize"))
}

#[cfg(test)]
mod tests {
    use super::says_initialize;

    #[test]
    fn only_initialize_creates_a_session() {
        assert!(says_initialize(br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"x":[1]}}"#));
        assert!(says_initialize(br#"{"method":"\u0069nitialize"}"#));
        for other in [
            &br#"{"method":"tools/call","params":{"arguments":{"method":"initialize"}}}"#[..],
            br#"[{"method":"initialize"}]"#,
            br#"{"method":1}"#,
            b"initialize",
            b"\xff",
            b"",
        ] {
            assert!(!says_initialize(other));
        }
    }
}
