//! HTTP on the way out: each request is compared with the rule, and bodies pass as they come.
//!
//! ```text
//! program ─► gate ─► hyper as a server ─► rule, daemon ─► hyper as a client ─► server
//! ```
//!
//! The streams may be those of a connection whose TLS is ended here. HTTP/2, which has no gate, is in `http2.rs`.
//!
//! After a request for a WebSocket and a response with status 101 the bytes are only passed on.

mod body;
pub mod gate;
mod git;
mod http2;
mod io;
mod link;
mod requests;
mod rule;
mod tally;
mod tasks;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::server::conn::http1::Builder as ServerBuilder;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use rustix::net::{Shutdown, shutdown};
use tokio::io::{AsyncWriteExt as _, copy_bidirectional_with_sizes};
use tokio::sync::Notify;
use tokio::time::timeout;
use wire::worker::v1::connection_ended::Cause;

use crate::connection::Connection;
use crate::orders::{End, Inspect};
use crate::splice::{Early, splice, with_buffer};
use crate::stream::{ProgramStream, Raw, ServerStream, Stream};
use body::{Outgoing, Shown};
pub(crate) use http2::serve as serve_http2;
use io::Program;
use link::Link;
pub(crate) use requests::Requests;
pub(crate) use rule::Refused;

/// Most bytes that hyper buffers of a connection, with space for a head.
const BUFFER: usize = 2 * gate::HEAD;
/// Time for a refused program to read the reason.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Bytes of each direction of a WebSocket over TLS that are read at once.
const WEBSOCKET: usize = 8 * 1024;

type Body = Either<Shown, Full<Bytes>>;

/// A connection over HTTP.
struct Exchange {
    requests: Requests,
    /// Cause of a response that this process gave, with which the connection ends.
    verdict: Cell<Option<Cause>>,
    /// The connection to the server, if no request is under way.
    sender: RefCell<Option<SendRequest<Outgoing>>>,
    server: RefCell<Option<Link>>,
    server_ended: Notify,
    has_ended: Cell<bool>,
    /// Set once the server has answered.
    responded: Cell<bool>,
    upgraded: Cell<bool>,
    /// Set while a request has no response.
    waiting: Cell<bool>,
}

/// Serves a connection over HTTP, to its end. The server is connected to with the first request.
pub(crate) async fn serve(connection: Rc<Connection>, inspect: Inspect) -> Result<(), Cause> {
    let stream = Stream::Plain(Raw::new(Rc::clone(&connection), Vec::new()));
    serve_http1(Requests::new(connection, Rc::default(), inspect), stream, None).await
}

/// Serves the streams of a connection over HTTP/1, to their end.
pub(crate) async fn serve_http1(
    requests: Requests,
    program: ProgramStream,
    server: Option<ServerStream>,
) -> Result<(), Cause> {
    let connection = Rc::clone(&requests.connection);
    let exchange = Rc::new(Exchange {
        requests,
        verdict: Cell::new(None),
        sender: RefCell::default(),
        server: RefCell::default(),
        server_ended: Notify::new(),
        has_ended: Cell::new(false),
        responded: Cell::new(false),
        upgraded: Cell::new(false),
        waiting: Cell::new(false),
    });
    if let Some(server) = server {
        let sender = exchange.link(server).await.map_err(|_| Cause::Reset)?;
        exchange.sender.replace(Some(sender));
    }
    let over = tokio::select! {
        over = exchange.serve(program) => over,
        never = connection.deliver() => match never {},
    };
    exchange.sender.take();
    let server = exchange.server.take();
    if let Some(mut server) = server {
        // The task has the socket of the server, and a share of the connection.
        server.0.abort();
        let _ = (&mut server.0).await;
    }
    over
}

