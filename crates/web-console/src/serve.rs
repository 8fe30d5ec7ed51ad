//! Accepts the connections of browsers. Connections, heads and handshakes are bounded, as on each listener of the daemon.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::{Addresses, ConnectionLimits, Slot};
use axum::Router;
use axum::body::Body;
use axum::middleware::from_fn_with_state;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::codegen::http::Request;
use tower::ServiceExt as _;

use crate::access::Access;
use crate::connection::Connection;
use crate::doors::Doors;
use crate::error::Problem;
use crate::{Parts, State, guard, routes};

/// Most connections at the same time. A browser opens up to six.
const CONNECTIONS: usize = 256;
/// Most connections of one address. Browsers on this host, or behind one proxy, have one address.
const CONNECTIONS_PER_ADDRESS: usize = 192;
/// Most new connections of an address in a second over TLS, whose handshakes cost the daemon more than the browser.
const NEW_WITH_TLS: u32 = 50;
/// Time that a browser has to send a request's head.
const HEAD: Duration = Duration::from_secs(15);
/// Most headers of one request, and most bytes of all of them.
const MOST_HEADERS: usize = 64;
const LARGEST_HEAD: usize = 32 * 1024;
/// Time for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Wait after a failure to accept, such as too many open files.
const AGAIN: Duration = Duration::from_millis(100);
/// Time for browsers to disconnect at the stop.
const GOODBYE: Duration = Duration::from_secs(1);

/// Serves until the stop.
pub async fn serve(listener: TcpListener, access: Access, doors: Arc<Doors>, stop: CancellationToken) {
    let addresses = Addresses::new(ConnectionLimits {
        connections: CONNECTIONS,
        per_address: CONNECTIONS_PER_ADDRESS,
        per_second: if access.has_tls() { NEW_WITH_TLS } else { u32::MAX },
        spare: 0,
    });
    let state = State(Arc::new(Parts { access, doors, stop: stop.clone() }));
    let router = routes()
        .fallback(async || Problem::not_found())
        .layer(from_fn_with_state(state.clone(), guard::guard))
        .with_state(state.clone());
    let tasks = TaskTracker::new();
    tasks.spawn(state.0.doors.clone().keep_sessions(stop.clone()));
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection to the console could not be accepted");
                sleep(AGAIN).await;
                continue;
            }
        };
        let address = from.ip().to_canonical();
        let Some(slot) = addresses.enter(address, Instant::now()) else {
            // Other work goes first: a flood is rejected with the processor time that is left.
            drop(stream);
            tokio::task::yield_now().await;
            continue;
        };
        tasks.spawn(converse(stream, (address, Arc::new(slot)), router.clone(), state.clone()));
    }
    tasks.close();
    let _ = timeout(GOODBYE, tasks.wait()).await;
}

/// Answers one connection, until it ends, another replaces it, or the daemon stops.
async fn converse(stream: TcpStream, (address, slot): (IpAddr, Arc<Slot>), router: Router, state: State) {
    let _ = stream.set_nodelay(true);
    let (evicted, stop) = (slot.evicted(), state.0.stop.clone());
    let served = async {
        let Ok(Ok((stream, certificate))) = timeout(HANDSHAKE, state.0.access.open(stream)).await else {
            tracing::debug!(%address, "a TLS handshake of the console failed");
            return;
        };
        let connection = Connection { address, certificate, slot };
        let service = service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(connection.clone());
            let answered = router.clone().oneshot(request);
            async move { Ok::<_, Infallible>(answered.await.unwrap_or_else(|never| match never {})) }
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .max_headers(MOST_HEADERS)
            .max_buf_size(LARGEST_HEAD);
        // A browser's error ends only its own connection.
        let _ = http.serve_connection(TokioIo::new(stream), service).await;
    };
    tokio::select! {
        () = served => {}
        () = evicted => {}
        () = stop.cancelled() => {}
    }
}
