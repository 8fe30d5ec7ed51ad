//! Connections and requests.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::codegen::http::header::AUTHORIZATION;
use tonic::codegen::http::{Request, Response, StatusCode};

use super::door::{Door, Refused, admit, plain};
use super::held::{Held, ResponseBody};
use super::host::Hosts;
use super::runs::Runs;
use super::settings::{LARGEST_BODY, Settings};

const PATH: &str = "/mcp";
/// Until a client has to have sent a request's head: a silent one keeps another's place.
const HEAD: Duration = Duration::from_secs(10);
/// The time in which a body must arrive.
const BODY: Duration = Duration::from_secs(30);
/// Headers of one request, and bytes of all of them.
const MOST_HEADERS: usize = 64;
const LARGEST_HEAD: usize = 64 * 1024;
/// Between attempts to accept after one that failed.
const AGAIN: Duration = Duration::from_millis(100);
/// For clients that do not hang up when this stops.
const GOODBYE: Duration = Duration::from_secs(1);

/// Serves until it is told to stop.
pub async fn serve<D: Door>(
    listener: TcpListener,
    door: Arc<D>,
    settings: Settings,
    stop: CancellationToken,
) {
    let connections = Arc::new(Semaphore::new(settings.connections));
    let hosts = Arc::new(Hosts::new(&settings.hosts));
    let runs = Arc::new(Runs::new(door.clone(), settings, stop.clone()));
    let tasks = TaskTracker::new();
    let sweeper = runs.clone();
    tasks.spawn(async move { sweeper.sweep().await });
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = accept(&listener, &connections) => accepted,
        };
        let Some((stream, place)) = accepted else { continue };
        let (front, stop) =
            (Front { hosts: hosts.clone(), door: door.clone(), runs: runs.clone() }, stop.clone());
        tasks.spawn(async move {
            let _place = place;
            converse(stream, &front, stop).await;
        });
    }
    tasks.close();
    let _ = timeout(GOODBYE, tasks.wait()).await;
}

/// The next connection, as soon as there is room for it.
async fn accept(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let place = connections.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(error) => {
            // Out of descriptors, most likely: it would fail again at once, and again.
            tracing::warn!(%error, "a connection to the MCP endpoint was not accepted");
            sleep(AGAIN).await;
            None
        }
    }
}

/// One connection, until it ends or everything does.
async fn converse<D: Door>(stream: TcpStream, front: &Front<D>, stop: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| async move { Ok::<_, Infallible>(front.respond(request).await) });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_headers(MOST_HEADERS)
        .max_buf_size(LARGEST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // What a client does wrong ends its own connection and nothing else.
        _ = connection => {}
        () = stop.cancelled() => {}
    }
}

/// What requests are answered with.
struct Front<D> {
    hosts: Arc<Hosts>,
    door: Arc<D>,
    runs: Arc<Runs<D>>,
}

impl<D: Door> Front<D> {
    async fn respond(&self, request: Request<Incoming>) -> Response<Held> {
        let free = |response: Response<ResponseBody>| response.map(|body| Held::new(body, None));
        if let Err((status, message)) = self.hosts.check(request.uri(), request.headers()) {
            return free(plain(status, message));
        }
        if request.uri().path() != PATH {
            return free(plain(StatusCode::NOT_FOUND, "MCP is at /mcp"));
        }
        let token = match admit(&*self.door, request.headers()) {
            Ok(token) => token,
            Err(refused) => return free(refused.into()),
        };
        let (mut head, body) = request.into_parts();
        // Nobody behind this needs it.
        head.headers.remove(AUTHORIZATION);
        match timeout(BODY, Limited::new(body, LARGEST_BODY).collect()).await {
            Ok(Ok(body)) => match self.runs.of(token) {
                Some(endpoint) => endpoint.answer(head, body.to_bytes()).await,
                None => free(Refused::bad_token().into()),
            },
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                free(plain(StatusCode::PAYLOAD_TOO_LARGE, "the message is larger than 4 MiB"))
            }
            Ok(Err(_)) => free(plain(StatusCode::BAD_REQUEST, "the message did not come whole")),
            Err(_) => free(plain(StatusCode::REQUEST_TIMEOUT, "the message took longer than 30 s to come")),
        }
    }
}
