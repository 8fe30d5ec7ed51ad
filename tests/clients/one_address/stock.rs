//! The main cases by stubs of tonic, which know nothing of fleets: each shows a token, and its node in the metadata.

use std::collections::BTreeMap;

use harness::files::sha256;
use harness::v1::approval_service_client::ApprovalServiceClient;
use harness::v1::attach_process_response::Event as Attached;
use harness::v1::audit_service_client::AuditServiceClient;
use harness::v1::call_response::Status as CallStatus;
use harness::v1::call_stream_response::Event;
use harness::v1::checkpoint_service_client::CheckpointServiceClient;
use harness::v1::decide_approval_request::Decision;
use harness::v1::file_service_client::FileServiceClient;
use harness::v1::process_service_client::ProcessServiceClient;
use harness::v1::session_service_client::SessionServiceClient;
use harness::v1::terminal_service_client::TerminalServiceClient;
use harness::v1::tool_service_client::ToolServiceClient;
use harness::{calls, forks, process, reason, session, until, v1};
use node_id::NodeId;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::transport::Channel;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;

use super::stubs::{Address, Run};

/// Bytes of the file that goes up and comes down: some messages, and windows of all streams.
const FILE: usize = (9 << 20) + 17;
/// Bytes of one message.
const PIECE: usize = 1 << 20;

/// Makes runs until each node has one, and plays all cases on each node at the same time.
pub(super) async fn main_cases_pass(channel: Channel, token: &str, nodes: usize) {
    let address = Address::new(channel, token);
    let mut runs = BTreeMap::new();
    until("the creates do not reach every node", async || {
        let run = address.create("harness", None).await.unwrap();
        runs.insert(run.node, run);
        runs.len() == nodes
    })
    .await;
    let mut playing = JoinSet::new();
    for run in runs.into_values() {
        playing.spawn(play(address.clone(), run));
    }
    playing.join_all().await;
}

async fn play(address: Address, run: Run) {
    let mut events = follow(&run).await;
    calls_and_their_output(&run).await;
    a_person_is_asked(&address, run.node).await;
    processes(&run).await;
    sessions(&run).await;
    both_directions_at_once(&run).await;
    files(&run).await;
    checkpoints(&address, &run).await;
    assert_eq!(run.stop().await, v1::run::State::Stopped);
    recorded(&run, &mut events).await;
    let verified = AuditServiceClient::new(run.connection.clone()).verify_log(v1::VerifyLogRequest {}).await;
    let verified = verified.unwrap().into_inner();
    assert!(verified.intact && verified.valid_records > 0, "{verified:?}");
}

async fn calls_and_their_output(run: &Run) {
    run.ok(calls::write("a.txt", "one\n")).await;
    assert_eq!(run.read("a.txt").await, "one\n");
    // Output comes while the command runs: this one waits for the client that has seen its first line.
    let script = "echo first; while [ ! -e go ]; do sleep 0.05; done; echo second";
    let request = v1::CallRequest {
        run_id: run.id.clone(),
        request: Some(calls::exec(&["sh", "-c", script]).into()),
        ..Default::default()
    };
    let mut tools = ToolServiceClient::new(run.connection.clone());
    let mut events = tools.call_stream(request).await.unwrap().into_inner();
    let (mut output, mut status) = (Vec::new(), None);
    while let Some(event) = events.message().await.unwrap() {
        match event.event.unwrap() {
            Event::Accepted(_) => {}
            Event::Pending(pending) => panic!("{pending:?}"),
            Event::Output(piece) => {
                output.extend(piece.data);
                if output == b"first\n" {
                    run.ok(calls::write("go", "")).await;
                }
            }
            Event::Result(result) => status = Some(result.status()),
        }
    }
    assert_eq!((output.as_slice(), status), (&b"first\nsecond\n"[..], Some(CallStatus::Succeeded)));
}

async fn a_person_is_asked(address: &Address, node: u16) {
    let run = address.create("strict", Some(node)).await.unwrap();
    assert_eq!(run.node, node);
    let decided = async {
        let mut approvals = ApprovalServiceClient::new(run.connection.clone());
        let watch = v1::WatchApprovalsRequest { run_id: run.id.clone() };
        let mut changes = approvals.watch_approvals(watch).await.unwrap().into_inner();
        let asked = loop {
            let approval = changes.message().await.unwrap().expect("the watch ended").approval.unwrap();
            if approval.state() == v1::approval::State::Pending {
                break approval;
            }
        };
        assert_eq!(NodeId::of_text(&asked.approval_id).map(NodeId::get), Some(node));
        let approve = v1::DecideApprovalRequest {
            approval_id: asked.approval_id,
            decision: Decision::Approve.into(),
            comment: "fine".to_owned(),
            ..Default::default()
        };
        approvals.decide_approval(approve).await.unwrap();
    };
    let (answer, ()) = tokio::join!(run.call(calls::write("b.txt", "x")), decided);
    assert_eq!(answer.status(), CallStatus::Succeeded, "{:?}", answer.error);
    assert_eq!(run.stop().await, v1::run::State::Stopped);
}