impl Exchange {
    async fn serve(self: &Rc<Self>, program: ProgramStream) -> Result<(), Cause> {
        let fault = &self.requests.fault;
        let exchange = Rc::clone(self);
        let service = service_fn(move |request| {
            let exchange = Rc::clone(&exchange);
            // Hyper moves the future.
            Box::pin(async move { exchange.handle(request).await })
        });
        let mut builder = ServerBuilder::new();
        // A program may close its side after its request and wait for the answer. One that ends TLS has left, and the server gets that end, too.
        builder.half_close(matches!(program, Stream::Plain(_)));
        builder.auto_date_header(false).preserve_header_case(true).max_buf_size(BUFFER);
        let io = Program::new(program, Rc::clone(fault));
        let mut served = builder.serve_connection(io, service);
        let result = loop {
            tokio::select! {
                // To the end, so that hyper has written all: its buffer is not among the parts. `Program` stays open.
                result = &mut served => break result,
                cause = fault.wait() => return self.fail(cause, served.into_parts().io).await,
                cause = self.cut_off() => return Err(cause),
                // Hyper would notice it when it writes. The part of a budget that the request holds is free before.
                () = self.requests.connection.broken(), if self.requests.meters => return Err(Cause::Reset),
                () = self.server_ended.notified(), if !self.waiting.get() && !self.upgraded.get() => {
                    Pin::new(&mut served).graceful_shutdown();
                }
            }
        };
        let parts = served.into_parts();
        if let Some(cause) = fault.get() {
            return self.fail(cause, parts.io).await;
        }
        if result.is_ok() && self.upgraded.get() {
            let (stream, held) = parts.io.into_rest();
            return self.pass_on(stream, [&parts.read_buf[..], &held].concat()).await;
        }
        let malformed = fault.malformed.get().then_some(Cause::Malformed);
        match self.verdict.get().or(malformed) {
            Some(cause) => {
                close(&self.requests.connection, parts.io, b"").await;
                Err(cause)
            }
            None if result.is_ok() => {
                close(&self.requests.connection, parts.io, b"").await;
                Ok(())
            }
            None => Err(Cause::Reset),
        }
    }

    /// Waits until the daemon ends the connection, or it has been idle for too long.
    ///
    /// Until the server has answered, a request that is under way is answered with the daemon's words instead.
    async fn cut_off(&self) -> Cause {
        let ended = async {
            let end = self.requests.connection.orders.ended().await;
            if self.waiting.get() && !self.responded.get() && !end.http_body.is_empty() {
                std::future::pending::<()>().await;
            }
            Cause::Ended
        };
        let idle = async {
            loop {
                self.requests.connection.meter.idle().await;
                // The daemon may take its time.
                if self.server.borrow().is_some() && !self.requests.is_asking() {
                    return Cause::Idle;
                }
                self.requests.connection.meter.touch();
            }
        };
        tokio::select! {
            cause = ended => cause,
            cause = idle => cause,
        }
    }

    /// Answers one request.
    async fn handle(self: Rc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        self.waiting.set(true);
        let response = tokio::select! {
            biased;
            response = self.forward(request) => response,
            end = self.requests.connection.orders.ended() => Err(self.ended(&end)),
        };
        let response = match response {
            Ok(response) => response,
            Err(Some(refused)) => {
                self.verdict.set(Some(refused.cause));
                let mut response = refusal(refused);
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                response
            }
            // The connection ends by the fault.
            Err(None) => std::future::pending().await,
        };
        self.waiting.set(false);
        if self.has_ended.get() {
            self.server_ended.notify_one();
        }
        Ok(response)
    }

    /// Sends a request to the server. `None` as the error if the connection ends without a response.
    async fn forward(
        self: &Rc<Self>,
        mut request: Request<Incoming>,
    ) -> Result<Response<Body>, Option<Refused>> {
        let mut record = self.requests.check(&request).await.map_err(Some)?;
        let may_upgrade = self.requests.rule.upgrade(request.headers_mut()).map_err(Some)?;
        let sender = self.sender.take();
        let mut sender = match sender {
            Some(sender) => {
                self.requests.report(&record).await;
                sender
            }
            None => self.connect(&record).await?,
        };
        let mut released = self.requests.release(&mut request, &record).await.map_err(Some)?;
        self.requests.address(&mut request).map_err(Some)?;
        if sender.ready().await.is_err() {
            let Some(refused) = released.closed else { return Err(self.failed(Cause::Closed)) };
            git::discard(request.body_mut()).await;
            return Err(Some(refused));
        }
        let sent = sender.send_request(self.requests.outgoing(request, &mut released)).await;
        let response = sent.map_err(|_| self.failed(Cause::Reset))?;
        self.responded.set(true);
        self.requests.connection.meter.touch();
        record.status = response.status().as_u16().into();
        let is_upgrade = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        self.requests.report(&record).await;
        if is_upgrade && !may_upgrade {
            return Err(self.failed(Cause::WrongScheme));
        }
        self.upgraded.set(is_upgrade);
        self.sender.replace(Some(sender));
        Ok(self.requests.shown(response, released).map(Either::Left))
    }

