use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::mpsc::{Receiver, channel};
use webhook::{Target, Tls};

use super::{BATCH, Exporter, QUEUE};
use crate::context::span_id;
use crate::send::{Destination, Headers, Protocol};
use crate::span::Span;
use crate::tracer::{Share, Traces};

const PATIENCE: Duration = Duration::from_secs(10);

/// A request that a receiver got.
struct Got {
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

/// Returns the address of a receiver, which answers with `status`, and what it gets.
async fn receiver(protocol: Protocol, status: Arc<AtomicU16>) -> (String, Receiver<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (got, requests) = channel(64);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (got, status) = (got.clone(), status.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let (got, status) = (got.clone(), status.load(Ordering::Relaxed));
                async move {
                    let (path, headers) = (request.uri().path().to_owned(), request.headers().clone());
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let _ = got.send(Got { path, headers, body }).await;
                    let code = if protocol == Protocol::Http { status } else { 200 };
                    let trailers =
                        HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from(status))]);
                    let body = Full::<Bytes>::default().with_trailers(std::future::ready(Some(Ok(trailers))));
                    let body = if protocol == Protocol::Http { Empty::new().boxed() } else { body.boxed() };
                    Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
                }
            });
            let stream = TokioIo::new(stream);
            tokio::spawn(async move {
                // A client that leaves is no failure of the test.
                let _ = match protocol {
                    Protocol::Http => http1::Builder::new().serve_connection(stream, service).await,
                    Protocol::Grpc => {
                        http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await
                    }
                };
            });
        }
    });
    (url, requests)
}

fn started(url: &str, protocol: Protocol, timeout: Duration) -> (Traces, Exporter) {
    let headers = Headers::parse("x-key: 1").unwrap();
    let destination = Destination::new(Target::parse(url, false).unwrap(), protocol, headers, timeout);
    Exporter::start(destination, Share::parse("1").unwrap(), Tls::trusting([]).unwrap())
}

fn span(name: &str) -> Span {
    Span { id: span_id(), trace: [1; 16], name: name.to_owned(), ..Span::default() }
}

fn names(body: &[u8]) -> Vec<String> {
    let read = ExportTraceServiceRequest::decode(body).unwrap();
    read.resource_spans[0].scope_spans[0].spans.iter().map(|span| span.name.clone()).collect()
}

#[tokio::test]
async fn spans_are_sent_in_batches_over_http() {
    let (url, mut got) = receiver(Protocol::Http, Arc::new(200.into())).await;
    let (traces, exporter) = started(&url, Protocol::Http, PATIENCE);
    traces.send(vec![span("a"), span("b")]);
    traces.send(vec![span("c")]);
    let request = got.recv().await.unwrap();
    assert_eq!(
        (request.path.as_str(), names(&request.body)),
        ("/v1/traces", ["a", "b", "c"].map(str::to_owned).into())
    );
    assert_eq!(
        ["content-type", "x-key"].map(|name| request.headers[name].to_str().unwrap()),
        ["application/x-protobuf", "1"]
    );
    traces.send(vec![span("last")]);
    exporter.finish(PATIENCE).await;
    assert_eq!(names(&got.recv().await.unwrap().body), ["last"]);
    assert_eq!(traces.counts(), [4, 0]);
}

