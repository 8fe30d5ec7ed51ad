//! HTTP/1 on the way out: each request is compared with the rule, and bodies pass as they come.
//!
//! ```text
//! program ─► gate ─► hyper as a server ─► rule, daemon ─► hyper as a client ─► server
//! ```
//!
//! After a request for a WebSocket and a response with status 101 the bytes are only passed on.

pub mod gate;
mod io;
mod rule;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder as Client, Parts, SendRequest};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1::Builder as ServerBuilder;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri};
use rustix::net::{Shutdown, shutdown};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::timeout;
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::from_egress::Body as Message;
use wire::worker::v1::{ConnectionReady, HttpRequest};

use crate::connection::Connection;
use crate::dial::dial;
use crate::orders::{End, Inspect};
use crate::splice::{Early, splice, try_write, with_buffer};
use io::{Fault, Program, Server};
use rule::{Refused, Rule};

/// Most bytes that hyper buffers of a connection, with space for a head.
const BUFFER: usize = 2 * gate::HEAD;
/// Time for a refused program to read the reason.
const LAST_WORDS: Duration = Duration::from_secs(1);

type Body = Either<Incoming, Full<Bytes>>;

/// A connection over HTTP.
struct Exchange {
    connection: Rc<Connection>,
    rule: Rule,
    fault: Rc<Fault>,
    /// Cause of a response that this process gave, with which the connection ends.
    verdict: Cell<Option<Cause>>,
    /// The connection to the server, if no request is under way.
    sender: RefCell<Option<SendRequest<Incoming>>>,
    server: RefCell<Option<Upstream>>,
    server_ended: Notify,
    has_ended: Cell<bool>,
    /// Set once the server has answered.
    responded: Cell<bool>,
    upgraded: Cell<bool>,
    /// Set while a request has no response.
    waiting: Cell<bool>,
}

/// The task that drives the connection to the server. It ends with its parts, if there was no error.
struct Upstream(JoinHandle<Option<Parts<Server>>>);

