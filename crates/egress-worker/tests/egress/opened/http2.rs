//! Opened connections over HTTP/2.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use wire::worker::v1::PathList;
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::model_usage::Extent;

use super::*;
use crate::process::private_memory;

pub(super) type Payload = BoxBody<Bytes, Infallible>;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn full(bytes: impl Into<Bytes>) -> Payload {
    Full::new(bytes.into()).boxed()
}

/// Answers a request as its path says.
async fn answer(request: Request<Incoming>) -> Result<Response<Payload>, hyper::Error> {
    let (parts, mut body) = request.into_parts();
    if parts.uri.path() == "/endless" {
        let piece = futures_util::stream::iter([Ok(Frame::data(Bytes::from_static(b"12345678")))]);
        let endless = futures_util::StreamExt::chain(piece, futures_util::stream::pending());
        return Ok(Response::new(StreamBody::new(endless).boxed()));
    }
    if !["/echo", "/org/app/git-receive-pack"].contains(&parts.uri.path()) {
        let words =
            parts.headers.iter().map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap()));
        let words: String = [format!("{} {}\n", parts.method, parts.uri)].into_iter().chain(words).collect();
        return Ok(Response::new(full(words)));
    }
    // Sends each piece back as it comes, and trailers at the end.
    let (sender, mut frames) = mpsc::channel(1);
    tokio::spawn(async move {
        while let Some(Ok(frame)) = body.frame().await {
            let _ = sender.send(frame).await;
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        trailers.insert("x-echo", SECRET.parse().unwrap());
        let _ = sender.send(Frame::trailers(trailers)).await;
    });
    let frames = futures_util::stream::poll_fn(move |cx| frames.poll_recv(cx).map(|frame| frame.map(Ok)));
    Ok(Response::new(StreamBody::new(frames).boxed()))
}

/// A server over HTTP/2. Counts its connections.
pub(super) fn h2_server(config: Arc<ServerConfig>) -> (SocketAddr, Arc<AtomicUsize>) {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    thread::spawn(move || {
        runtime().block_on(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let acceptor = TlsAcceptor::from(Arc::clone(&config));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
                });
            }
        });
    });
    (address, connections)
}