    /// Returns the daemon's words for a request that it ends.
    fn ended(&self, end: &End) -> Option<Refused> {
        if end.http_body.is_empty() || self.responded.get() {
            return self.failed(Cause::Ended);
        }
        Some(Refused::forbidden(Cause::Ended, &end.http_body))
    }

    /// Ends the connection without a response.
    fn failed(&self, cause: Cause) -> Option<Refused> {
        self.requests.fault.set(cause);
        None
    }

    /// Ends a connection after a fault. A malformed body has a response, if none has begun.
    async fn fail(&self, cause: Cause, program: Program) -> Result<(), Cause> {
        if cause == Cause::Malformed && self.waiting.get() {
            close(&self.requests.connection, program, BAD_REQUEST).await;
        }
        Err(cause)
    }

    /// Passes the bytes of a connection that was upgraded.
    async fn pass_on(&self, mut program: ProgramStream, to_server: Vec<u8>) -> Result<(), Cause> {
        let server = self.server.take();
        let Some(mut server) = server else { return Err(Cause::Reset) };
        let parts = (&mut server.0).await.ok().flatten().ok_or(Cause::Reset)?;
        let connection = &self.requests.connection;
        let is_plain = matches!(program, Stream::Plain(_));
        let passed = async {
            match parts.io.stream {
                Stream::Plain(server) if is_plain => {
                    let early = Early { to_server, to_program: parts.read_buf.to_vec() };
                    splice(&connection.program, &server.stream, &connection.meter, early).await
                }
                mut server => {
                    let passed = async {
                        server.write_all(&to_server).await?;
                        program.write_all(&parts.read_buf).await?;
                        copy_bidirectional_with_sizes(&mut program, &mut server, WEBSOCKET, WEBSOCKET).await
                    };
                    match passed.await {
                        // Many programs end TLS without a word. A WebSocket says its end itself.
                        Err(error) if error.kind() != ErrorKind::UnexpectedEof => {
                            Err(self.requests.fault.get().unwrap_or(Cause::Reset))
                        }
                        _ => Ok(()),
                    }
                }
            }
        };
        tokio::select! {
            passed = passed => passed,
            end = connection.orders.ended() => Err(end.into()),
            () = connection.meter.idle() => Err(Cause::Idle),
        }
    }
}

/// Sends the last bytes, and closes the connection of the program so that it can read them.
async fn close(connection: &Connection, mut program: Program, bytes: &[u8]) {
    let _ = timeout(LAST_WORDS, program.end(bytes)).await;
    drain(connection).await;
}

/// Closes one side of the connection of the program, and waits for the other.
///
/// The kernel would reset a connection on which bytes arrive that are not read.
async fn drain(connection: &Connection) {
    let program = &connection.program;
    if shutdown(program, Shutdown::Write).is_err() {
        return;
    }
    let drained = async {
        while program.readable().await.is_ok() {
            match with_buffer(|buffer| program.try_read(buffer)) {
                Ok(1..) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
    };
    let _ = timeout(LAST_WORDS, drained).await;
}

/// Response to a malformed body.
const BAD_REQUEST: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Returns the response that says why a request is refused.
fn refusal(refused: Refused) -> Response<Body> {
    let mut response = Response::new(Either::Right(Full::new(refused.body)));
    *response.status_mut() = refused.status;
    response.headers_mut().insert(CONTENT_TYPE, refused.content_type);
    if refused.retry_after > 0 {
        response.headers_mut().insert(RETRY_AFTER, refused.retry_after.into());
    }
    response
}

#[cfg(test)]
mod tests;
