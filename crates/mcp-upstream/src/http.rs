//! A remote server over streamable HTTP: one POST for each message, answered by JSON or by a stream of events.
//!
//! The daemon connects only to the policy's address. It follows no redirect, uses no proxy from the environment, and opens no address that
//! the server names. Each exchange has a separate connection, so a server that hangs in one delays no other. No GET requests unsolicited
//! messages, because the answer of a tool comes with its POST.

#![expect(clippy::disallowed_methods, reason = "a secret's file that the policy names")]

use std::error::Error;
use std::io::Read as _;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming as Body;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use policy::{HttpTarget, McpHttp};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::either::Either;
use tokio_util::task::AbortOnDropHandle;

use super::events::Events;
use super::fault::Fault;
use super::link_state::LinkState;
use super::message::{Incoming, MAX_MESSAGE};

/// Most bytes of the head of an answer.
const MAX_HEAD: usize = 64 * 1024;
/// Most bytes of one exchange: all events of a stream together.
const MAX_EXCHANGE: usize = 2 * MAX_MESSAGE;
/// Most bytes of a session's id.
const MAX_SESSION: usize = 1_024;
/// Most bytes of a token.
const MAX_TOKEN: u64 = 8 * 1024;
/// Most requests of the server that are answered in one exchange.
const MAX_REQUESTS: usize = 16;
/// Time limit for messages whose answer is not waited for.
const ASIDE: Duration = Duration::from_secs(2);

const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";

/// Server, and the daemon's session with it.
pub(super) struct Http {
    target: HttpTarget,
    tls: Arc<ClientConfig>,
    bearer: Option<HeaderValue>,
    /// Session id, as the server gave it.
    session: OnceLock<HeaderValue>,
    /// Negotiated version of the protocol.
    version: OnceLock<HeaderValue>,
    link: LinkState,
}

/// Answer whose body is still arriving, and its connection.
struct Answer {
    response: Response<Body>,
    _connection: AbortOnDropHandle<()>,
}

impl Http {
    /// Creates the transport. It connects with the first message.
    pub(super) fn new(server: &McpHttp, tls: Arc<ClientConfig>, link: LinkState) -> Result<Self, Fault> {
        let target = HttpTarget::parse(&server.url).map_err(Fault::Absent)?;
        let bearer = server.bearer_token_file.as_deref().map(token).transpose()?;
        Ok(Self { target, tls, bearer, session: OnceLock::new(), version: OnceLock::new(), link })
    }

    /// Sets the negotiated version, which every later message then names.
    pub(super) fn agreed(&self, version: &'static str) {
        let _ = self.version.set(HeaderValue::from_static(version));
    }

    /// Sends a message that has no answer.
    pub(super) async fn send(&self, message: String) -> Result<(), Fault> {
        self.post(Method::POST, message).await.map(drop)
    }

    /// Sends a message without an answer in the background.
    pub(super) fn say_aside(self: &Arc<Self>, message: String) {
        let this = Arc::clone(self);
        tokio::spawn(async move { timeout(ASIDE, this.send(message)).await });
    }

    /// Tells the server that the session is over, if there is one.
    pub(super) fn hang_up(self: &Arc<Self>) {
        if let (Some(_), Ok(runtime)) = (self.session.get(), tokio::runtime::Handle::try_current()) {
            let this = Arc::clone(self);
            runtime.spawn(async move { timeout(ASIDE, this.post(Method::DELETE, String::new())).await });
        }
    }