#[tokio::test]
async fn spans_are_sent_over_grpc() {
    let (url, mut got) = receiver(Protocol::Grpc, Arc::new(0.into())).await;
    let (traces, exporter) = started(&url, Protocol::Grpc, PATIENCE);
    traces.send(vec![span("a")]);
    exporter.finish(PATIENCE).await;
    let request = got.recv().await.unwrap();
    assert_eq!(request.path, "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    let headers = ["te", "content-type"].map(|name| request.headers[name].to_str().unwrap());
    assert_eq!(headers, ["trailers", "application/grpc"]);
    let (head, message) = request.body.split_at(5);
    assert_eq!(
        (head[0], u32::from_be_bytes(head[1..].try_into().unwrap())),
        (0, u32::try_from(message.len()).unwrap())
    );
    assert_eq!(names(message), ["a"]);
    assert_eq!(traces.counts(), [1, 0]);
}

#[tokio::test]
async fn a_batch_that_is_refused_for_good_is_lost_and_the_next_one_is_sent() {
    for (protocol, refused, taken) in [(Protocol::Http, 400, 200), (Protocol::Grpc, 3, 0)] {
        let status = Arc::new(AtomicU16::new(refused));
        let (url, mut got) = receiver(protocol, status.clone()).await;
        let (traces, exporter) = started(&url, protocol, PATIENCE);
        traces.send(vec![span("a")]);
        got.recv().await.unwrap();
        while traces.counts() != [0, 1] {
            tokio::task::yield_now().await;
        }
        status.store(taken, Ordering::Relaxed);
        traces.send(vec![span("b")]);
        exporter.finish(PATIENCE).await;
        assert_eq!(traces.counts(), [1, 1], "{protocol:?}");
        assert!(got.recv().await.is_some_and(|_| got.try_recv().is_err()), "a refused batch is not repeated");
    }
}

#[tokio::test]
async fn a_batch_is_repeated_if_the_receiver_is_busy() {
    for (protocol, busy, taken) in [(Protocol::Http, 503, 200), (Protocol::Grpc, 14, 0)] {
        let status = Arc::new(AtomicU16::new(busy));
        let (url, mut got) = receiver(protocol, status.clone()).await;
        let (traces, _exporter) = started(&url, protocol, PATIENCE);
        traces.send(vec![span("a")]);
        let first = got.recv().await.unwrap();
        status.store(taken, Ordering::Relaxed);
        assert_eq!(got.recv().await.unwrap().body, first.body);
        while traces.counts() != [1, 0] {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_receiver_that_is_not_there_costs_spans_and_nothing_else() {
    // It keeps its port, and does not listen.
    let deaf = TcpSocket::new_v4().unwrap();
    deaf.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let gone = deaf.local_addr().unwrap();
    let (traces, exporter) = started(&format!("http://{gone}"), Protocol::Grpc, PATIENCE);
    for _ in 0..2 * QUEUE {
        traces.send(vec![span("a")]);
    }
    exporter.finish(PATIENCE).await;
    let [sent, lost] = traces.counts();
    assert_eq!((sent, lost), (0, 2 * QUEUE as u64));
    // After the end, too, nothing waits.
    traces.send(vec![span("late")]);
    assert_eq!(traces.counts()[1], lost + 1);
}

/// Returns the address of a server that writes this, then more for ever if `drips`, and never ends a connection.
async fn hostile(answer: &'static [u8], drips: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.write_all(answer).await;
            while drips && stream.write_all(&[b'x'; 1024]).await.is_ok() {
                tokio::task::yield_now().await;
            }
            open.push(stream);
        }
    });
    url
}

#[tokio::test]
async fn answers_without_end_and_silence_are_left_in_time() {
    let moment = Duration::from_millis(200);
    for (protocol, answer, drips) in [
        (Protocol::Http, &b""[..], false),
        (Protocol::Http, b"HTTP/1.1 200 OK\r\nx: ", true),
        (Protocol::Http, b"nonsense\r\n\r\n", false),
        (Protocol::Grpc, b"", false),
        (Protocol::Grpc, b"HTTP/1.1 400 Bad Request\r\n\r\n", true),
    ] {
        let url = hostile(answer, drips).await;
        let (traces, exporter) = started(&url, protocol, moment);
        traces.send(vec![span("a")]);
        exporter.finish(PATIENCE).await;
        assert_eq!(traces.counts(), [0, 1], "{protocol:?} {answer:?}");
    }
}

#[tokio::test]
async fn a_receiver_that_takes_a_part_of_a_request_keeps_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (traces, exporter) = started(&url, Protocol::Grpc, Duration::from_millis(200));
    // More than the window of a stream, which this receiver never widens.
    traces.send(vec![span(&"x".repeat(200_000))]);
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut nothing = tokio::io::sink();
    let read = tokio::time::timeout(PATIENCE, tokio::io::copy(&mut stream, &mut nothing)).await;
    assert!(read.is_ok(), "the connection is open after its attempt");
    exporter.finish(PATIENCE).await;
    assert_eq!(traces.counts(), [0, 1]);
}

#[tokio::test]
async fn a_large_batch_goes_out_without_a_wait() {
    let (url, mut got) = receiver(Protocol::Http, Arc::new(200.into())).await;
    let (traces, _exporter) = started(&url, Protocol::Http, PATIENCE);
    // One of them may be late, because this process is not always scheduled. Each would be if it waited.
    let mut shortest = Duration::MAX;
    for _ in 0..5 {
        let began = std::time::Instant::now();
        traces.send((0..BATCH).map(|_| span("a")).collect());
        assert_eq!(names(&got.recv().await.unwrap().body).len(), BATCH);
        shortest = shortest.min(began.elapsed());
    }
    assert!(shortest < super::LINGER, "{shortest:?}");
}
