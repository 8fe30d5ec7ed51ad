//! Tests the output of commands: live, at any pace, and afterwards by offset.

use std::path::Path;
use std::time::Duration;

use harness::v1::call_output::Stream;
use harness::v1::call_response::Status;
use harness::v1::call_stream_response::Event;
use harness::v1::result::Kind as Answer;
use harness::v1::{self, CallRequest, CallResponse, CallStreamResponse, GetCallRequest, GetCallResponse};
use harness::{Daemon, RunHandle, Setup, binary, calls, memory, processes, reason, record};
use tonic::Streaming;

const MIB: usize = 1 << 20;
/// Nothing here takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

fn request(argv: &[&str]) -> CallRequest {
    CallRequest { request: Some(calls::exec(argv).into()), ..Default::default() }
}

fn sh(script: &str) -> CallRequest {
    request(&["sh", "-c", script])
}

async fn stream(run: &mut RunHandle, request: CallRequest) -> Streaming<CallStreamResponse> {
    let request = CallRequest { run_id: run.id().to_owned(), ..request };
    run.clients.tools.call_stream(request).await.unwrap().into_inner()
}

async fn next(events: &mut Streaming<CallStreamResponse>) -> Event {
    let next = tokio::time::timeout(PATIENCE, events.message()).await.expect("nothing comes");
    next.unwrap().expect("the stream has no result").event.unwrap()
}

async fn accepted(events: &mut Streaming<CallStreamResponse>) -> String {
    match next(events).await {
        Event::Accepted(accepted) => accepted.call_id,
        other => panic!("{other:?}"),
    }
}

/// What a stream has told.
#[derive(Debug, Default, PartialEq)]
struct Told {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    approval_id: Option<String>,
    result: Option<CallResponse>,
}

impl Told {
    /// Takes one event, which must come when and where it may.
    fn take(&mut self, event: Event) {
        assert!(self.result.is_none(), "the result is the last: {event:?}");
        match event {
            Event::Accepted(_) => panic!("accepted twice"),
            Event::Pending(pending) => assert_eq!(self.approval_id.replace(pending.approval_id), None),
            Event::Output(output) => {
                assert!((1..=64 * 1024).contains(&output.data.len()));
                let known = match output.stream() {
                    Stream::Stdout => &mut self.stdout,
                    Stream::Stderr => &mut self.stderr,
                    Stream::Unspecified => panic!("{output:?}"),
                };
                assert_eq!(output.offset, known.len() as u64, "no gap, nothing twice");
                known.extend_from_slice(&output.data);
            }
            Event::Result(result) => self.result = Some(result),
        }
    }
}

/// All that there is, after the call was accepted.
async fn rest(events: &mut Streaming<CallStreamResponse>) -> Told {
    let mut told = Told::default();
    while told.result.is_none() {
        told.take(next(events).await);
    }
    assert!(events.message().await.unwrap().is_none(), "the result is the last");
    told
}

async fn get(run: &mut RunHandle, call_id: &str, stdout_offset: u64, most: u32) -> GetCallResponse {
    let request = GetCallRequest {
        call_id: call_id.to_owned(),
        stdout_offset: Some(stdout_offset),
        stderr_offset: Some(0),
        max_output_bytes: most,
    };
    run.clients.tools.get_call(request).await.unwrap().into_inner()
}