/// Connects as a program that speaks HTTP/2. Runs `talk` with the connection.
pub(super) fn with_client<T>(egress: &mut Egress, talk: impl AsyncFnOnce(SendRequest<Payload>) -> T) -> T {
    let config = client_config(egress, &["h2", "http/1.1"]);
    let stream = egress.connect(TO);
    stream.set_nonblocking(true).unwrap();
    runtime().block_on(async move {
        let stream = TcpStream::from_std(stream).unwrap();
        let connector = TlsConnector::from(config);
        let stream = connector.connect(ServerName::try_from(NAME).unwrap(), stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let client = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (sender, driver) = client.handshake(TokioIo::new(stream)).await.unwrap();
        let driver = tokio::spawn(driver);
        let result = talk(sender).await;
        let _ = driver.await;
        result
    })
}

pub(super) fn get(path: &str) -> Request<Payload> {
    Request::builder().uri(format!("https://{NAME}{path}")).body(full("")).unwrap()
}

/// Sends a request. Returns the status and the body of its response.
async fn fetch(sender: &mut SendRequest<Payload>, request: Request<Payload>) -> (StatusCode, String) {
    let response = sender.send_request(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// Reads a body. Returns how many bytes it has.
async fn read_all(response: Response<Incoming>) -> usize {
    let (mut body, mut all) = (response.into_body(), 0);
    while let Some(frame) = body.frame().await {
        all += frame.unwrap().into_data().map_or(0, |data| data.len());
    }
    all
}

#[test]
fn requests_share_one_connection_and_each_gets_its_header() {
    let ca = Ca::new();
    let (address, connections) = h2_server(ca.good(&["h2"]));
    let mut egress = Egress::start(granting(opened(&ca, address), 443));
    with_client(&mut egress, async |mut sender| {
        for path in ["/a?b", "/c"] {
            let mut request = get(path);
            request.headers_mut().insert("authorization", PLACEHOLDER.parse().unwrap());
            let (status, body) = fetch(&mut sender, request).await;
            assert_eq!(status, 200);
            assert!(body.starts_with(&format!("GET https://{NAME}{path}\n")), "{body}");
            assert!(body.contains("authorization: Bearer *****************\n"), "{body}");
            assert!(body.contains("accept-encoding: identity\n"), "{body}");
        }
    });
    assert_eq!(egress.cause(), Cause::Closed);
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    let seen: Vec<_> =
        requests(&egress).into_iter().map(|request| (request.number, request.status)).collect();
    assert_eq!(seen, [(1, 0), (1, 200), (2, 0), (2, 200)]);
}

#[test]
fn a_push_of_git_keeps_its_bytes() {
    let ca = Ca::new();
    let (address, _) = h2_server(ca.good(&["h2"]));
    let mut script = granting(opened(&ca, address), 443);
    script.ports.get_mut(&443).unwrap().inspect.as_mut().unwrap().git = true;
    let mut egress = Egress::start(script);
    with_client(&mut egress, async |mut sender| {
        let body = git::commands() + "PACK" + &"p".repeat(300_000);
        let request = Request::post(format!("https://{NAME}/org/app/git-receive-pack"));
        let request = request.header("content-type", "application/x-git-receive-pack-request");
        let (status, echoed) = fetch(&mut sender, request.body(full(body.clone())).unwrap()).await;
        assert_eq!(status, 200);
        assert!(echoed == body, "{}", echoed.len());
    });
    assert_eq!(egress.cause(), Cause::Closed);
}

#[test]
fn both_directions_stream_at_once_and_trailers_pass() {
    let ca = Ca::new();
    let (address, _) = h2_server(ca.good(&["h2"]));
    let mut egress = Egress::start(granting(opened(&ca, address), 443));
    with_client(&mut egress, async |mut sender| {
        let (pieces, mut received) = mpsc::channel(1);
        let body = futures_util::stream::poll_fn(move |cx| received.poll_recv(cx));
        let body = StreamBody::new(body).boxed();
        let request =
            Request::post(format!("https://{NAME}/echo")).header("te", "trailers").body(body).unwrap();
        let mut response = sender.send_request(request).await.unwrap();
        for number in 0..5 {
            // The last one waits for a moment, because a secret could begin in it.
            let piece = if number < 4 { format!("piece {number}\n") } else { "piece".to_owned() };
            pieces.send(Ok::<_, Infallible>(Frame::data(Bytes::from(piece.clone())))).await.unwrap();
            let back = response.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(back, piece);
        }
        drop(pieces);
        let trailers = loop {
            match response.frame().await.unwrap().unwrap().into_trailers() {
                Ok(trailers) => break trailers,
                Err(frame) => assert!(frame.into_data().unwrap().is_empty()),
            }
        };
        assert_eq!(trailers.get("grpc-status").unwrap(), "0");
        assert_eq!(trailers.get("x-echo").unwrap(), "*****************");
    });
}

#[test]
fn another_host_path_or_connect_is_refused_on_its_stream() {
    let ca = Ca::new();
    for (request, cause) in [
        (Request::get("https://other.example.org/v1/a"), Cause::WrongHost),
        (Request::get(format!("https://{NAME}/v1/a")).header("host", "other.example.org"), Cause::WrongHost),
        (Request::get(format!("https://{NAME}/v2/a")), Cause::WrongPath),
        (Request::connect(NAME.to_owned() + ":443"), Cause::WrongMethod),
    ] {
        let (address, _) = h2_server(ca.good(&["h2"]));
        let mut script = opened(&ca, address);
        let inspect = script.ports.get_mut(&443).unwrap().inspect.as_mut().unwrap();
        inspect.paths = vec![PathList { patterns: vec!["/v1/*".to_owned()] }];
        let mut egress = Egress::start(script);
        let request = request.body(full("")).unwrap();
        with_client(&mut egress, async |mut sender| {
            assert_eq!(fetch(&mut sender, get("/v1/a")).await.0, 200);
            let response = sender.send_request(request).await.unwrap();
            assert_eq!(response.status(), 403);
        });
        assert_eq!(egress.cause(), cause);
    }
}

#[test]
fn a_request_that_the_daemon_refuses_leaves_the_others_alone() {
    let ca = Ca::new();
    let (address, _) = h2_server(ca.good(&["h2"]));
    let mut script = granting(opened(&ca, address), 443);
    let content_type = "application/json".to_owned();
    let refusal = wire::worker::v1::RequestRefusal {
        status: 403,
        content_type,
        body: b"{}".to_vec(),
        retry_after_s: 0,
    };
    script.ports.get_mut(&443).unwrap().decision = Some(Decision::Refusal(refusal));
    let mut egress = Egress::start(script);
    with_client(&mut egress, async |mut sender| {
        for _ in 0..3 {
            assert_eq!(fetch(&mut sender, get("/")).await, (StatusCode::FORBIDDEN, "{}".to_owned()));
        }
    });
    assert_eq!(egress.cause(), Cause::Closed);
}

#[test]
fn a_metered_stream_that_its_program_resets_is_reported_and_the_others_go_on() {
    let ca = Ca::new();
    let (address, _) = h2_server(ca.good(&["h2"]));
    let mut script = granting(opened(&ca, address), 443);
    script.ports.get_mut(&443).unwrap().inspect.as_mut().unwrap().meter = true;
    let mut egress = Egress::start(script);
    with_client(&mut egress, async |mut sender| {
        let mut response = sender.send_request(get("/endless")).await.unwrap();
        assert!(response.body_mut().frame().await.unwrap().is_ok());
        drop(response);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(fetch(&mut sender, get("/")).await.0, 200);
    });
    let reset = usage(&mut egress, 1);
    assert_eq!((reset.extent(), reset.body_bytes, reset.is_reported), (Extent::Cut, 8, false));
    assert_eq!(usage(&mut egress, 2).extent(), Extent::Whole);
    let messages = egress.messages();
    let place = |is_it: &dyn Fn(&From) -> bool| {
        messages.iter().position(|message| message.body.as_ref().is_some_and(is_it)).unwrap()
    };
    let reported = place(&|body| matches!(body, From::Usage(usage) if usage.request == 1));
    let next = place(
        &|body| matches!(body, From::Asked(asked) if asked.request.as_ref().is_some_and(|next| next.number == 2)),
    );
    assert!(reported < next, "it is reported while the connection goes on");
}

#[test]
fn a_placeholder_in_a_body_ends_the_connection() {
    let ca = Ca::new();
    let (address, _) = h2_server(ca.good(&["h2"]));
    let mut egress = Egress::start(granting(opened(&ca, address), 443));
    with_client(&mut egress, async |mut sender| {
        let mut request = get("/echo");
        *request.body_mut() = full(format!("a {PLACEHOLDER} b"));
        if let Ok(response) = sender.send_request(request).await {
            assert!(response.into_body().collect().await.is_err());
        }
    });
    assert_eq!(egress.cause(), Cause::Placeholder);
    assert_eq!(placeholder(&mut egress).place, "body");
}

#[test]
fn a_program_that_reads_nothing_fills_no_memory() {
    const PIECE: usize = 1024 * 1024;
    let ca = Ca::new();
    let (address, _) = h2_server(ca.good(&["h2"]));
    let mut egress = Egress::start(opened(&ca, address));
    let before = private_memory(&egress);
    let worker = egress.worker();
    with_client(&mut egress, async |mut sender| {
        // The echo is not read, so that the body waits for it.
        let mut responses = Vec::new();
        for _ in 0..16 {
            let mut request = get("/echo");
            *request.body_mut() = full(vec![b'x'; 4 * PIECE]);
            responses.push(tokio::spawn(sender.send_request(request)));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let rollup = std::fs::read_to_string(format!("/proc/{worker}/smaps_rollup")).unwrap();
        let dirty = rollup.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).unwrap();
        let after: u64 = dirty.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(after < before + 16 * 1024, "{before} KiB before, {after} KiB");
        // All at once, because the bodies share the window of the connection.
        let bodies: Vec<_> = responses
            .into_iter()
            .map(|response| tokio::spawn(async move { read_all(response.await.unwrap().unwrap()).await }))
            .collect();
        for body in bodies {
            assert_eq!(body.await.unwrap(), 4 * PIECE);
        }
    });
}

#[test]
fn heads_and_resets_beyond_the_bounds_end_the_stream_or_the_connection() {
    let ca = Ca::new();
    let (address, _) = h2_server(ca.good(&["h2"]));
    let mut egress = Egress::start(opened(&ca, address));
    with_client(&mut egress, async |mut sender| {
        let mut request = get("/");
        for number in 0..60 {
            let name: hyper::header::HeaderName = format!("x-{number}").parse().unwrap();
            request.headers_mut().insert(name, "y".repeat(1_000).parse().unwrap());
        }
        // 431, or a reset of the stream.
        let refused = sender.send_request(request).await;
        assert!(refused.map_or(true, |response| response.status() == 431));
        // Requests that are taken back at once.
        for _ in 0..2_000 {
            let mut more = sender.clone();
            if more.ready().await.is_err() {
                break;
            }
            let request = tokio::spawn(more.send_request(get("/")));
            tokio::task::yield_now().await;
            request.abort();
        }
    });
    egress.ended(1);
}
