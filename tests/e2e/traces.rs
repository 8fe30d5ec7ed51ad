//! Tests traces: what a receiver gets, what commands and records have, and that a receiver which fails costs no call anything.

use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::{Clients, Daemon, RunHandle, Setup, calls, record, requests, until, v1};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

const POLICY: &str = "profiles:
  shown:
    traceparent: true
    operations: { exec: allow, shell: allow, read: allow, process: allow }
    exec: { default: allow, deny_list: off, env: ['*'] }
  hidden:
    operations: { exec: allow, shell: allow }
    exec: { default: allow, deny_list: off }
  asking:
    operations: { exec: ask }
    exec: { default: ask, deny_list: off, read_only_commands: false }
roles: { director: { allow: '*' } }
";

/// A receiver of traces, with all spans that it got.
#[derive(Clone, Default)]
pub(crate) struct Receiver(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.take(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Receiver {
    /// Starts one over gRPC; its section of the configuration, with further keys.
    pub(crate) async fn grpc(more: &str) -> (Self, String) {
        let (receiver, listener) = (Self::default(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let address = listener.local_addr().unwrap();
        let service = TraceServiceServer::new(receiver.clone());
        let served = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(served.serve_with_incoming(TcpIncoming::from(listener)));
        (receiver, format!("traces: {{ endpoint: 'http://{address}'{more} }}\n"))
    }

    /// Starts one over HTTP.
    async fn http(more: &str) -> (Self, String) {
        let (receiver, listener) = (Self::default(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let address = listener.local_addr().unwrap();
        let taker = receiver.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, taker.clone()));
            }
        });
        (receiver, format!("traces: {{ endpoint: 'http://{address}', protocol: http{more} }}\n"))
    }

    fn take(&self, request: ExportTraceServiceRequest) {
        let scopes = request.resource_spans.into_iter().flat_map(|of_resource| of_resource.scope_spans);
        self.0.lock().extend(scopes.flat_map(|of_scope| of_scope.spans));
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        self.0.lock().clone()
    }

    /// Waits for the span of a call, and returns it with its children.
    pub(crate) async fn call(&self, call: &str) -> (Span, Vec<Span>) {
        let find = || self.spans().into_iter().find(|span| text(span, "gen_ai.tool.call.id") == call);
        until("no span of the call arrives", async || find().is_some()).await;
        let span = find().unwrap();
        let children = self.spans().into_iter().filter(|one| one.parent_span_id == span.span_id).collect();
        (span, children)
    }
}

/// Takes one request over HTTP, and answers it.
async fn serve(mut stream: TcpStream, receiver: Receiver) {
    let mut sent = Vec::new();
    let (head, body) = loop {
        assert!(stream.read_buf(&mut sent).await.unwrap() > 0, "the request is cut");
        let Some(at) = sent.windows(4).position(|end| end == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(sent[..at].to_vec()).unwrap().to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        if sent.len() - at - 4 >= length.parse().unwrap() {
            break (head, sent.split_off(at + 4));
        }
    };
    assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/x-protobuf"), "{head}");
    receiver.take(ExportTraceServiceRequest::decode(&body[..]).unwrap());
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
}

fn text(span: &Span, key: &str) -> String {
    let found = span.attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.clone()?.value) {
        Some(Value::StringValue(text)) => text,
        Some(other) => panic!("{key}: {other:?}"),
        None => String::new(),
    }
}

fn parent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

async fn daemon(config: String) -> Daemon {
    Daemon::start_with(Setup { config, policy: vec![("p.yaml", POLICY.to_owned())], ..Setup::default() })
        .await
}

/// Makes a call as a client that is in a trace.
async fn call_in(
    run: &mut RunHandle,
    traceparent: &str,
    operation: v1::operation::Kind,
) -> Result<v1::CallResponse, Status> {
    let call =
        v1::CallRequest { request: Some(operation.into()), wait_for_approval: true, ..Default::default() };
    ask_in(run, traceparent, call).await
}

async fn ask_in(
    run: &mut RunHandle,
    traceparent: &str,
    call: v1::CallRequest,
) -> Result<v1::CallResponse, Status> {
    let call = v1::CallRequest { run_id: run.id().to_owned(), ..call };
    let mut request = Request::new(call);
    request.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
    run.clients.tools.call(request).await.map(Response::into_inner)
}

/// Returns the output of a command.
fn stdout(response: &v1::CallResponse) -> String {
    match response.kind() {
        Some(v1::result::Kind::Exec(ran) | v1::result::Kind::Shell(ran)) => ran.stdout.clone(),
        other => panic!("{other:?}"),
    }
}

/// Returns the contexts on record of a call: of its intent and of its receipt.
async fn on_record(clients: &mut Clients, call: &str) -> Vec<String> {
    let events = clients.of_call(call).await;
    let of_call = events.iter().filter(|event| event.kind.starts_with("call_"));
    of_call.map(|event| record(event)["traceparent"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_with_an_approval_is_a_tree_of_spans_beneath_its_client() {
    let (receiver, config) = Receiver::grpc(", sample: 0").await;
    let daemon = daemon(config).await;
    let run = daemon.run_on(requests::managed("asking")).await;
    let mut asking = run.clone();
    let secret = "an-argument-that-no-span-has";
    let waiting = tokio::spawn(async move {
        call_in(&mut asking, &parent("01"), calls::exec(&["sh", "-c", &format!("true {secret}; exit 3")]))
            .await
    });
    let (mut run, id) = (run.clone(), run.id().to_owned());
    let approval = run.clients.pending_approval(&id).await;
    run.clients.approve(&approval.approval_id).await.unwrap();
    let response = waiting.await.unwrap().unwrap();

    let (span, children) = receiver.call(&response.call_id).await;
    assert_eq!(
        (hex::encode(&span.trace_id), hex::encode(&span.parent_span_id)),
        (TRACE.into(), PARENT.into())
    );
    assert_eq!(span.name, "execute_tool exec");
    assert_eq!(text(&span, "gen_ai.operation.name"), "execute_tool");
    assert_eq!(text(&span, "gen_ai.tool.name"), "exec");
    assert_eq!(text(&span, "cofferdam.run.id"), id);
    assert_eq!(text(&span, "cofferdam.outcome"), "failed");
    assert_eq!(span.status.as_ref().unwrap().code(), StatusCode::Error);
    for stage in ["queue", "policy", "audit", "approval", "lane"] {
        assert!(children.iter().any(|child| child.name == stage), "{stage} is missing: {children:#?}");
    }
    for child in &children {
        assert_eq!(child.trace_id, span.trace_id);
        let within = child.start_time_unix_nano >= span.start_time_unix_nano
            && child.end_time_unix_nano <= span.end_time_unix_nano;
        assert!(within, "{child:#?} is not within {span:#?}");
    }
    let asked = children.iter().find(|child| child.name == "approval").unwrap();
    assert_eq!(text(asked, "cofferdam.approval.id"), approval.approval_id);
    assert!(!format!("{:?}", receiver.spans()).contains(secret));
    let own = format!("00-{TRACE}-{}-01", hex::encode(&span.span_id));
    assert_eq!(on_record(&mut run.clients, &response.call_id).await, [own.clone(), own]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_outlives_its_daemon_keeps_its_span() {
    let (receiver, config) = Receiver::grpc("").await;
    let mut daemon = daemon(config).await;
    let mut run = daemon.run_on(requests::managed("asking")).await;
    let call = v1::CallRequest { request: Some(calls::exec(&["true"]).into()), ..Default::default() };
    let asked = ask_in(&mut run, &parent("01"), call).await.unwrap();
    drop(run);
    daemon.relaunch().await;
    let mut clients = daemon.connect().await;
    clients.approve(&asked.approval_id).await.unwrap();
    let (span, children) = receiver.call(&asked.call_id).await;
    let own = format!("00-{TRACE}-{}-01", hex::encode(&span.span_id));
    assert_eq!(on_record(&mut clients, &asked.call_id).await, [own.clone(), own]);
    assert_eq!(hex::encode(&span.parent_span_id), PARENT);
    assert!(children.iter().any(|child| child.name == "approval"), "{children:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_have_the_context_where_their_profile_says_so() {
    let (receiver, config) = Receiver::http("").await;
    let daemon = daemon(config).await;
    let mut shown = daemon.run_on(requests::managed("shown")).await;
    let echo = || calls::shell("echo $TRACEPARENT");
    let response = call_in(&mut shown, &parent("01"), echo()).await.unwrap();
    let (span, _) = receiver.call(&response.call_id).await;
    let own = format!("00-{TRACE}-{}-01", hex::encode(&span.span_id));
    assert_eq!(stdout(&response), format!("{own}\n"));
    assert_eq!(on_record(&mut shown.clients, &response.call_id).await, [own.clone(), own]);

    // A root, which is sampled by default, and a context that is none.
    for traceparent in ["nonsense", "00-00000000000000000000000000000000-00f067aa0ba902b7-01"] {
        let response = call_in(&mut shown, traceparent, echo()).await.unwrap();
        let (span, _) = receiver.call(&response.call_id).await;
        assert!(span.parent_span_id.is_empty() && hex::encode(&span.trace_id) != TRACE, "{span:?}");
        let expected = format!("00-{}-{}-01\n", hex::encode(&span.trace_id), hex::encode(&span.span_id));
        assert_eq!(stdout(&response), expected);
    }
    // A variable of the call itself.
    let shell = v1::ShellRequest {
        script: "echo $TRACEPARENT".to_owned(),
        env: [("TRACEPARENT".to_owned(), "mine".to_owned())].into(),
        ..Default::default()
    };
    let response = call_in(&mut shown, &parent("01"), v1::operation::Kind::Shell(shell)).await.unwrap();
    assert_eq!(stdout(&response), "mine\n");

    let mut hidden = daemon.run_on(requests::managed("hidden")).await;
    let response = call_in(&mut hidden, &parent("01"), echo()).await.unwrap();
    assert_eq!(stdout(&response), "\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_that_is_not_sampled_is_not_sent_and_keeps_its_context() {
    let (receiver, config) = Receiver::grpc(", sample: 0").await;
    let daemon = daemon(config).await;
    let mut run = daemon.run_on(requests::managed("shown")).await;
    let echo = || calls::shell("echo $TRACEPARENT");
    let root = run.call(echo()).await.unwrap();
    let context = stdout(&root);
    assert!(context.starts_with("00-") && context.ends_with("-00\n"), "{context}");
    assert_eq!(on_record(&mut run.clients, &root.call_id).await, ["", ""], "no one knows its trace");
    let child = call_in(&mut run, &parent("00"), echo()).await.unwrap();
    let context = stdout(&child);
    assert!(context.starts_with(&format!("00-{TRACE}-")) && context.ends_with("-00\n"), "{context}");
    assert!(!context.contains(PARENT), "the call has its own span: {context}");
    assert_eq!(on_record(&mut run.clients, &child.call_id).await, [context.trim(), context.trim()]);

    let sampled = call_in(&mut run, &parent("01"), echo()).await.unwrap();
    let (span, _) = receiver.call(&sampled.call_id).await;
    let others: Vec<_> = receiver.spans().into_iter().filter(|one| one.trace_id != span.trace_id).collect();
    assert!(others.is_empty(), "{others:#?}");
    let calls: Vec<_> =
        receiver.spans().into_iter().filter(|one| one.name.starts_with("execute_tool")).collect();
    assert_eq!(calls.len(), 1, "{calls:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_receiver_a_clients_context_is_passed_on_as_it_came() {
    let daemon = daemon(String::new()).await;
    let mut run = daemon.run_on(requests::managed("shown")).await;
    let echo = || calls::shell("echo $TRACEPARENT");
    let response = call_in(&mut run, &parent("01"), echo()).await.unwrap();
    assert_eq!(stdout(&response), format!("{}\n", parent("01")));
    assert_eq!(on_record(&mut run.clients, &response.call_id).await, [parent("01"), parent("01")]);
    let response = run.call(echo()).await.unwrap();
    assert_eq!(stdout(&response), "\n");
    assert_eq!(on_record(&mut run.clients, &response.call_id).await, ["", ""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_gone_or_silent_delays_no_call() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // It keeps its port, and does not listen.
    let deaf = TcpSocket::new_v4().unwrap();
    deaf.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let gone = deaf.local_addr().unwrap();
    for (address, protocol) in [
        (gone, "grpc"),
        (gone, "http"),
        (silent.local_addr().unwrap(), "grpc"),
        (silent.local_addr().unwrap(), "http"),
    ] {
        let config =
            format!("traces: {{ endpoint: 'http://{address}', protocol: {protocol}, timeout: 1s }}\n");
        let mut daemon = daemon(config).await;
        let mut run = daemon.run_on(requests::managed("shown")).await;
        let began = Instant::now();
        for _ in 0..20 {
            run.call(calls::read("a.txt")).await.unwrap();
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{address} {protocol}: {:?}", began.elapsed());
        until("the log does not name it", async || daemon.log().contains("traces cannot be exported")).await;
        run.stop().await;
        daemon.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_that_wait_are_sent_before_the_daemon_ends() {
    let (receiver, config) = Receiver::grpc("").await;
    let mut daemon = daemon(config).await;
    let mut run = daemon.run_on(requests::managed("shown")).await;
    let response = run.call(calls::shell("true")).await.unwrap();
    run.stop().await;
    daemon.stop().await;
    let sent = receiver.spans();
    assert!(sent.iter().any(|span| text(span, "gen_ai.tool.call.id") == response.call_id), "{sent:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stages_of_the_metrics_name_a_trace_and_spans_are_counted() {
    let (receiver, traces) = Receiver::grpc("").await;
    let daemon = daemon(format!("{traces}metrics: {{ listen: '127.0.0.1:0' }}\n")).await;
    let mut run = daemon.run_on(requests::managed("shown")).await;
    let response = call_in(&mut run, &parent("01"), calls::shell("true")).await.unwrap();
    receiver.call(&response.call_id).await;
    let log = daemon.log();
    let line = log.lines().find(|line| line.contains("metrics are at /metrics")).unwrap();
    let address = line.rsplit_once("address=").unwrap().1.trim().to_owned();
    let scraped = async || {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let text = scraped().await;
    let exemplar = format!("# {{trace_id=\"{TRACE}\"}}");
    let stages = text.lines().filter(|line| line.starts_with("cofferdam_stage_seconds_bucket"));
    assert_eq!(stages.filter(|line| line.contains(&exemplar)).count(), 4, "{text}");
    until("sent spans are not counted", async || {
        let text = scraped().await;
        let sent =
            text.lines().find_map(|line| line.strip_prefix("cofferdam_trace_spans_total{result=\"sent\"} "));
        sent.unwrap().parse::<u64>().unwrap() > 0
    })
    .await;
}