async fn processes(run: &Run) {
    let mut processes = ProcessServiceClient::new(run.connection.clone());
    let start = |process: v1::ProcessRequest| v1::StartProcessRequest {
        run_id: run.id.clone(),
        process: Some(process),
        ..Default::default()
    };
    let attach = |process_id: &str| v1::AttachProcessRequest {
        run_id: run.id.clone(),
        process_id: process_id.to_owned(),
        follow: true,
        ..Default::default()
    };
    let cat = start(v1::ProcessRequest { stdin: true, ..process::command(&["cat"]) });
    let id = processes.start_process(cat).await.unwrap().into_inner().process.unwrap().process_id;
    let mut output = processes.attach_process(attach(&id)).await.unwrap().into_inner();
    for (offset, data, close) in [(0, &b"one\n"[..], false), (4, &b"two\n"[..], true)] {
        let (run_id, process_id) = (run.id.clone(), id.clone());
        let input = v1::WriteStdinRequest { run_id, process_id, offset, data: data.to_vec(), close };
        processes.write_stdin(input).await.unwrap();
    }
    assert_eq!(all(&mut output).await, (b"one\ntwo\n".to_vec(), Some(0)));

    // On a terminal, which has a size.
    let terminal = Some(v1::TerminalSize { rows: 33, columns: 111 });
    let stty = start(v1::ProcessRequest { terminal, ..process::command(&["stty", "size"]) });
    let id = processes.start_process(stty).await.unwrap().into_inner().process.unwrap().process_id;
    let mut output = processes.attach_process(attach(&id)).await.unwrap().into_inner();
    assert_eq!(all(&mut output).await, (b"33 111\r\n".to_vec(), Some(0)));
}

/// Reads what a process writes until it has ended; that, and its exit code.
async fn all(stream: &mut tonic::Streaming<v1::AttachProcessResponse>) -> (Vec<u8>, Option<i32>) {
    let (mut written, mut code) = (Vec::new(), None);
    while let Some(response) = stream.message().await.unwrap() {
        match response.event.unwrap() {
            Attached::Output(output) => written.extend(output.data),
            Attached::Gap(gap) => panic!("{gap:?}"),
            Attached::Process(process) => code = process.exit_code,
        }
    }
    (written, code)
}

async fn sessions(run: &Run) {
    let mut sessions = SessionServiceClient::new(run.connection.clone());
    let open = v1::OpenSessionRequest { run_id: run.id.clone(), ..Default::default() };
    let id = sessions.open_session(open).await.unwrap().into_inner().session.unwrap().session_id;
    for (words, output) in [("mkdir -p src && cd src", ""), ("pwd", "/workspace/src\n")] {
        let request = v1::RunInSessionRequest {
            run_id: run.id.clone(),
            session: Some(session::command(&id, words)),
            ..Default::default()
        };
        let result = sessions.run_in_session(request).await.unwrap().into_inner().result.unwrap();
        assert_eq!((result.output.as_str(), result.exit_code), (output, Some(0)), "{words}");
    }
    let close = v1::CloseSessionRequest { run_id: run.id.clone(), session_id: id };
    sessions.close_session(close).await.unwrap();
}

/// A stream of requests and answers in turns. The one of an operator's terminal needs a person, whom the balancer does not show.
async fn both_directions_at_once(run: &Run) {
    let (say, said) = mpsc::channel(1);
    let mut reflection = ServerReflectionClient::new(run.connection.clone());
    say.send(described("RunService")).await.unwrap();
    let mut answers =
        reflection.server_reflection_info(ReceiverStream::new(said)).await.unwrap().into_inner();
    for next in ["ToolService", "AuditService"] {
        let answer = answers.message().await.unwrap().expect("the stream ended");
        assert!(answer.message_response.is_some(), "{answer:?}");
        say.send(described(next)).await.unwrap();
    }
    answers.message().await.unwrap().expect("the stream ended");

    let start = v1::TerminalStart { run_id: run.id.clone(), ..Default::default() };
    let start = v1::open_terminal_request::Event::Start(start);
    let first = v1::OpenTerminalRequest { event: Some(start) };
    let mut terminals = TerminalServiceClient::new(run.connection.clone());
    let refused = terminals.open_terminal(tokio_stream::iter([first])).await.map(drop).unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::PermissionDenied, "PERMISSION_DENIED"));
}

