//! Connections from outside to TCP servers in a run.

use std::collections::HashMap;
use std::process::Stdio;
use std::time::Duration;

use harness::process::command;
use harness::v1::forward_closed::Reason;
use harness::v1::forward_port_request::Event as Said;
use harness::v1::forward_port_response::Event as Heard;
use harness::v1::{self, ForwardPortRequest, ForwardStart};
use harness::{Clients, Daemon, RunHandle, Setup, binary, dev_image, reason, record, requests};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming};
use tonic_types::StatusExt as _;
use wire::v1::forward_service_client::ForwardServiceClient;
use wire::v1::node_service_client::NodeServiceClient;

/// An event that has not come by then does not come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends back what it gets, and finishes after its client has.
const ECHO: &str = "\
import socket, sys, threading
family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
server = socket.socket(family)
if family == socket.AF_INET6:
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
server.bind((sys.argv[1], int(sys.argv[2])))
server.listen(128)
print('up', flush=True)
def serve(one):
    while data := one.recv(65536):
        one.sendall(data)
    one.shutdown(socket.SHUT_WR)
    one.close()
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
";

fn policy(forward: &str) -> String {
    format!(
        "profiles:\n  in:\n    operations: {{ shell: allow, process: allow }}\n    exec: {{ default: allow }}\n    \
         allowed_images: ['*']\n    {forward}\n  shut:\n    operations: {{ shell: allow, process: allow }}\n    \
         exec: {{ default: allow }}\n    allowed_images: ['*']\nroles: {{ director: {{ allow: \"*\" }} }}\n"
    )
}

async fn daemon() -> Daemon {
    let policy = vec![("in.yaml", policy("forward: allow"))];
    Daemon::start_with(Setup { policy, ..Default::default() }).await
}

/// A run of this profile, with Python.
async fn run_of(daemon: &Daemon, profile: &str) -> RunHandle {
    let image = tokio::task::spawn_blocking(dev_image).await.unwrap();
    let request = v1::CreateRunRequest { image, issue_token: true, ..requests::managed(profile) };
    daemon.run_on(request).await
}

async fn echo(run: &mut RunHandle, address: &str, port: u16) {
    let id = run.start(command(&["python3", "-c", ECHO, address, &port.to_string()])).await.process_id;
    run.until(&id, "up\n").await;
}

/// A client's end of a connection.
struct Line {
    id: String,
    say: Option<mpsc::Sender<ForwardPortRequest>>,
    heard: Streaming<v1::ForwardPortResponse>,
}

fn start(run: &RunHandle, port: u16) -> Said {
    Said::Start(ForwardStart { run_id: run.id().to_owned(), port: port.into() })
}

impl Line {
    async fn to(run: &RunHandle, port: u16) -> Result<Self, Status> {
        Self::open(&run.clients, start(run, port), None).await
    }