    /// Sends a request, and waits for the answer.
    pub(super) async fn exchange(&self, id: u64, request: String) -> Result<Value, Fault> {
        let Answer { response, _connection } = self.post(Method::POST, request).await?;
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            "application/json" => {
                let body = Limited::new(response.into_body(), MAX_MESSAGE).collect().await;
                match Incoming::read(&body.map_err(|error| cut(&*error))?.to_bytes())? {
                    Incoming::Answer { id: of, answer } if of == id => answer,
                    _ => Err(broken("its answer belongs to another request")),
                }
            }
            "text/event-stream" => self.follow(id, response.into_body()).await,
            _ => Err(broken("its answer is neither JSON nor a stream of events")),
        }
    }

    /// Reads events up to the answer.
    async fn follow(&self, id: u64, body: Body) -> Result<Value, Fault> {
        let (mut events, mut asked) = (Events::default(), 0);
        let mut body = Limited::new(body, MAX_EXCHANGE);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|error| cut(&*error))?.into_data() else { continue };
            let mut messages = Vec::new();
            events.take(&data, |event| {
                messages.push(event);
                Ok(())
            })?;
            for event in messages {
                match Incoming::read(event.as_bytes())? {
                    Incoming::Answer { id: of, answer } if of == id => return answer,
                    Incoming::ToolsChanged => self.link.changed.store(true, Ordering::Relaxed),
                    Incoming::Request { answer } if asked < MAX_REQUESTS => {
                        asked += 1;
                        let _ = timeout(ASIDE, self.send(answer)).await;
                    }
                    Incoming::Answer { .. } | Incoming::Request { .. } | Incoming::Other => {}
                }
            }
        }
        Err(Fault::Lost("its stream of events ended without an answer".to_owned()))
    }

    /// Sends one request, and returns the head of its answer.
    async fn post(&self, method: Method, body: String) -> Result<Answer, Fault> {
        let HttpTarget { host, port, tls, .. } = &self.target;
        let stream = TcpStream::connect((host.as_str(), *port))
            .await
            .map_err(|error| Fault::Absent(format!("cannot connect: {}", error.kind())))?;
        let stream = if *tls {
            let name = ServerName::try_from(host.clone())
                .map_err(|_| Fault::Absent("the host has no valid name".to_owned()))?;
            let connected = TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await;
            Either::Left(connected.map_err(|error| Fault::Absent(format!("TLS failed: {}", error.kind())))?)
        } else {
            Either::Right(stream)
        };
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
        for (name, value) in [
            (AUTHORIZATION.as_str(), self.bearer.as_ref()),
            (SESSION, self.session.get()),
            (VERSION, self.version.get()),
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
        match response.status() {
            status if status.is_success() => {}
            status if status.is_redirection() => {
                return Err(broken("it answered with a redirect, and none is followed"));
            }
            StatusCode::NOT_FOUND if self.session.get().is_some() => {
                return Err(Fault::Lost("it ended the session".to_owned()));
            }
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                return Err(Fault::Absent(format!("it refuses us ({})", status.as_u16())));
            }
            status => return Err(Fault::Lost(format!("it answered with status {}", status.as_u16()))),
        }
        if let (None, Some(named)) = (self.session.get(), response.headers().get(SESSION)) {
            let plain = |byte: &u8| (0x21..=0x7e).contains(byte);
            if named.len() > MAX_SESSION || !named.as_bytes().iter().all(plain) {
                return Err(broken("its session id is invalid"));
            }
            let _ = self.session.set(named.clone());
        }
        Ok(())
    }
}

fn broken(why: &str) -> Fault {
    Fault::Broken(why.to_owned())
}

/// Returns the fault of a body that cannot be read further.
fn cut(error: &(dyn Error + Send + Sync + 'static)) -> Fault {
    if error.is::<LengthLimitError>() {
        broken("its answer is too long")
    } else {
        Fault::Lost("its answer broke off".to_owned())
    }
}

/// Reads a token from a file. An error goes only to the operator's log, because it names a path of the host.
fn token(path: &Path) -> Result<HeaderValue, Fault> {
    let read = || -> Result<HeaderValue, String> {
        let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
        if !file.metadata().is_ok_and(|meta| meta.is_file()) {
            return Err("it is not a regular file".to_owned());
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
        Fault::Absent("its token cannot be read; see the daemon's log".to_owned())
    })
}