/// A question for a service's description.
fn described(service: &str) -> ServerReflectionRequest {
    let symbol = Some(MessageRequest::FileContainingSymbol(format!("cofferdam.v1.{service}")));
    ServerReflectionRequest { message_request: symbol, ..Default::default() }
}

async fn files(run: &Run) {
    use v1::download_file_response::Piece as Down;
    use v1::upload_file_request::Piece as Up;
    // No two pieces are the same.
    let content: Vec<u8> = (0..FILE).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let begin = v1::BeginUpload {
        run_id: run.id.clone(),
        path: "large.bin".to_owned(),
        sha256: sha256(&content),
        ..Default::default()
    };
    let pieces = content.chunks(PIECE).map(|piece| Up::Data(piece.to_vec().into()));
    let messages: Vec<_> = std::iter::once(Up::Begin(begin))
        .chain(pieces)
        .map(|piece| v1::UploadFileRequest { piece: Some(piece) })
        .collect();
    let mut files = FileServiceClient::new(run.connection.clone());
    files.upload_file(tokio_stream::iter(messages)).await.unwrap();
    let request = v1::DownloadFileRequest {
        run_id: run.id.clone(),
        path: "large.bin".to_owned(),
        ..Default::default()
    };
    let mut pieces = files.download_file(request).await.unwrap().into_inner();
    let mut back = Vec::new();
    while let Some(message) = pieces.message().await.unwrap() {
        if let Some(Down::Data(data)) = message.piece {
            back.extend_from_slice(&data);
        }
    }
    assert!(back == content, "{} bytes came back of {FILE}", back.len());
}

async fn checkpoints(address: &Address, run: &Run) {
    let mut checkpoints = CheckpointServiceClient::new(run.connection.clone());
    let request = v1::CheckpointRunRequest { run_id: run.id.clone(), label: "one".to_owned() };
    let made = checkpoints.checkpoint_run(request).await.unwrap().into_inner().checkpoint.unwrap();
    run.ok(calls::write("a.txt", "two\n")).await;
    let forked = checkpoints.fork_run(forks::of_checkpoint(&made.checkpoint_id, 1)).await.unwrap();
    let forked = forked.into_inner();
    let [fork] = &forked.forks[..] else { panic!("{forked:?}") };
    let id = fork.run.clone().unwrap().run_id;
    assert_eq!(NodeId::of_text(&id).map(NodeId::get), Some(run.node), "a fork is on the node of its origin");
    let fork = Run { id, node: run.node, connection: address.to(Some(run.node)) };
    assert_eq!((fork.read("a.txt").await, run.read("a.txt").await), ("one\n".to_owned(), "two\n".to_owned()));
    assert_eq!(fork.stop().await, v1::run::State::Stopped);
    let restore = v1::RestoreRunRequest { run_id: run.id.clone(), checkpoint_id: made.checkpoint_id };
    checkpoints.restore_run(restore).await.unwrap();
    assert_eq!(run.read("a.txt").await, "one\n");
}

/// Begins to follow the records of a run.
async fn follow(run: &Run) -> tonic::Streaming<v1::StreamEventsResponse> {
    let filter = Some(v1::EventFilter { run_id: run.id.clone(), ..Default::default() });
    let request = v1::StreamEventsRequest { filter, follow: true, ..Default::default() };
    AuditServiceClient::new(run.connection.clone()).stream_events(request).await.unwrap().into_inner()
}

/// Reads the stream up to the end of the run. It has each step in order.
async fn recorded(run: &Run, events: &mut tonic::Streaming<v1::StreamEventsResponse>) {
    let (mut kinds, mut last) = (Vec::new(), 0);
    loop {
        let event = events.message().await.unwrap().expect("a followed stream ended").event.unwrap();
        assert!(event.run_id == run.id && event.sequence > last, "{event:?} after {last}");
        last = event.sequence;
        let is_end = event.kind == "run_state" && event.record_json.contains("\"STOPPED\"");
        kinds.push(event.kind);
        if is_end {
            break;
        }
    }
    let first = kinds.iter().position(|kind| kind == "run_created");
    let called = kinds.iter().rposition(|kind| kind == "call_receipt");
    assert!(first.is_some() && first < called, "{kinds:?}");
}