/// Standard output from an offset to its end, as a client without a stream gets it.
async fn fetch(run: &mut RunHandle, call_id: &str, mut offset: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let all = async {
        loop {
            let chunk = get(run, call_id, offset, 0).await.stdout.unwrap();
            assert_eq!(chunk.offset, offset);
            offset += chunk.data.len() as u64;
            bytes.extend_from_slice(&chunk.data);
            if chunk.complete && offset == chunk.kept_bytes {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, all).await.expect("the call has no end");
    bytes
}

/// All kinds of bytes.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    next.take(length).collect()
}

/// A run whose workspace has `blob`, a file of that many bytes.
async fn with_blob(daemon: &Daemon, length: usize) -> (RunHandle, Vec<u8>) {
    let workspace = daemon.workspace("w", &[]);
    let blob = noise(length);
    std::fs::write(workspace.join("blob"), &blob).unwrap();
    (daemon.run("open", &workspace).await, blob)
}

fn exec(call: &CallResponse) -> &v1::ExecResult {
    match call.kind() {
        Some(Answer::Exec(exec)) => exec,
        other => panic!("{other:?}: {:?}", call.error),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_streamed_while_the_command_runs() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("open", &workspace).await;
    let script = "echo one; echo err >&2; while [ ! -e go ]; do sleep 0.01; done; echo two; echo more >&2";
    let request = CallRequest { request_id: "r".to_owned(), ..sh(script) };
    let mut events = stream(&mut run, request.clone()).await;
    let call_id = accepted(&mut events).await;
    let mut told = Told::default();
    while (told.stdout.as_slice(), told.stderr.as_slice()) != (b"one\n", b"err\n") {
        told.take(next(&mut events).await);
    }
    // It waits for us. Others see the same meanwhile, and where it stands.
    let now = get(&mut run, &call_id, 2, 0).await;
    assert_eq!(now.call.unwrap().status(), Status::Running);
    let chunk = now.stdout.unwrap();
    assert_eq!((chunk.data.as_slice(), chunk.kept_bytes, chunk.complete), (&b"e\n"[..], 4, false));
    let mut again = run.clone();
    let mut second = stream(&mut again, request.clone()).await;
    assert_eq!(accepted(&mut second).await, call_id);

    std::fs::write(workspace.join("go"), "").unwrap();
    while told.result.is_none() {
        told.take(next(&mut events).await);
    }
    assert_eq!((told.stdout.as_slice(), told.stderr.as_slice()), (&b"one\ntwo\n"[..], &b"err\nmore\n"[..]));
    let result = told.result.clone().unwrap();
    assert_eq!((result.status(), exec(&result).stdout.as_str()), (Status::Succeeded, "one\ntwo\n"));
    assert_eq!(rest(&mut second).await, told);
    // Whoever asks again gets it all again.
    let mut third = stream(&mut run, request).await;
    assert_eq!(accepted(&mut third).await, call_id);
    assert_eq!(rest(&mut third).await, told);
    let end = get(&mut run, &call_id, 4, 0).await;
    assert_eq!((end.call, end.stdout.unwrap().data.as_slice()), (Some(result), &b"two\n"[..]));
    let stderr = end.stderr.unwrap();
    assert_eq!((stderr.data.as_slice(), stderr.complete), (&b"err\nmore\n"[..], true));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_all_kinds_can_be_streamed() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("open", &workspace).await;
    let read = CallRequest { request: Some(calls::read("a.txt").into()), ..Default::default() };
    let mut events = stream(&mut run, read).await;
    let call_id = accepted(&mut events).await;
    let told = rest(&mut events).await;
    let Some(Answer::Read(read)) = told.result.unwrap().into_kind() else { panic!("not a read") };
    assert_eq!(read.content, "one\n");
    let chunk = get(&mut run, &call_id, 0, 0).await.stdout.unwrap();
    assert_eq!((chunk.data.len(), chunk.kept_bytes, chunk.complete), (0, 0, true));

    // A command that says nothing leaves nothing.
    let told = async |run: &mut RunHandle, request| {
        let mut events = stream(run, request).await;
        accepted(&mut events).await;
        rest(&mut events).await
    };
    let silent = told(&mut run, request(&["true"])).await;
    assert_eq!((silent.stdout.len(), exec(&silent.result.unwrap()).exit_code), (0, Some(0)));
    assert!(!daemon.state_dir().join("spool").join(run.id()).exists());

    // Refusals are what they are for Call: before the call began, and after.
    let unknown =
        CallRequest { run_id: "0198a1b2-0000-7000-8000-000000000000".to_owned(), ..request(&["true"]) };
    assert_eq!(reason(&run.clients.tools.call_stream(unknown).await.unwrap_err()), "NOT_FOUND");
    let mut refused = stream(&mut run, request(&["sudo", "id"])).await;
    accepted(&mut refused).await;
    assert_eq!(reason(&refused.message().await.unwrap_err()), "COMMAND_NOT_ALLOWED");
    assert!(refused.message().await.is_ok_and(|event| event.is_none()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_for_its_reviewer_reports_it() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("review", &workspace).await;
    let mut events = stream(&mut run, sh("echo one")).await;
    let call_id = accepted(&mut events).await;
    let told = rest(&mut events).await;
    let result = told.result.unwrap();
    assert_eq!(result.status(), Status::PendingApproval);
    assert_eq!(told.approval_id.as_deref(), Some(result.approval_id.as_str()));
    run.clients.approve(&result.approval_id).await.unwrap();
    assert_eq!(run.outcome(&call_id).await.status(), Status::Succeeded);
    assert_eq!(fetch(&mut run, &call_id, 0).await, b"one\n");

    let mut events = stream(&mut run, CallRequest { wait_for_approval: true, ..sh("echo two") }).await;
    accepted(&mut events).await;
    let mut told = Told::default();
    told.take(next(&mut events).await);
    run.clients.approve(&told.approval_id.clone().unwrap()).await.unwrap();
    while told.result.is_none() {
        told.take(next(&mut events).await);
    }
    assert_eq!((told.stdout.as_slice(), told.result.unwrap().status()), (&b"two\n"[..], Status::Succeeded));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_lost_its_stream_gets_the_rest_by_offset() {
    let daemon = Daemon::start().await;
    let (mut run, blob) = with_blob(&daemon, 3 * MIB + 17).await;
    let mut events = stream(&mut run, request(&["cat", "blob"])).await;
    let call_id = accepted(&mut events).await;
    let mut told = Told::default();
    while told.stdout.is_empty() {
        told.take(next(&mut events).await);
    }
    drop(events);
    let had = told.stdout.len();
    let mut whole = told.stdout;
    whole.extend(fetch(&mut run, &call_id, had as u64).await);
    assert!(whole == blob, "{} bytes of {}", whole.len(), blob.len());
    let call = run.outcome(&call_id).await;
    assert_eq!((exec(&call).exit_code, exec(&call).stdout_bytes), (Some(0), blob.len() as u64));

    // Bounds of what is asked for.
    let kept = blob.len() as u64;
    for (offset, most, length) in [
        (0, 0, 256 * 1024),
        (5, 1, 1),
        (0, 1 << 20, 1 << 20),
        (kept - 3, 100, 3),
        (kept, 100, 0),
        (u64::MAX, 100, 0),
    ] {
        let chunk = get(&mut run, &call_id, offset, most).await.stdout.unwrap();
        assert_eq!((chunk.offset, chunk.data.len(), chunk.kept_bytes), (offset, length, kept));
        assert!(chunk.complete);
        let at = usize::try_from(offset.min(kept)).unwrap();
        assert!(chunk.data == blob[at..at + length]);
    }
    let too_much = GetCallRequest { call_id, max_output_bytes: (1 << 20) + 1, ..Default::default() };
    let refused = run.clients.tools.get_call(too_much).await.unwrap_err();
    assert_eq!(reason(&refused), "INVALID_ARGUMENT");
    assert!(
        refused.message().starts_with("max_output_bytes: must be at most 1048576"),
        "{}",
        refused.message()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_reader_does_not_block_others() {
    const LIMIT: usize = 64 * MIB;
    /// What the daemon's own memory may grow by, KiB: what one that held the output in it would grow by and more.
    /// Pages of its program, which it reads the first time that it does something, are not its own.
    const MOST: u64 = LIMIT as u64 / 1024;
    const OTHERS: u32 = 20;
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("open", &workspace).await;
    // Warm, so that what is measured is the flood's.
    run.exec(&["head", "-c", "10000000", "/dev/zero"]).await;
    let before = memory(daemon.pid(), "RssAnon");
    let grown = || memory(daemon.pid(), "RssAnon").saturating_sub(before);
    let mut most = 0;

    let mut idle = RunHandle { run: run.run.clone(), clients: daemon.connect().await };
    let mut events = stream(&mut idle, request(&["head", "-c", "1000000000", "/dev/zero"])).await;
    let call_id = accepted(&mut events).await;
    let mut meanwhile = 0;
    let flooded = loop {
        // A few, for the daemon keeps what calls answered for a while, and that is not the flood's.
        if meanwhile < OTHERS {
            let mut other = stream(&mut run, request(&["echo", "still here"])).await;
            accepted(&mut other).await;
            assert_eq!(rest(&mut other).await.stdout, b"still here\n");
        } else {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        most = most.max(grown());
        let flood = run.get(&call_id).await;
        if flood.status() != Status::Running {
            break flood;
        }
        meanwhile += 1;
    };
    assert!(meanwhile > 0, "no other call came to its end during the flood");
    assert_ne!(exec(&flooded).exit_code, Some(0), "it was ended at the limit: {flooded:?}");
    most = most.max(grown());
    assert!(most < MOST, "the daemon grew by {most} KiB");

    // All that it wrote up to the limit waits for its reader.
    let told = rest(&mut events).await;
    assert_eq!(told.stdout.len(), LIMIT);
    assert!(told.stdout.iter().all(|byte| *byte == 0));
    assert!(exec(told.result.as_ref().unwrap()).stdout_bytes >= LIMIT as u64);
    most = most.max(grown());
    assert!(most < MOST, "the daemon grew by {most} KiB");
}

/// On a disk that never has as much free as the spool leaves to others.
fn without_room() -> Setup {
    Setup { config: "spool: { min_free: 1024TiB }\n".to_owned(), ..Setup::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_streamed_when_the_disk_is_full() {
    let daemon = Daemon::start_with(without_room()).await;
    assert!(daemon.log().contains("the spool is off"), "{}", daemon.log());
    let (mut run, blob) = with_blob(&daemon, 3 * MIB + 17).await;
    let mut events = stream(&mut run, request(&["cat", "blob"])).await;
    let call_id = accepted(&mut events).await;
    let told = rest(&mut events).await;
    assert!(told.stdout == blob, "{} bytes of {}", told.stdout.len(), blob.len());
    let result = told.result.unwrap();
    let command = exec(&result);
    assert_eq!((command.exit_code, command.stdout_bytes), (Some(0), blob.len() as u64));
    assert_eq!(result.output_not_kept_bytes, blob.len() as u64);
    let chunk = get(&mut run, &call_id, 0, 0).await.stdout.unwrap();
    assert_eq!((chunk.data.len(), chunk.kept_bytes, chunk.complete), (0, 0, true));
    let both = sh("for i in 1 2 3; do echo out $i; echo err $i >&2; done; exit 3");
    let mut events = stream(&mut run, both).await;
    accepted(&mut events).await;
    let told = rest(&mut events).await;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    assert_eq!(text(told.stdout), "out 1\nout 2\nout 3\n");
    assert_eq!(text(told.stderr), "err 1\nerr 2\nerr 3\n");
    assert_eq!(exec(&told.result.unwrap()).exit_code, Some(3));

    let endpoint = format!("unix:{}", daemon.socket().display());
    let shown = tokio::process::Command::new(binary("coffer"))
        .args(["--endpoint", &endpoint, "call", "exec", run.id(), "--", "sh", "-c", "echo seen; exit 4"])
        .output()
        .await
        .unwrap();
    assert_eq!((shown.status.code(), text(shown.stdout).as_str()), (Some(4), "seen\n"));
    let said = text(shown.stderr);
    assert!(said.contains("not kept: 5 B of its output"), "{said}");
    let doctor = tokio::process::Command::new(binary("coffer"))
        .args(["--endpoint", &endpoint, "doctor"])
        .output()
        .await
        .unwrap();
    let said = text(doctor.stdout);
    assert!(said.contains("off: less than spool.min_free is left"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_space_a_reader_that_does_not_read_is_dropped() {
    let daemon = Daemon::start_with(without_room()).await;
    let mut run = daemon.run("open", &daemon.workspace("w", &[])).await;
    let mut idle = RunHandle { run: run.run.clone(), clients: daemon.connect().await };
    let mut events = stream(&mut idle, request(&["head", "-c", "20000000", "/dev/zero"])).await;
    let call_id = accepted(&mut events).await;
    let call = run.outcome(&call_id).await;
    assert_eq!((exec(&call).exit_code, exec(&call).stdout_bytes), (Some(0), 20_000_000));
    let told = rest(&mut events).await;
    assert!((1..20_000_000).contains(&told.stdout.len()), "{}", told.stdout.len());
}

/// Waits until the command has made the file `begun`.
async fn begun(workspace: &Path) {
    let begins = async {
        while !workspace.join("begun").exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, begins).await.expect("the command does not begin");
    std::fs::remove_file(workspace.join("begun")).unwrap();
}

/// A command with others behind it, which appears in the workspace when it was left to its end.
fn tree(seconds: u32) -> String {
    format!("(sleep 61 &) ; sleep 61 & echo > begun; sleep {seconds}; echo > ended")
}

/// The receipt of the run's next call.
async fn receipt(events: &mut Streaming<v1::StreamEventsResponse>) -> serde_json::Value {
    let event = tokio::time::timeout(PATIENCE, events.message()).await.expect("the call does not end");
    record(&event.unwrap().unwrap().event.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_ends_its_call_only_on_request() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("open", &workspace).await;
    let filter = v1::EventFilter { kinds: vec!["call_receipt".to_owned()], ..Default::default() };
    let follow = v1::StreamEventsRequest { filter: Some(filter), follow: true, ..Default::default() };
    let mut receipts = run.clients.audit.stream_events(follow).await.unwrap().into_inner();
    let idle = processes(&run.run.container_id);

    for streamed in [true, false] {
        for cancel_on_disconnect in [true, false] {
            let seconds = if cancel_on_disconnect { 60 } else { 2 };
            let request = CallRequest { cancel_on_disconnect, ..sh(&tree(seconds)) };
            if streamed {
                let mut events = stream(&mut run, request).await;
                accepted(&mut events).await;
                begun(&workspace).await;
                drop(events);
            } else {
                let mut caller = run.clone();
                let calling = tokio::spawn(async move { caller.call_with(request).await });
                begun(&workspace).await;
                calling.abort();
                assert!(calling.await.unwrap_err().is_cancelled());
            }
            let outcome = &receipt(&mut receipts).await["outcome"];
            let case = format!("streamed {streamed}, cancel {cancel_on_disconnect}: {outcome}");
            if cancel_on_disconnect {
                assert_eq!(outcome["reason"], "CANCELLED", "{case}");
                assert!(outcome["facts"]["kill"]["ended"].as_u64().unwrap() >= 3, "{case}");
            } else {
                assert_eq!(outcome["exit_code"], 0, "{case}");
            }
            assert_eq!(outcome["facts"]["kill"]["left"], 0, "{case}");
            assert_eq!(workspace.join("ended").exists(), !cancel_on_disconnect, "{case}");
            let _ = std::fs::remove_file(workspace.join("ended"));
            assert_eq!(processes(&run.run.container_id), idle, "{case}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnecting_withdraws_the_approval() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("review", &workspace).await;
    let request = CallRequest { wait_for_approval: true, cancel_on_disconnect: true, ..sh("echo one") };
    let mut events = stream(&mut run, request).await;
    let call_id = accepted(&mut events).await;
    let Event::Pending(pending) = next(&mut events).await else { panic!("not pending") };
    drop(events);
    let call = run.outcome(&call_id).await;
    assert_eq!((call.status(), call.error.unwrap().reason.as_str()), (Status::Denied, "CANCELLED"));
    assert!(run.clients.approve(&pending.approval_id).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn output_outlives_the_daemon_and_is_removed_with_its_run() {
    let mut daemon = Daemon::start().await;
    let (mut run, blob) = with_blob(&daemon, MIB + 5).await;
    let request = CallRequest { request_id: "r".to_owned(), ..request(&["cat", "blob"]) };
    let mut events = stream(&mut run, request.clone()).await;
    let call_id = accepted(&mut events).await;
    let told = rest(&mut events).await;
    assert!(told.stdout == blob);
    let mut other = daemon.run("open", &daemon.workspace("other", &[])).await;
    other.exec(&["echo", "x"]).await;

    for kill in [false, true] {
        if kill {
            daemon.kill().await;
        } else {
            daemon.stop().await;
        }
        daemon.launch().await;
        run.clients = daemon.connect().await;
        assert!(fetch(&mut run, &call_id, 7).await == blob[7..]);
        let mut events = stream(&mut run, request.clone()).await;
        assert_eq!(accepted(&mut events).await, call_id);
        assert!(rest(&mut events).await == told);
    }
    let spool = daemon.state_dir().join("spool");
    assert!(spool.join(run.id()).exists() && spool.join(other.id()).exists());
    run.delete().await;
    assert!(!spool.join(run.id()).exists());
    // What a run left that nobody knows any more.
    std::fs::rename(spool.join(other.id()), spool.join(run.id())).unwrap();
    daemon.stop().await;
    daemon.launch().await;
    assert_eq!(std::fs::read_dir(&spool).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_output_evicts_old_output() {
    let config = "spool: { max_total: 4MiB }\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let (mut run, blob) = with_blob(&daemon, MIB + MIB / 2).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let call = run.call_with(request(&["cat", "blob"])).await.unwrap();
        assert_eq!(exec(&call).stdout_bytes, blob.len() as u64);
        ids.push(call.call_id);
    }
    for (i, call_id) in ids.iter().enumerate() {
        let kept = fetch(&mut run, call_id, 0).await;
        assert!(kept == if i == 0 { &[][..] } else { &blob }, "call {i} has {} bytes", kept.len());
        let chunk = get(&mut run, call_id, 0, 0).await.stdout.unwrap();
        assert_eq!((chunk.complete, chunk.kept_bytes), (true, kept.len() as u64));
    }
}

struct Coffer(tokio::process::Command);

impl Coffer {
    fn new(daemon: &Daemon, line: &[&str]) -> Self {
        let mut command = tokio::process::Command::new(binary("coffer"));
        for variable in ["COFFERDAM_RUN", "DOCKER_HOST", "NO_COLOR"] {
            command.env_remove(variable);
        }
        command.env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display()));
        command.args(line).stdin(std::process::Stdio::null()).kill_on_drop(true);
        Self(command)
    }

    async fn output(mut self) -> std::process::Output {
        tokio::time::timeout(PATIENCE, self.0.output()).await.expect("coffer does not end").unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_shows_output_live_and_later() {
    let daemon = Daemon::start().await;
    let (mut run, blob) = with_blob(&daemon, 2 * MIB).await;
    let id = run.id().to_owned();
    let output = Coffer::new(&daemon, &["call", "exec", &id, "--", "cat", "blob"]).output().await;
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
    assert!(output.stdout == blob, "byte for byte, and nothing left out");
    let failing = ["call", "exec", &id, "--", "sh", "-c", "echo out; printf err >&2; exit 3"];
    let output = Coffer::new(&daemon, &failing).output().await;
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b"out\n"[..]));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "err\nfailed: the command ended with exit code 3\n");

    let call = run.clients.events(&id, "call_receipt").await[0].call_id.clone();
    let output = Coffer::new(&daemon, &["call", "output", &call, "--offset", "9", "--follow"]).output().await;
    assert!(output.status.success() && output.stdout == blob[9..]);

    // Whoever waits for a reviewer learns whom to ask.
    let mut review = daemon.run("review", &daemon.workspace("r", &[])).await;
    let review_id = review.id().to_owned();
    let waiting = Coffer::new(&daemon, &["call", "exec", &review_id, "--wait", "--", "sh", "-c", "echo one"]);
    let waiting = tokio::spawn(waiting.output());
    let approval = review.clients.pending_approval(&review_id).await.approval_id;
    review.clients.approve(&approval).await.unwrap();
    let output = waiting.await.unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"one\n"[..]));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), format!("awaiting approval {approval}\n"));

    // Ctrl-C ends the command as well.
    let workspace = daemon.roots().join("w");
    let mut coffer = Coffer::new(&daemon, &["call", "exec", &id, "--", "sh", "-c", &tree(60)]);
    let mut child = coffer.0.spawn().unwrap();
    begun(&workspace).await;
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(!child.wait().await.unwrap().success());
    let call = run.clients.events(&id, "call_intent").await.last().unwrap().call_id.clone();
    let ended = run.outcome(&call).await;
    assert_eq!(ended.error.unwrap().reason, "CANCELLED");
    assert!(!workspace.join("ended").exists());
}