impl Drop for Upstream {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Serves a connection over HTTP, to its end.
pub(crate) async fn serve(connection: Rc<Connection>, inspect: Inspect) -> Result<(), Cause> {
    let exchange = Rc::new(Exchange {
        rule: Rule::new(inspect, connection.destination),
        fault: Rc::default(),
        verdict: Cell::new(None),
        sender: RefCell::default(),
        server: RefCell::default(),
        server_ended: Notify::new(),
        has_ended: Cell::new(false),
        responded: Cell::new(false),
        upgraded: Cell::new(false),
        waiting: Cell::new(false),
        connection,
    });
    let over = exchange.serve().await;
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
    async fn serve(self: &Rc<Self>) -> Result<(), Cause> {
        let io = Program::new(Rc::clone(&self.connection), Rc::clone(&self.fault));
        let exchange = Rc::clone(self);
        let service = service_fn(move |request| {
            let exchange = Rc::clone(&exchange);
            // Hyper moves the future.
            Box::pin(async move { exchange.handle(request).await })
        });
        let mut builder = ServerBuilder::new();
        // A program may close its side after its request and wait for the answer.
        builder.half_close(true);
        builder.auto_date_header(false).preserve_header_case(true).max_buf_size(BUFFER);
        let mut served = builder.serve_connection(io, service);
        let result = loop {
            tokio::select! {
                result = poll_fn(|cx| served.poll_without_shutdown(cx)) => break result,
                cause = self.fault.wait() => {
                    drop(served);
                    return self.fail(cause).await;
                }
                cause = self.cut_off() => return Err(cause),
                () = self.server_ended.notified(), if !self.waiting.get() && !self.upgraded.get() => {
                    Pin::new(&mut served).graceful_shutdown();
                }
            }
        };
        if let Some(cause) = self.fault.get() {
            drop(served);
            return self.fail(cause).await;
        }
        if result.is_ok() && self.upgraded.get() {
            let parts = served.into_parts();
            let held = parts.io.into_rest();
            return self.pass_on([&parts.read_buf[..], &held].concat()).await;
        }
        drop(served);
        let malformed = self.fault.malformed.get().then_some(Cause::Malformed);
        match self.verdict.get().or(malformed) {
            Some(cause) => {
                self.close().await;
                Err(cause)
            }
            None if result.is_ok() => {
                self.close().await;
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
            let end = self.connection.orders.ended().await;
            if self.waiting.get() && !self.responded.get() && !end.http_body.is_empty() {
                std::future::pending::<()>().await;
            }
            Cause::Ended
        };
        let idle = async {
            loop {
                self.connection.meter.idle().await;
                // The daemon may take its time.
                if self.server.borrow().is_some() {
                    return Cause::Idle;
                }
                self.connection.meter.touch();
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
            end = self.connection.orders.ended() => Err(self.ended(end)),
        };
        let response = match response {
            Ok(response) => response,
            Err(Some(refused)) => {
                self.verdict.set(Some(refused.cause));
                refusal(refused)
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
        self.rule.check(&request).map_err(Some)?;
        let may_upgrade = self.rule.upgrade(request.headers_mut()).map_err(Some)?;
        let mut record = rule::record(&request);
        let sender = self.sender.take();
        let mut sender = match sender {
            Some(sender) => {
                self.connection.say(Message::Request(record.clone())).await;
                sender
            }
            None => self.connect(&record).await?,
        };
        // The server is addressed directly, so it gets a target without a host.
        if let Some(target) = request.uri().path_and_query() {
            *request.uri_mut() = Uri::from(target.clone());
        }
        sender.ready().await.map_err(|_| self.failed(Cause::Closed))?;
        let response = sender.send_request(request).await.map_err(|_| self.failed(Cause::Reset))?;
        self.responded.set(true);
        self.connection.meter.touch();
        record.status = response.status().as_u16().into();
        let is_upgrade = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        self.connection.say(Message::Request(record)).await;
        if is_upgrade && !may_upgrade {
            return Err(self.failed(Cause::WrongScheme));
        }
        self.upgraded.set(is_upgrade);
        self.sender.replace(Some(sender));
        Ok(response.map(Either::Left))
    }

    /// Asks the daemon with the first request, and connects.
    async fn connect(
        self: &Rc<Self>,
        record: &HttpRequest,
    ) -> Result<SendRequest<Incoming>, Option<Refused>> {
        let request = Some(record.clone());
        let ready = ConnectionReady { request, ..ConnectionReady::default() };
        self.connection.say(Message::Connection(ready)).await;
        let addresses = self.connection.orders.addresses().await.map_err(|end| self.ended(end))?;
        let stream = dial(&addresses, &self.connection.attempt).await.map_err(|cause| {
            let words = "No address of the server could be connected to.".to_owned();
            Some(Refused { status: StatusCode::BAD_GATEWAY, cause, words })
        })?;
        self.connection.meter.touch();
        let (connection, fault) = (Rc::clone(&self.connection), Rc::clone(&self.fault));
        let mut builder = Client::new();
        builder.preserve_header_case(true).max_buf_size(2 * BUFFER);
        let io = Server { stream, connection, fault };
        let (sender, mut driver) = builder.handshake(io).await.map_err(|_| self.failed(Cause::Reset))?;
        let exchange = Rc::clone(self);
        let driver = spawn_local(async move {
            let result = poll_fn(|cx| driver.poll_without_shutdown(cx)).await;
            exchange.has_ended.set(true);
            exchange.server_ended.notify_one();
            result.is_ok().then(|| driver.into_parts())
        });
        self.server.replace(Some(Upstream(driver)));
        Ok(sender)
    }

    /// Returns the daemon's words for a request that it ends.
    fn ended(&self, end: End) -> Option<Refused> {
        if end.http_body.is_empty() || self.responded.get() {
            return self.failed(Cause::Ended);
        }
        Some(Refused::forbidden(Cause::Ended, end.http_body))
    }

    /// Ends the connection without a response.
    fn failed(&self, cause: Cause) -> Option<Refused> {
        self.fault.set(cause);
        None
    }

    /// Ends a connection after a fault. A malformed body has a response, if none has begun.
    async fn fail(&self, cause: Cause) -> Result<(), Cause> {
        if cause == Cause::Malformed && self.waiting.get() {
            let _ = try_write(&self.connection.program, BAD_REQUEST);
            self.close().await;
        }
        Err(cause)
    }

    /// Passes the bytes of a connection that was upgraded.
    async fn pass_on(&self, to_server: Vec<u8>) -> Result<(), Cause> {
        let server = self.server.take();
        let Some(mut server) = server else { return Err(Cause::Reset) };
        let parts = (&mut server.0).await.ok().flatten().ok_or(Cause::Reset)?;
        let early = Early { to_server, to_program: parts.read_buf.to_vec() };
        let connection = &self.connection;
        tokio::select! {
            passed = splice(&connection.program, &parts.io.stream, &connection.meter, early) => passed,
            end = connection.orders.ended() => Err(end.into()),
            () = connection.meter.idle() => Err(Cause::Idle),
        }
    }

    /// Closes the connection of the program so that it can read the last response.
    ///
    /// The kernel would reset a connection on which bytes arrive that are not read.
    async fn close(&self) {
        let program = &self.connection.program;
        if shutdown(program, Shutdown::Write).is_err() {
            return;
        }
        let drained = async {
            while program.readable().await.is_ok() {
                match with_buffer(|buffer| program.try_read(buffer)) {
                    Ok(1..) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    _ => return,
                }
            }
        };
        let _ = timeout(LAST_WORDS, drained).await;
    }
}

/// Response to a malformed body.
const BAD_REQUEST: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Returns the response that says why a request is refused.
fn refusal(refused: Refused) -> Response<Body> {
    let mut response = Response::new(Either::Right(Full::new(Bytes::from(refused.words + "\n"))));
    *response.status_mut() = refused.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

#[cfg(test)]
mod tests;
