//! Accepts connections and answers requests.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::{Addresses, ConnectionLimits, CurrentShare, Owner, Purpose, ShareLimits, Shares, Slot};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::codegen::http::header::{AUTHORIZATION, CONNECTION, HeaderValue};
use tonic::codegen::http::{Request, Response, StatusCode};

use super::access::{Access, Refused, admit, plain};
use super::held::{Held, ResponseBody};
use super::host::Hosts;
use super::runs::Runs;
use super::settings::{LARGEST_BODY, Settings};

const PATH: &str = "/mcp";
/// Time that a client has to send a request's head: a silent one takes up a connection.
const HEAD: Duration = Duration::from_secs(10);
/// Time that a client has to send a body.
const BODY: Duration = Duration::from_secs(30);
/// Most headers of one request, and most bytes of all of them.
const MOST_HEADERS: usize = 64;
const LARGEST_HEAD: usize = 64 * 1024;
/// Time between attempts to accept after a failure.
const AGAIN: Duration = Duration::from_millis(100);
/// Time for clients to disconnect at the stop.
const GOODBYE: Duration = Duration::from_secs(1);

/// Serves until the stop.
pub async fn serve(listener: TcpListener, access: Access, settings: Settings, stop: CancellationToken) {
    let access = Arc::new(access);
    let addresses = Addresses::new(connection_limits(settings.connections));
    let shares = Shares::new(share_limits(settings.connections));
    let hosts = Arc::new(Hosts::new(&settings.hosts));
    let runs = Arc::new(Runs::new(access.clone(), settings, stop.clone()));
    let tasks = TaskTracker::new();
    let sweeper = runs.clone();
    tasks.spawn(async move { sweeper.sweep().await });
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = accept(&listener, &addresses) => accepted,
        };
        let Some((stream, slot)) = accepted else {
            // Other work goes first: a flood is rejected with the processor time that is left.
            yield_now().await;
            continue;
        };
        let client = Client { slot, share: CurrentShare::none_of(shares.clone()) };
        let (hosts, access, runs) = (hosts.clone(), access.clone(), runs.clone());
        let front = Front { hosts, access, runs, client };
        tasks.spawn(converse(stream, front, stop.clone()));
    }
    tasks.close();
    let _ = timeout(GOODBYE, tasks.wait()).await;
}

/// Returns the limits of connections by address.
///
/// New ones in a second are not limited: clients behind one proxy, or on this host, have one address.
fn connection_limits(connections: usize) -> ConnectionLimits {
    ConnectionLimits {
        connections,
        per_address: most_of_address(connections),
        per_second: u32::MAX,
        spare: 0,
    }
}

/// Returns the limits of connections by their tokens: half of them for one principal's runs, an eighth for one run.
fn share_limits(connections: usize) -> ShareLimits {
    ShareLimits { per_principal: connections, per_address: most_of_address(connections) }
}

fn most_of_address(connections: usize) -> usize {
    connections - connections / 4
}

/// Returns the next connection, if there is space for it.
async fn accept(listener: &TcpListener, addresses: &Addresses) -> Option<(TcpStream, Slot)> {
    match listener.accept().await {
        Ok((stream, address)) => {
            let slot = addresses.enter(address.ip().to_canonical(), Instant::now())?;
            Some((stream, slot))
        }
        Err(error) => {
            // Probably out of descriptors: another attempt would fail at once.
            tracing::warn!(%error, "a connection to the MCP endpoint was not accepted");
            sleep(AGAIN).await;
            None
        }
    }
}

/// Answers one connection, until it ends, another replaces it, or the server stops.
async fn converse(stream: TcpStream, front: Front, stop: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let (front, evicted) = (&front, front.client.slot.evicted());
    let service = service_fn(|request| async move { Ok::<_, Infallible>(front.respond(request).await) });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_headers(MOST_HEADERS)
        .max_buf_size(LARGEST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // A client's error ends only its own connection.
        _ = connection => {}
        () = evicted => {}
        () = stop.cancelled() => {}
    }
}

/// Answers the requests of one connection.
struct Front {
    hosts: Arc<Hosts>,
    access: Arc<Access>,
    runs: Arc<Runs>,
    client: Client,
}

/// The client of one connection.
struct Client {
    slot: Slot,
    share: CurrentShare,
}

impl Client {
    /// Counts the connection for these owners from now on. Returns true if they may have another.
    fn belongs_to(&self, owners: Vec<Owner>) -> bool {
        let belongs = self.share.belongs_to(owners, Purpose::Other).is_ok();
        if belongs {
            self.slot.prove();
        }
        belongs
    }
}

impl Front {
    async fn respond(&self, request: Request<Incoming>) -> Response<Held> {
        let free = |response: Response<ResponseBody>| response.map(|body| Held::new(body, None));
        if let Err((status, message)) = self.hosts.check(request.uri(), request.headers()) {
            return free(plain(status, message));
        }
        if request.uri().path() != PATH {
            return free(plain(StatusCode::NOT_FOUND, "MCP is at /mcp"));
        }
        let (token, owners) = match admit(&self.access, request.headers()) {
            Ok(admitted) => admitted,
            Err(refused) => return free(refused.into()),
        };
        if !self.client.belongs_to(owners) {
            let message = "this run, or all runs of its owner, have too many connections: close one";
            return free(closing(plain(StatusCode::TOO_MANY_REQUESTS, message)));
        }
        let Some(endpoint) = self.runs.of(token) else { return free(Refused::bad_token().into()) };
        let Some(slot) = endpoint.enter() else {
            let message = "this run has too many requests at the same time: wait for one to end";
            return free(closing(plain(StatusCode::TOO_MANY_REQUESTS, message)));
        };
        let (mut head, body) = request.into_parts();
        // The endpoint does not need it.
        head.headers.remove(AUTHORIZATION);
        match timeout(BODY, Limited::new(body, LARGEST_BODY).collect()).await {
            Ok(Ok(body)) => endpoint.answer(slot, head, body.to_bytes()).await,
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                free(plain(StatusCode::PAYLOAD_TOO_LARGE, "the message is larger than 4 MiB"))
            }
            Ok(Err(_)) => free(plain(StatusCode::BAD_REQUEST, "the message is incomplete")),
            Err(_) => free(plain(StatusCode::REQUEST_TIMEOUT, "the message took longer than 30 s to arrive")),
        }
    }
}

/// Has the connection closed after this response: the rest of the request is not read.
fn closing(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
