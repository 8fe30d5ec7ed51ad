//! A server somewhere else, spoken with by streamable HTTP: one POST a message, answered by JSON or by a stream of events.
//!
//! Only the policy's address is connected to: no redirect is followed, no proxy of the environment is used, and nothing
//! that the server says is opened. Each exchange has a connection of its own, so that a server that hangs in one holds up no
//! other. A GET for what a server would say by itself is never made: what a tool answers comes with its POST.

#![expect(clippy::disallowed_methods, reason = "a secret's file that the policy names")]

use std::io::Read as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use gateway::{HttpTarget, McpHttp};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming as Body;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::events::Events;
use super::fault::Fault;
use super::message::{self, Incoming, MAX_MESSAGE};

/// Bytes of the head of an answer.
const MAX_HEAD: usize = 64 * 1024;
/// Bytes of one exchange: of all events of a stream.
const MAX_EXCHANGE: usize = 2 * MAX_MESSAGE;
/// Bytes of a session's id.
const MAX_SESSION: usize = 1_024;
/// Bytes of a token.
const MAX_TOKEN: u64 = 8 * 1024;
/// Requests of the server in one exchange that are answered.
const MAX_REQUESTS: usize = 16;
/// For what is said and not waited for.
const ASIDE: Duration = Duration::from_secs(2);

const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";

/// A server, and our session with it.
pub(super) struct Http {
    peer: Arc<Peer>,
    next: AtomicU64,
    changed: AtomicBool,
    over: AtomicBool,
}

/// What every exchange needs.
struct Peer {
    target: HttpTarget,
    tls: Arc<ClientConfig>,
    bearer: Option<HeaderValue>,
    /// As the server named it.
    session: Mutex<Option<HeaderValue>>,
    /// As it was agreed upon.
    version: Mutex<Option<HeaderValue>>,
}

/// An answer whose body comes, and the connection that brings it.
struct Answer {
    response: Response<Body>,
    _connection: AbortOnDropHandle<()>,
}

impl Http {
    /// Nothing is connected to before the first message.
    pub(super) fn new(server: &McpHttp, tls: Arc<ClientConfig>) -> Result<Self, Fault> {
        let target = HttpTarget::parse(&server.url).map_err(Fault::Absent)?;
        let bearer = server.bearer_token_file.as_deref().map(token).transpose()?;
        let peer = Peer { target, tls, bearer, session: Mutex::default(), version: Mutex::default() };
        Ok(Self {
            peer: Arc::new(peer),
            next: AtomicU64::new(1),
            changed: AtomicBool::new(false),
            over: AtomicBool::new(false),
        })
    }

    /// Asks, and waits for the answer.
    pub(super) async fn request(
        &self,
        method: &str,
        params: &Value,
        until: Instant,
        cancel: &CancellationToken,
    ) -> Result<Value, Fault> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let exchange = self.exchange(id, message::request(id, method, params));
        let fault = tokio::select! {
            biased;
            () = cancel.cancelled() => Fault::Cancelled,
            answer = timeout_at(until, exchange) => match answer {
                Ok(answer) => {
                    if answer.as_ref().is_err_and(Fault::is_final) {
                        self.over.store(true, Ordering::Relaxed);
                    }
                    return answer;
                }
                Err(_) => Fault::TimedOut,
            },
        };
        let (peer, cancelled) = (Arc::clone(&self.peer), message::cancelled(id, &fault.to_string()));
        tokio::spawn(async move { timeout(ASIDE, peer.send(Method::POST, cancelled)).await });
        Err(fault)
    }

    /// Says something that has no answer.
    pub(super) async fn notify(&self, method: &str, params: &Value, until: Instant) -> Result<(), Fault> {
        let said = self.peer.send(Method::POST, message::notification(method, params));
        timeout_at(until, said).await.map_err(|_| Fault::TimedOut)?.map(drop)
    }

    /// From now on every message says that this version was agreed upon.
    pub(super) fn agreed(&self, version: &str) {
        *self.peer.version.lock().unwrap_or_else(PoisonError::into_inner) =
            HeaderValue::from_str(version).ok();
    }

    /// Whether the server said, since this was last asked, that it has other tools now.
    pub(super) fn tools_changed(&self) -> bool {
        self.changed.swap(false, Ordering::Relaxed)
    }

    /// Whether the session is of no use any more.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    async fn exchange(&self, id: u64, body: String) -> Result<Value, Fault> {
        let Answer { response, _connection } = self.peer.send(Method::POST, body).await?;
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            "application/json" => {
                let bytes = whole(response.into_body()).await?;
                match self.hear(id, &bytes)? {
                    Heard::Answer(answer) => answer,
                    Heard::Request(_) | Heard::Nothing => {
                        Err(broken("it answered something else than what was asked"))
                    }
                }
            }
            "text/event-stream" => self.follow(id, response.into_body()).await,
            _ => Err(broken("its answer is neither JSON nor a stream of events")),
        }
    }

    /// Reads events until one is the answer.
    async fn follow(&self, id: u64, mut body: Body) -> Result<Value, Fault> {
        let (mut events, mut bytes, mut asked) = (Events::default(), 0, 0);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Fault::Lost("its answer broke off".to_owned()))?;
            let Ok(data) = frame.into_data() else { continue };
            bytes += data.len();
            if bytes > MAX_EXCHANGE {
                return Err(broken("its answer is too long"));
            }
            let mut messages = Vec::new();
            events.take(&data, |event| {
                messages.push(event);
                Ok(())
            })?;
            for event in messages {
                match self.hear(id, event.as_bytes())? {
                    Heard::Answer(answer) => return answer,
                    Heard::Request(answer) if asked < MAX_REQUESTS => {
                        asked += 1;
                        let said = timeout(ASIDE, self.peer.send(Method::POST, answer));
                        drop(said.await);
                    }
                    Heard::Request(_) | Heard::Nothing => {}
                }
            }
        }
        Err(Fault::Lost("its stream of events ended without an answer".to_owned()))
    }

    fn hear(&self, id: u64, bytes: &[u8]) -> Result<Heard, Fault> {
        Ok(match Incoming::read(bytes)? {
            Incoming::Answer { id: of, answer } if of == id => Heard::Answer(answer),
            Incoming::Request { answer } => Heard::Request(answer),
            Incoming::ToolsChanged => {
                self.changed.store(true, Ordering::Relaxed);
                Heard::Nothing
            }
            Incoming::Answer { .. } | Incoming::Other => Heard::Nothing,
        })
    }
}