    async fn open(clients: &Clients, first: Said, token: Option<&str>) -> Result<Self, Status> {
        let (say, said) = mpsc::channel(4);
        say.try_send(ForwardPortRequest { event: Some(first) }).unwrap();
        let mut request = Request::new(ReceiverStream::new(said));
        if let Some(token) = token {
            request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        let mut client = ForwardServiceClient::new(clients.channel.clone());
        let mut heard = client.forward_port(request).await?.into_inner();
        let opened = heard.message().await?.and_then(|response| response.event);
        let Some(Heard::Opened(opened)) = opened else { panic!("not opened: {opened:?}") };
        Ok(Self { id: opened.connection_id, say: Some(say), heard })
    }

    async fn say(&self, data: &[u8]) {
        let event = Some(Said::Data(data.to_vec()));
        self.say.as_ref().unwrap().send(ForwardPortRequest { event }).await.unwrap();
    }

    fn finish(&mut self) {
        self.say = None;
    }

    async fn next(&mut self) -> Result<Heard, Status> {
        let next = tokio::time::timeout(PATIENCE, self.heard.message()).await.expect("nothing comes");
        Ok(next?.expect("the stream ended").event.unwrap())
    }

    /// The next bytes, exactly so many.
    async fn hear(&mut self, count: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < count {
            match self.next().await.unwrap() {
                Heard::Data(data) => all.extend(data),
                other => panic!("{other:?} after {} bytes", all.len()),
            }
        }
        assert_eq!(all.len(), count);
        all
    }

    /// The end, and whether the server had finished before.
    async fn closed(&mut self) -> (bool, v1::ForwardClosed) {
        let mut finished = false;
        loop {
            match self.next().await.unwrap() {
                Heard::Finished(_) => finished = true,
                Heard::Closed(closed) => return (finished, closed),
                Heard::Data(_) | Heard::Opened(_) => {}
            }
        }
    }
}

/// The facts of the status with which a connection ends after its run has ended, and their reason.
async fn over(mut line: Line) -> HashMap<String, String> {
    assert_eq!(line.closed().await.1.reason(), Reason::RunEnded);
    let status = line.next().await.unwrap_err();
    let mut facts = status.get_details_error_info().unwrap().metadata;
    facts.insert("reason".to_owned(), reason(&status));
    facts
}

/// The record of this kind of a connection.
async fn recorded(clients: &mut Clients, connection: &str, kind: &str) -> Value {
    let of = |event: &v1::AuditEvent| record(event)["details"]["connection"] == connection;
    let events = clients.events_when("", kind, |events| events.iter().any(of)).await;
    let mut found = events.iter().filter(|event| of(event)).map(record);
    let found = (found.next().unwrap_or_else(|| panic!("no {kind} of {connection}")), found.next());
    assert_eq!(found.1, None, "one record of each kind");
    found.0
}

/// Bytes that are not the same twice.
fn pattern(count: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn fw1_bytes_pass_both_ways_each_side_finishes_by_itself_and_both_records_are_there() {
    let daemon = daemon().await;
    let mut run = run_of(&daemon, "in").await;
    echo(&mut run, "127.0.0.1", 8000).await;
    let mut line = Line::to(&run, 8000).await.unwrap();
    let intent = recorded(&mut run.clients, &line.id, "forward_intent").await;
    assert_eq!((&intent["details"]["port"], &intent["run_id"]), (&8000.into(), &run.id().into()));
    assert_eq!(intent["decision"]["rule"], "profile in: forward");
    assert_eq!((&intent["principal"], &intent["agent_id"]), (&"uid:0".into(), &"tester".into()));

    line.say(b"secret-words").await;
    assert_eq!(line.hear(12).await, b"secret-words");
    // The server answers after the client has finished.
    line.say(b"last").await;
    line.finish();
    assert_eq!(line.hear(4).await, b"last");
    let (finished, closed) = line.closed().await;
    assert_eq!((finished, closed.reason()), (true, Reason::Finished));
    assert_eq!((closed.bytes_in, closed.bytes_out), (16, 16));

    let receipt = recorded(&mut run.clients, &line.id, "forward_receipt").await;
    assert_eq!(receipt["details"], intent["details"]);
    assert_eq!(
        (&receipt["outcome"]["status"], &receipt["outcome"]["reason"]),
        (&"succeeded".into(), &"FINISHED".into())
    );
    assert_eq!((&receipt["usage"]["bytes_in"], &receipt["usage"]["bytes_out"]), (&16.into(), &16.into()));
    assert!(receipt["duration_us"].as_u64().unwrap() > 0);
    for event in [intent, receipt] {
        assert!(!event.to_string().contains("secret-words"), "{event}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fw2_a_hundred_mebibytes_each_way_at_once_arrive_intact() {
    const SIZE: usize = 100 << 20;
    let daemon = daemon().await;
    let mut run = run_of(&daemon, "in").await;
    echo(&mut run, "127.0.0.1", 8000).await;
    let mut line = Line::to(&run, 8000).await.unwrap();
    let say = line.say.take().unwrap();
    let sent = pattern(SIZE);
    let sending = sent.clone();
    let sender = tokio::spawn(async move {
        for piece in sending.chunks(64 << 10) {
            let event = Some(Said::Data(piece.to_vec()));
            say.send(ForwardPortRequest { event }).await.unwrap();
        }
    });
    assert!(line.hear(SIZE).await == sent, "bytes were lost or changed");
    sender.await.unwrap();
    let (_, closed) = line.closed().await;
    assert_eq!(
        (closed.reason(), closed.bytes_in, closed.bytes_out),
        (Reason::Finished, 100 << 20, 100 << 20)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn fw3_fifty_connections_at_once_do_not_mix_and_a_run_has_no_more_than_sixty_four() {
    let daemon = daemon().await;
    let mut run = run_of(&daemon, "in").await;
    echo(&mut run, "127.0.0.1", 8000).await;
    let mut all = JoinSet::new();
    for number in 0..50_u8 {
        let run = run.clone();
        all.spawn(async move {
            let mut line = Line::to(&run, 8000).await.unwrap();
            for _ in 0..20 {
                line.say(&[number; 1_000]).await;
                assert_eq!(line.hear(1_000).await, [number; 1_000]);
            }
            line
        });
    }
    let mut lines = all.join_all().await;
    // HTTP/2 has 64 streams on a connection, so the rest comes by another one.
    let other = RunHandle { run: run.run.clone(), clients: daemon.connect().await };
    for _ in 50..64 {
        lines.push(Line::to(&other, 8000).await.unwrap());
    }
    let refused = Line::to(&other, 8000).await.err().expect("a 65th");
    assert_eq!(reason(&refused), "OVERLOADED", "{refused}");
    drop(lines.pop());
    let again = async {
        while Line::to(&other, 8000).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("the slot does not come back");
}

#[tokio::test(flavor = "multi_thread")]
async fn fw4_an_absent_server_and_bad_messages_are_refused_with_a_reason() {
    let daemon = daemon().await;
    let mut run = run_of(&daemon, "in").await;
    // A server of the host is none of the run.
    let outside = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = outside.local_addr().unwrap().port();
    let refused = Line::to(&run, port).await.err().expect("a server of the host was reached");
    assert_eq!(reason(&refused), "PRECONDITION_FAILED");
    assert!(refused.message().contains(&format!("nothing in the run listens on port {port}")), "{refused}");
    let receipts = run.clients.events(run.id().to_owned().as_str(), "forward_receipt").await;
    assert_eq!(record(&receipts[0])["outcome"]["reason"], "PRECONDITION_FAILED");

    let odd = |run_id: &str, port| Said::Start(ForwardStart { run_id: run_id.to_owned(), port });
    let id = run.id().to_owned();
    for (first, expected) in [
        (Said::Data(b"GET /".to_vec()), "INVALID_ARGUMENT"),
        (odd(&id, 0), "INVALID_ARGUMENT"),
        (odd(&id, 65_536 + 80), "INVALID_ARGUMENT"),
        (odd("", 80), "INVALID_ARGUMENT"),
        (odd("../..", 80), "NOT_FOUND"),
        (odd("10.1.2.3", 80), "NOT_FOUND"),
        (odd("0197e7a0-0000-7000-8000-000000000000", 80), "NOT_FOUND"),
    ] {
        let refused = Line::open(&run.clients, first.clone(), None).await.err();
        let refused = refused.unwrap_or_else(|| panic!("{first:?} was taken"));
        assert_eq!(reason(&refused), expected, "{first:?}: {refused}");
    }
    echo(&mut run, "127.0.0.1", 8000).await;
    for bad in [start(&run, 8000), Said::Data(vec![0; (64 << 10) + 1])] {
        let mut line = Line::to(&run, 8000).await.unwrap();
        line.say.as_ref().unwrap().send(ForwardPortRequest { event: Some(bad) }).await.unwrap();
        assert_eq!(reason(&line.next().await.unwrap_err()), "INVALID_ARGUMENT");
        let receipt = recorded(&mut run.clients, &line.id, "forward_receipt").await;
        assert_eq!(receipt["outcome"]["reason"], "INVALID_ARGUMENT");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fw5_policy_and_the_token_of_another_run_are_refused_on_record_and_a_reload_ends_connections() {
    let daemon = daemon().await;
    let mut shut = run_of(&daemon, "shut").await;
    echo(&mut shut, "127.0.0.1", 8000).await;
    let refused = Line::to(&shut, 8000).await.err().expect("the policy does not allow it");
    assert_eq!(reason(&refused), "PERMISSION_DENIED");
    assert!(refused.message().contains("forward: allow"), "{refused}");
    let id = shut.id().to_owned();
    let attempts = shut.clients.events_when(&id, "escalation_attempt", |found| !found.is_empty()).await;
    assert_eq!(record(&attempts[0])["details"]["attempt"], "forward_port");
    assert!(shut.clients.events(&id, "forward_intent").await.is_empty());

    let mut run = run_of(&daemon, "in").await;
    echo(&mut run, "127.0.0.1", 8000).await;
    let mut tokens = Vec::new();
    for id in [run.id().to_owned(), id] {
        let issue = v1::IssueRunTokenRequest { run_id: id };
        tokens.push(run.clients.runs.issue_run_token(issue).await.unwrap().into_inner().token);
    }
    let mut own = Line::open(&run.clients, start(&run, 8000), Some(&tokens[0])).await.unwrap();
    own.say(b"x").await;
    assert_eq!(own.hear(1).await, b"x");
    let other = Line::open(&run.clients, start(&run, 8000), Some(&tokens[1])).await.err();
    assert_eq!(reason(&other.expect("another run's token opened it")), "NOT_FOUND");
    // Its own run's policy holds for a token, too.
    let denied = Line::open(&run.clients, start(&shut, 8000), Some(&tokens[1])).await.err();
    assert_eq!(reason(&denied.expect("more than the policy says")), "PERMISSION_DENIED");
    let run_id = run.id().to_owned();
    let attempts = run.clients.events_when(&run_id, "escalation_attempt", |found| !found.is_empty()).await;
    assert_eq!(record(&attempts[0])["details"]["attempt"], "other_run");

    std::fs::write(daemon.policy_dir().join("in.yaml"), policy("forward: deny")).unwrap();
    run.clients.policy.reload_policy(v1::ReloadPolicyRequest {}).await.unwrap();
    assert_eq!(own.closed().await.1.reason(), Reason::NotAllowed);
    assert_eq!(reason(&Line::to(&run, 8000).await.err().unwrap()), "PERMISSION_DENIED");
}

#[tokio::test(flavor = "multi_thread")]
async fn fw6_a_pause_the_end_of_the_run_and_of_the_client_end_connections_on_record() {
    let daemon = daemon().await;
    let mut run = run_of(&daemon, "in").await;
    echo(&mut run, "127.0.0.1", 8000).await;
    let mut line = Line::to(&run, 8000).await.unwrap();
    let run_id = run.id().to_owned();
    run.clients.runs.pause_run(v1::PauseRunRequest { run_id: run_id.clone() }).await.unwrap();
    assert_eq!(line.closed().await.1.reason(), Reason::RunPaused);
    let refused = Line::to(&run, 8000).await.err().expect("the run is paused");
    assert_eq!(reason(&refused), "RUN_NOT_READY");
    run.clients
        .runs
        .resume_run(v1::ResumeRunRequest { run_id: run_id.clone(), lift_alerts: false })
        .await
        .unwrap();

    let left = Line::to(&run, 8000).await.unwrap();
    let id = left.id.clone();
    drop(left);
    let receipt = recorded(&mut run.clients, &id, "forward_receipt").await;
    // The end of what the client sends may come before the end of its call, and the server answers that with its own.
    let reason_of = receipt["outcome"]["reason"].as_str().unwrap();
    assert!(["DISCONNECTED", "FINISHED"].contains(&reason_of), "{receipt}");
    assert_eq!(receipt["outcome"]["status"], "succeeded");

    let mut last = Line::to(&run, 8000).await.unwrap();
    last.say(b"in the middle").await;
    run.stop().await;
    assert_eq!(last.closed().await.1.reason(), Reason::RunEnded);
    for (line, expected) in [(&line, "RUN_PAUSED"), (&last, "RUN_ENDED")] {
        let receipt = recorded(&mut run.clients, &line.id, "forward_receipt").await;
        assert_eq!(
            (&receipt["outcome"]["reason"], &receipt["outcome"]["status"]),
            (&expected.into(), &"failed".into())
        );
    }
    assert_eq!(reason(&Line::to(&run, 8000).await.err().unwrap()), "RUN_NOT_READY");
}

#[tokio::test(flavor = "multi_thread")]
async fn fw7_clients_see_the_end_of_a_daemon_and_the_next_one_records_it() {
    let mut daemon = daemon().await;
    let mut run = run_of(&daemon, "in").await;
    echo(&mut run, "127.0.0.1", 8000).await;
    let mut killed = Line::to(&run, 8000).await.unwrap();
    killed.say(b"x").await;
    assert_eq!(killed.hear(1).await, b"x");
    daemon.kill().await;
    assert!(killed.next().await.is_err(), "the client sees an end");
    daemon.launch().await;
    run.clients = daemon.connect().await;
    let receipt = recorded(&mut run.clients, &killed.id, "forward_receipt").await;
    assert_eq!(
        (&receipt["outcome"]["status"], &receipt["details"]["port"]),
        (&"interrupted".into(), &8000.into())
    );

    // The run and its server go on.
    let mut stopped = Line::to(&run, 8000).await.unwrap();
    stopped.say(b"y").await;
    assert_eq!(stopped.hear(1).await, b"y");
    daemon.stop().await;
    let end = stopped.next().await;
    assert!(
        matches!(&end, Ok(Heard::Closed(closed)) if matches!(closed.reason(), Reason::Stopping | Reason::RunEnded))
            || end.is_err(),
        "{end:?}"
    );
    daemon.launch().await;
    run.clients = daemon.connect().await;
    let receipt = recorded(&mut run.clients, &stopped.id, "forward_receipt").await;
    assert_eq!(receipt["outcome"]["reason"], "STOPPING", "{receipt}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fw8_servers_on_all_addresses_or_on_the_loopback_of_ipv6_alone_are_reached() {
    let daemon = daemon().await;
    let mut run = run_of(&daemon, "in").await;
    for (port, address) in [(8001, "0.0.0.0"), (8002, "::1"), (8003, "::")] {
        echo(&mut run, address, port).await;
        let mut line = Line::to(&run, port).await.unwrap_or_else(|refused| panic!("{address}: {refused}"));
        line.say(address.as_bytes()).await;
        assert_eq!(line.hear(address.len()).await, address.as_bytes());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fw9_the_command_line_gives_a_server_a_local_port_until_it_ends() {
    let daemon = daemon().await;
    let mut run = run_of(&daemon, "in").await;
    let mut coffer = tokio::process::Command::new(binary("coffer"))
        .args(["run", "forward", run.id(), "8000:0"])
        .env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut said = BufReader::new(coffer.stdout.take().unwrap()).lines();
    let mut talk = BufReader::new(coffer.stderr.take().unwrap()).lines();
    let url = said.next_line().await.unwrap().unwrap();
    let address = url.strip_prefix("http://").unwrap().to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{url}");
    let line = talk.next_line().await.unwrap().unwrap();
    assert!(line.contains("port 8000 of run"), "{line}");

    // Before the server listens, a program gets an end and the user a reason.
    let mut early = TcpStream::connect(&address).await.unwrap();
    assert_eq!(early.read(&mut [0]).await.unwrap_or(0), 0);
    let line = talk.next_line().await.unwrap().unwrap();
    assert!(line.contains("nothing in the run listens on port 8000"), "{line}");

    let id = run
        .start(command(&["python3", "-u", "-m", "http.server", "--bind", "127.0.0.1", "8000"]))
        .await
        .process_id;
    run.until(&id, "Serving HTTP").await;
    let mut browser = TcpStream::connect(&address).await.unwrap();
    browser.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    let mut page = String::new();
    tokio::time::timeout(PATIENCE, browser.read_to_string(&mut page)).await.unwrap().unwrap();
    assert!(page.starts_with("HTTP/1.0 200") && page.contains("Directory listing"), "{page}");

    let pid = rustix::process::Pid::from_raw(coffer.id().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let status = tokio::time::timeout(PATIENCE, coffer.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(TcpStream::connect(&address).await.is_err(), "the port is closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn fw19_the_end_of_a_connection_with_its_run_says_whose_failure_that_is() {
    let daemon = daemon().await;
    let mut lines = Vec::new();
    for _ in 0..3 {
        let mut run = run_of(&daemon, "in").await;
        echo(&mut run, "127.0.0.1", 8000).await;
        let mut line = Line::to(&run, 8000).await.unwrap();
        line.say(b"x").await;
        assert_eq!(line.hear(1).await, b"x");
        lines.push((run, line));
    }
    let [stopped, lost, drained] = <[(RunHandle, Line); 3]>::try_from(lines).ok().unwrap();

    let (mut run, line) = stopped;
    run.stop().await;
    let facts = over(line).await;
    assert_eq!((&*facts["reason"], &*facts["fault"]), ("RUN_NOT_READY", "CALLER"), "{facts:?}");

    let (mut run, line) = lost;
    let id = line.id.clone();
    let killed = harness::docker().args(["kill", &run.run.container_id]).output().unwrap();
    assert!(killed.status.success(), "{killed:?}");
    let facts = over(line).await;
    assert_eq!((&*facts["reason"], &*facts["fault"]), ("RUN_LOST", "INFRASTRUCTURE"), "{facts:?}");
    assert_eq!((&*facts["evidence.engine.exit_code"], &*facts["retry_safe"]), ("137", "false"), "{facts:?}");
    let receipt = recorded(&mut run.clients, &id, "forward_receipt").await;
    assert_eq!(receipt["outcome"]["reason"], "RUN_ENDED", "{receipt}");
    assert!(receipt["outcome"]["message"].as_str().unwrap().contains("killed from outside"), "{receipt}");

    let (run, line) = drained;
    let deadline = Some(prost_types::Duration { seconds: 1, nanos: 0 });
    let request = v1::DrainNodeRequest { reason: "a new kernel".to_owned(), deadline };
    NodeServiceClient::new(run.clients.channel.clone()).drain_node(request).await.unwrap();
    let facts = over(line).await;
    assert_eq!((&*facts["reason"], &*facts["fault"]), ("RUN_LOST", "INFRASTRUCTURE"), "{facts:?}");
    assert_eq!(facts["evidence.run.end_cause"], "node_drained", "{facts:?}");
}
