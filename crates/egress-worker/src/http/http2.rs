//! HTTP/2 on the way out: each request of a connection whose TLS is ended here.
//!
//! One connection of the program has one connection to the server. Servers push nothing, requests keep the protocol, and hyper bounds
//! what both sides can ask of this process: streams, heads, windows, and streams that are reset.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;

use http_body_util::Either;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder as Client, SendRequest};
use hyper::server::conn::http2::Builder as ServerBuilder;
use hyper::service::service_fn;
use hyper::{Request, Response};
use tokio::sync::Notify;
use tokio::time::timeout;
use wire::worker::v1::connection_ended::Cause;

use super::body::{BodyError, Outgoing};
use super::git;
use super::tasks::Tasks;
use super::{Body, LAST_WORDS, Refused, Requests, drain, refusal};
use crate::stream::{Hyper, ProgramStream, ServerStream};

/// Most requests at the same time.
const STREAMS: u32 = 128;
/// Most bytes of a head, as HPACK counts them.
const HEAD: u32 = 32 * 1024;
/// Most streams that a side has reset, and that wait.
const RESET: usize = 32;
/// Bytes that a program may send ahead: of a stream, and of all together. It is near.
const WINDOW_OF_PROGRAM: (u32, u32) = (128 * 1024, 1024 * 1024);
/// Bytes that a server may send ahead. It may be far away.
const WINDOW_OF_SERVER: (u32, u32) = (256 * 1024, 1024 * 1024);
/// Most bytes of a stream that wait to be sent.
const WAITING: usize = 64 * 1024;

/// A connection over HTTP/2.
struct Streams {
    requests: Requests,
    /// The connection to the server; `None` if all requests are refused.
    sender: Option<SendRequest<Outgoing>>,
    /// Cause of a response that this process gave, with which the connection ends.
    verdict: Cell<Option<Cause>>,
    /// Told when no further request is to come.
    closing: Rc<Notify>,
}

/// Serves the streams of a connection over HTTP/2, to their end.
pub(crate) async fn serve(
    requests: Requests,
    program: ProgramStream,
    server: Option<ServerStream>,
) -> Result<(), Cause> {
    let (connection, tasks) = (Rc::clone(&requests.connection), Tasks::default());
    let over = tokio::select! {
        over = run(requests, program, server, &tasks) => over,
        never = connection.deliver() => match never {},
    };
    // They have a share of the connection.
    tasks.end().await;
    if over.is_ok() {
        drain(&connection).await;
    }
    over
}

async fn run(
    requests: Requests,
    program: ProgramStream,
    server: Option<ServerStream>,
    tasks: &Tasks,
) -> Result<(), Cause> {
    let closing = Rc::new(Notify::new());
    let sender = match server {
        Some(server) => Some(link(server, tasks, &closing).await?),
        None => None,
    };
    let streams = Rc::new(Streams { requests, sender, verdict: Cell::new(None), closing });
    let shared = Rc::clone(&streams);
    let service = service_fn(move |request| {
        let streams = Rc::clone(&shared);
        // Hyper moves the future.
        Box::pin(async move { streams.handle(request).await })
    });
    let mut builder = ServerBuilder::new(tasks.clone());
    builder
        .auto_date_header(false)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEAD)
        .max_pending_accept_reset_streams(RESET)
        .max_local_error_reset_streams(RESET)
        .initial_stream_window_size(WINDOW_OF_PROGRAM.0)
        .initial_connection_window_size(WINDOW_OF_PROGRAM.1)
        .max_send_buf_size(WAITING);
    let mut exchange = pin!(builder.serve_connection(Hyper::program(program), service));
    let (connection, fault) = (&streams.requests.connection, &streams.requests.fault);
    loop {
        tokio::select! {
            result = &mut exchange => {
                let cause = fault.get().or(streams.verdict.get());
                return cause.map_or_else(|| result.map_err(|_| Cause::Reset), Err);
            }
            cause = fault.wait() => return Err(cause),
            end = connection.orders.ended() => {
                // The requests under way are answered with the daemon's words.
                exchange.as_mut().graceful_shutdown();
                if !end.http_body.is_empty() {
                    let _ = timeout(LAST_WORDS, exchange).await;
                }
                return Err(end.into());
            }
            () = connection.meter.idle() => {
                // The daemon may take its time.
                if !streams.requests.is_asking() {
                    return Err(Cause::Idle);
                }
                connection.meter.touch();
            }
            () = streams.closing.notified() => exchange.as_mut().graceful_shutdown(),
        }
    }
}

/// Begins HTTP/2 with the server.
async fn link(
    server: ServerStream,
    tasks: &Tasks,
    closing: &Rc<Notify>,
) -> Result<SendRequest<Outgoing>, Cause> {
    let mut builder = Client::new(tasks.clone());
    builder
        .max_concurrent_reset_streams(RESET)
        .max_pending_accept_reset_streams(RESET)
        .max_local_error_reset_streams(RESET)
        .max_header_list_size(HEAD)
        .initial_stream_window_size(WINDOW_OF_SERVER.0)
        .initial_connection_window_size(WINDOW_OF_SERVER.1)
        .max_send_buf_size(WAITING);
    let handshake = builder.handshake(Hyper::server(server)).await;
    let (sender, driver) = handshake.map_err(|_| Cause::Reset)?;
    let closing = Rc::clone(closing);
    tasks.spawn(async move {
        // Requests under way have the error, too.
        let _ = driver.await;
        closing.notify_one();
    });
    Ok(sender)
}

impl Streams {
    /// Answers one request. An error resets its stream.
    async fn handle(self: Rc<Self>, request: Request<Incoming>) -> Result<Response<Body>, BodyError> {
        let response = tokio::select! {
            biased;
            // First, because a request that comes after the end must not go out.
            end = self.requests.connection.orders.ended() => {
                Err(Refused::forbidden(Cause::Ended, &end.http_body))
            }
            response = self.forward(request) => response?,
        };
        Ok(response.unwrap_or_else(|refused| {
            // A request that the daemon refuses is one of many.
            if refused.cause != Cause::RequestRefused {
                self.verdict.set(self.verdict.get().or(Some(refused.cause)));
                self.closing.notify_one();
            }
            refusal(refused)
        }))
    }

    /// Sends a request to the server. The outer error resets its stream.
    async fn forward(
        &self,
        mut request: Request<Incoming>,
    ) -> Result<Result<Response<Body>, Refused>, BodyError> {
        let mut record = match self.requests.check(&request).await {
            Ok(record) => record,
            Err(refused) => return Ok(Err(refused)),
        };
        self.requests.report(&record).await;
        let mut released = match self.requests.release(&mut request, &record).await {
            Ok(released) => released,
            Err(refused) => return Ok(Err(refused)),
        };
        if let Err(refused) = Requests::address_http2(&mut request) {
            return Ok(Err(refused));
        }
        let mut sender = self.sender.clone().ok_or("no connection to the server")?;
        if let Err(error) = sender.ready().await {
            let Some(refused) = released.closed else { return Err(error.into()) };
            git::discard(request.body_mut()).await;
            return Ok(Err(refused));
        }
        let response = sender.send_request(self.requests.outgoing(request, &mut released)).await?;
        self.requests.connection.meter.touch();
        record.status = response.status().as_u16().into();
        self.requests.report(&record).await;
        Ok(Ok(self.requests.shown(response, released).map(Either::Left)))
    }
}