enum Heard {
    Answer(Result<Value, Fault>),
    Request(String),
    Nothing,
}

impl Drop for Http {
    /// The server is told that the session is over, where it made one.
    fn drop(&mut self) {
        let peer = Arc::clone(&self.peer);
        let named = peer.session.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if let (true, Ok(runtime)) = (named, tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { timeout(ASIDE, peer.send(Method::DELETE, String::new())).await });
        }
    }
}

impl Peer {
    /// One request, and the head of its answer.
    async fn send(&self, method: Method, body: String) -> Result<Answer, Fault> {
        let HttpTarget { host, port, tls, .. } = &self.target;
        let stream = TcpStream::connect((host.as_str(), *port))
            .await
            .map_err(|error| Fault::Absent(format!("cannot connect: {}", error.kind())))?;
        if *tls {
            let name = ServerName::try_from(host.clone())
                .map_err(|_| Fault::Absent("the host has no valid name".to_owned()))?;
            let connected = TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await;
            let stream = connected.map_err(|error| Fault::Absent(format!("TLS failed: {}", error.kind())))?;
            self.post(stream, method, body).await
        } else {
            self.post(stream, method, body).await
        }
    }

    async fn post(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        method: Method,
        body: String,
    ) -> Result<Answer, Fault> {
        let lost = |_: hyper::Error| Fault::Lost("it gave no answer".to_owned());
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_HEAD)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(lost)?;
        let connection = AbortOnDropHandle::new(tokio::spawn(async move { drop(connection.await) }));
        let mut request = Request::builder()
            .method(method)
            .uri(&self.target.path)
            .header(HOST, &self.target.authority)
            .header(USER_AGENT, concat!("cofferd/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .header("connection", "close");
        let kept = |header: &Mutex<Option<HeaderValue>>| {
            header.lock().unwrap_or_else(PoisonError::into_inner).clone()
        };
        for (name, value) in [
            (AUTHORIZATION.as_str(), self.bearer.clone()),
            (SESSION, kept(&self.session)),
            (VERSION, kept(&self.version)),
        ] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        let request = request
            .body(Full::new(Bytes::from(body)))
            .map_err(|_| Fault::Absent("the request cannot be made".to_owned()))?;
        let response = sender.send_request(request).await.map_err(lost)?;
        self.judge(&response)?;
        Ok(Answer { response, _connection: connection })
    }

    fn judge(&self, response: &Response<Body>) -> Result<(), Fault> {
        let status = response.status();
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        match status {
            status if status.is_success() => {}
            status if status.is_redirection() => {
                return Err(broken("it answered with a redirect, and none is followed"));
            }
            StatusCode::NOT_FOUND if session.is_some() => {
                return Err(Fault::Lost("it has ended our session".to_owned()));
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return Err(Fault::Absent(format!("it refuses us ({})", status.as_u16())));
            }
            status => return Err(Fault::Lost(format!("it answered with status {}", status.as_u16()))),
        }
        if let (None, Some(named)) = (session.as_ref(), response.headers().get(SESSION)) {
            let plain = |byte: &u8| (0x21..=0x7e).contains(byte);
            if named.len() > MAX_SESSION || !named.as_bytes().iter().all(plain) {
                return Err(broken("the id of its session is none"));
            }
            *session = Some(named.clone());
        }
        Ok(())
    }
}

fn broken(why: &str) -> Fault {
    Fault::Broken(why.to_owned())
}

async fn whole(mut body: Body) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Fault::Lost("its answer broke off".to_owned()))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > MAX_MESSAGE {
            return Err(broken("its answer is too long"));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

/// The token of a file. Why there is none goes to the operator's log, for it would name a path of the host.
fn token(path: &Path) -> Result<HeaderValue, Fault> {
    let read = || -> Result<HeaderValue, String> {
        let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
        if !file.metadata().is_ok_and(|meta| meta.is_file()) {
            return Err("it is no regular file".to_owned());
        }
        let mut text = String::new();
        file.take(MAX_TOKEN + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
        let token = text.trim();
        if token.is_empty() || text.len() as u64 > MAX_TOKEN {
            return Err(format!("it is empty, or has more than {MAX_TOKEN} bytes"));
        }
        let mut header =
            HeaderValue::from_str(&format!("Bearer {token}")).map_err(|error| error.to_string())?;
        header.set_sensitive(true);
        Ok(header)
    };
    tokio::task::block_in_place(read).map_err(|error| {
        tracing::error!(path = %path.display(), error, "the token of an MCP server cannot be read");
        Fault::Absent("its token cannot be read; the daemon's log says more".to_owned())
    })
}
