//! Tests the guest's side of the stream: the messages that it answers, and those that it refuses.

use std::time::Duration;

use operations::Environment;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::worker::v1::to_worker::Body;
use wire::worker::v1::{
    Cancel, Credit, FromWorker, Go, Hello, Input, Ping, Prepare, Start, Terminal, TerminalSize, ToWorker,
    Variables, from_worker, outcome,
};
use worker_protocol::PROTOCOL;
use worker_protocol::client::{Client, ConnectOptions};
use worker_protocol::frame::{FrameBuffer, encode};

use crate::harness::{Guest, binary, sh};

fn frame(id: u64, body: Body) -> Vec<u8> {
    encode(&ToWorker { id, body: Some(body) }).unwrap()
}

fn hello() -> Vec<u8> {
    frame(0, Body::Hello(Hello { protocol: PROTOCOL, nonce: vec![3; 32], ..Hello::default() }))
}

/// Sends the bytes and closes: what came back, the exit code, and standard error.
async fn spoken(parts: &[&[u8]]) -> (Vec<FromWorker>, Option<i32>, String) {
    let mut process = binary(&["serve", "--project", "/nonexistent"]).spawn().unwrap();
    let mut input = process.stdin.take().unwrap();
    for part in parts {
        // A guest that ends early does not read the rest.
        let _ = input.write_all(part).await;
    }
    drop(input);
    let mut bytes = Vec::new();
    process.stdout.take().unwrap().read_to_end(&mut bytes).await.unwrap();
    let mut errors = String::new();
    process.stderr.take().unwrap().read_to_string(&mut errors).await.unwrap();
    let mut buffer = FrameBuffer::new();
    buffer.extend(&bytes);
    let mut frames = Vec::new();
    while let Some(frame) = buffer.pop().unwrap() {
        frames.push(frame);
    }
    assert!(buffer.is_empty());
    (frames, process.wait().await.unwrap().code(), errors)
}

/// Says hello and waits for the answer before the rest is sent, so that it cannot be lost in the end.
async fn after_hello(rest: &[u8], answers: usize) -> (Vec<FromWorker>, Option<i32>) {
    after(&hello(), rest, answers).await
}

async fn after(hello: &[u8], rest: &[u8], answers: usize) -> (Vec<FromWorker>, Option<i32>) {
    let state = tempfile::tempdir().unwrap();
    let at = state.path().to_str().unwrap();
    let mut process = binary(&["serve", "--project", "/nonexistent", "--state", at]).spawn().unwrap();
    let (mut input, mut output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
    input.write_all(hello).await.unwrap();
    let mut buffer = FrameBuffer::new();
    let mut frames = Vec::new();
    let mut sent = false;
    let mut bytes = [0; 4096];
    loop {
        while let Some(frame) = buffer.pop::<FromWorker>().unwrap() {
            frames.push(frame);
        }
        if !frames.is_empty() && !sent {
            sent = true;
            let _ = input.write_all(rest).await;
        }
        if frames.len() > answers {
            break;
        }
        match output.read(&mut bytes).await.unwrap() {
            0 => break,
            count => buffer.extend(&bytes[..count]),
        }
    }
    drop(input);
    (frames.split_off(1), process.wait().await.unwrap().code())
}

#[tokio::test]
async fn a_hello_is_answered() {
    let mut process = binary(&["serve"]).spawn().unwrap();
    let mut input = process.stdin.take().unwrap();
    for byte in hello() {
        input.write_all(&[byte]).await.unwrap();
    }
    let mut bytes = vec![0; 4];
    let mut output = process.stdout.take().unwrap();
    output.read_exact(&mut bytes).await.unwrap();
    let length = u32::from_be_bytes(bytes.clone().try_into().unwrap()) as usize;
    bytes.resize(4 + length, 0);
    output.read_exact(&mut bytes[4..]).await.unwrap();
    let mut buffer = FrameBuffer::new();
    buffer.extend(&bytes);
    let Some(FromWorker { id: 0, body: Some(from_worker::Body::Hello(hello)) }) = buffer.pop().unwrap()
    else {
        panic!("no hello")
    };
    let Hello { protocol, nonce, pid, channel, .. } = hello;
    assert_eq!((protocol, nonce, pid), (PROTOCOL, vec![3; 32], process.id().unwrap()));
    assert_ne!(channel, 0, "it offers a direct channel");
    drop(input);
    assert!(process.wait().await.unwrap().success());
}

#[tokio::test]
async fn an_end_before_anything_is_an_end() {
    let (frames, code, errors) = spoken(&[]).await;
    assert_eq!((frames.len(), code, errors.as_str()), (0, Some(0), ""));
}

#[tokio::test]
async fn first_frame_must_be_a_hello() {
    let older =
        frame(0, Body::Hello(Hello { protocol: PROTOCOL + 1, nonce: vec![3; 32], ..Hello::default() }));
    for bytes in [
        &frame(0, Body::Ping(Ping {}))[..],
        &frame(1, Body::Start(Start::default())),
        &frame(1, Body::Hello(Hello { protocol: PROTOCOL, nonce: Vec::new(), ..Hello::default() })),
        &older,
        b"\xff\xff\xff\xff",
        b"\0\0\0\x02\xff\xff",
        b"GET / HTTP/1.1\r\n",
        &hello()[..20],
    ] {
        let (frames, code, errors) = spoken(&[bytes]).await;
        assert_eq!((frames.len(), code), (0, Some(1)), "{bytes:?}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[tokio::test]
async fn malformed_frames_end_it_without_an_answer() {
    let twice = [frame(1, Body::Start(Start::default())), frame(1, Body::Start(Start::default()))].concat();
    for bytes in [
        &hello()[..],
        &frame(0, Body::Start(Start::default())),
        &encode(&ToWorker { id: 1, body: None }).unwrap(),
        b"\0\0\0\x02\xff\xff",
        b"\xff\xff\xff\xff",
        &twice,
    ] {
        let (frames, code) = after_hello(bytes, 1).await;
        assert_eq!((frames, code), (Vec::new(), Some(1)), "{bytes:?}");
    }
}

/// A call that waits for a Go that does not come.
fn waiting(id: u64, terminal: Option<Terminal>) -> Vec<u8> {
    let (command, cwd) = ("true".to_owned(), "@state".to_owned());
    let exec = wire::v1::ExecRequest { command, cwd, ..Default::default() };
    let operation = wire::v1::Operation { kind: Some(wire::v1::operation::Kind::Exec(exec)) };
    let start =
        Start { operation: Some(operation), deadline_ms: 60_000, placed: true, terminal, ..Start::default() };
    frame(id, Body::Start(start))
}

/// The hello of a daemon that does not know the run yet.
fn early_hello() -> Hello {
    Hello { protocol: PROTOCOL, nonce: vec![3; 32], variables_follow: true, ..Hello::default() }
}

fn variables<'v>(each: impl IntoIterator<Item = (&'v str, String)>) -> Vec<u8> {
    let environment = each.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    frame(0, Body::Variables(Variables { environment }))
}

#[tokio::test]
async fn variables_that_follow_the_hello_reach_the_commands() {
    let guest = Guest::start_with(async |_, input, output| {
        let options = ConnectOptions { environment: None, ..ConnectOptions::default() };
        let (client, peer) = Client::connect(input, output, options).await.unwrap();
        let known = [("CI", "from-the-claim"), ("EMPTY", "")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        client.provide(&Environment::parse("env", known.into()).unwrap()).await.unwrap();
        (client, peer)
    })
    .await;
    let ran = guest.ran(sh("echo $CI ${EMPTY-unset}$HOME")).await;
    assert_eq!(ran.stdout, "from-the-claim /tmp\n");
}

#[tokio::test]
async fn variables_are_taken_once_before_the_first_call_and_within_their_bounds() {
    let early = frame(0, Body::Hello(early_hello()));
    let some = || variables([("CI", "1".to_owned())]);
    let start = || frame(1, Body::Start(Start::default()));
    // Taken, and then refused: twice, and after a call.
    for rest in [[some(), some()].concat(), [some(), start(), some()].concat()] {
        let (frames, code) = after(&early, &rest, 3).await;
        assert_eq!(code, Some(1), "{frames:?}");
    }
    // Nothing is taken: a call before them, a process that waits for a call is none, and variables beyond their bounds.
    for rest in [
        start(),
        frame(1, Body::Variables(Variables::default())),
        variables([("A=B", "1".to_owned())]),
        variables([("A", "1\0".to_owned())]),
        variables([("A", "x".repeat(1 << 20))]),
    ] {
        let (frames, code) = after(&early, &rest, 1).await;
        assert_eq!((frames, code), (Vec::new(), Some(1)), "{:?}", &rest[..rest.len().min(100)]);
    }
    // A guest that has the variables of its run takes no others.
    let (frames, code) = after_hello(&some(), 1).await;
    assert_eq!((frames, code), (Vec::new(), Some(1)));
    // A hello has them, or they follow.
    let both = Hello { environment: [("A".to_owned(), "b".to_owned())].into(), ..early_hello() };
    let (frames, code, _) = spoken(&[&frame(0, Body::Hello(both))]).await;
    assert_eq!((frames.len(), code), (0, Some(1)));
    // Processes may be made beforehand.
    let (frames, code) = after(&early, &[frame(4, Body::Prepare(Prepare {})), some()].concat(), 2).await;
    assert_eq!(code, Some(0), "{frames:?}");
    let taken = |frame: &FromWorker| matches!(frame.body, Some(from_worker::Body::VariablesTaken(_)));
    assert_eq!(frames.iter().filter(|frame| taken(frame)).count(), 1, "{frames:?}");
}

#[tokio::test]
async fn invalid_terminal_frames_close_the_stream() {
    let size = |rows, columns| TerminalSize { rows, columns };
    let terminal = |size| Some(Terminal { size, login_shell: false, pipes: false });
    let input = |length| frame(1, Body::Input(Input { data: vec![b'k'; length] }));
    let signal = |number| frame(1, Body::Signal(wire::worker::v1::Signal { number }));
    let without = waiting(1, None);
    let with = waiting(1, terminal(Some(size(24, 80))));
    for bytes in [
        waiting(1, terminal(None)),
        waiting(1, terminal(Some(size(0, 80)))),
        waiting(1, terminal(Some(size(24, 10_001)))),
        [&without[..], &input(1)].concat(),
        [&without[..], &signal(2)].concat(),
        [&without[..], &frame(1, Body::Resize(size(1, 1)))].concat(),
        [&with[..], &input(0)].concat(),
        [&with[..], &input(16 * 1024 + 1)].concat(),
        // Nothing of it is taken as long as nothing runs.
        [&with[..], &input(16 * 1024).repeat(5)].concat(),
        [&with[..], &signal(19)].concat(),
        [&with[..], &frame(1, Body::Resize(size(24, 0)))].concat(),
    ] {
        let (frames, code) = after_hello(&bytes, 2).await;
        assert_eq!(code, Some(1), "{:?}", &bytes[..bytes.len().min(100)]);
        let spoken = |frame: &FromWorker| matches!(frame.body, Some(from_worker::Body::Outcome(_)));
        assert!(!frames.iter().any(spoken), "{frames:?}");
    }
}

#[tokio::test]
async fn a_terminal_is_for_commands() {
    let list = wire::v1::ListRequest { path: "@project".to_owned(), ..Default::default() };
    let operation = wire::v1::Operation { kind: Some(wire::v1::operation::Kind::List(list)) };
    let terminal =
        Some(Terminal { size: Some(TerminalSize { rows: 1, columns: 1 }), login_shell: false, pipes: false });
    let start = Start { operation: Some(operation), deadline_ms: 1000, terminal, ..Start::default() };
    let (frames, code) = after_hello(&frame(7, Body::Start(start)), 1).await;
    assert_eq!(code, Some(0));
    let [FromWorker { id: 7, body: Some(from_worker::Body::Outcome(outcome)) }] = &frames[..] else {
        panic!("{frames:?}")
    };
    let Some(outcome::Kind::Failure(failure)) = &outcome.kind else { panic!("{outcome:?}") };
    assert_eq!(failure.reason, "INVALID_ARGUMENT");
}

#[tokio::test]
async fn pings_are_answered_and_messages_for_unknown_calls_ignored() {
    let bytes = [
        frame(9, Body::Go(Go { evidence: None })),
        frame(9, Body::Cancel(Cancel {})),
        frame(9, Body::Credit(Credit { bytes: u64::MAX })),
        frame(9, Body::Input(Input { data: vec![0; 1] })),
        frame(9, Body::Resize(TerminalSize { rows: 0, columns: 0 })),
        frame(9, Body::Signal(wire::worker::v1::Signal { number: 99 })),
        frame(0, Body::Ping(Ping {})),
    ];
    let (frames, code) = after_hello(&bytes.concat(), 1).await;
    assert_eq!(code, Some(0));
    assert!(
        matches!(frames[..], [FromWorker { id: 0, body: Some(from_worker::Body::Pong(_)) }]),
        "{frames:?}"
    );
}

#[tokio::test]
async fn invalid_operation_fails_alone() {
    let (frames, code) = after_hello(&frame(5, Body::Start(Start::default())), 1).await;
    assert_eq!(code, Some(0));
    let [FromWorker { id: 5, body: Some(from_worker::Body::Outcome(outcome)) }] = &frames[..] else {
        panic!("{frames:?}")
    };
    let Some(outcome::Kind::Failure(failure)) = &outcome.kind else { panic!("{outcome:?}") };
    assert_eq!(failure.reason, "INVALID_ARGUMENT");
}

#[tokio::test]
async fn too_many_calls_are_refused_one_by_one() {
    // They wait for a Go that does not come.
    let operation = wire::v1::Operation {
        kind: Some(wire::v1::operation::Kind::Exec(wire::v1::ExecRequest {
            command: "true".to_owned(),
            cwd: "@state".to_owned(),
            ..Default::default()
        })),
    };
    let start = Start { operation: Some(operation), deadline_ms: 60_000, placed: true, ..Start::default() };
    let mut bytes = Vec::new();
    for id in 1..=70 {
        bytes.extend(frame(id, Body::Start(start.clone())));
    }
    let dir = tempfile::tempdir().unwrap();
    let mut process = binary(&["serve", "--state", dir.path().to_str().unwrap()]).spawn().unwrap();
    let (mut input, mut output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
    input.write_all(&hello()).await.unwrap();
    input.write_all(&bytes).await.unwrap();
    let (mut buffer, mut spawned, mut refused) = (FrameBuffer::new(), 0, 0);
    let mut read = [0; 4096];
    while spawned + refused < 70 {
        let count = output.read(&mut read).await.unwrap();
        assert!(count > 0, "the guest ended");
        buffer.extend(&read[..count]);
        while let Some(frame) = buffer.pop::<FromWorker>().unwrap() {
            match frame.body.unwrap() {
                from_worker::Body::Spawned(_) => spawned += 1,
                from_worker::Body::Outcome(outcome) => {
                    let Some(outcome::Kind::Failure(failure)) = outcome.kind else { panic!("a result") };
                    assert_eq!(failure.reason, "OVERLOADED");
                    refused += 1;
                }
                from_worker::Body::Hello(_) => {}
                other => panic!("unexpected {other:?}"),
            }
        }
    }
    assert_eq!((spawned, refused), (64, 6));
    drop(input);
    assert!(process.wait().await.unwrap().success());
}

/// As the first process of a pid namespace, to which the kernel gives signals only if it has handlers for them.
#[tokio::test]
async fn hold_has_no_handler_for_any_signal_and_serve_ignores_them() {
    // With its first thread the C library has a handler for the signal by which it changes ids in all threads. It ignores what
    // other processes send.
    const OF_THREADS: u64 = 1 << 32;
    for (command, ignored, own) in [("hold", 0, 0), ("serve", !0, OF_THREADS)] {
        let mut process = binary(&[command]).spawn().unwrap();
        let status = format!("/proc/{}/status", process.id().unwrap());
        // The standard library has put its own handlers there before they are taken away.
        let settled = async {
            loop {
                let text = std::fs::read_to_string(&status).unwrap();
                let mask = |name: &str| {
                    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                    u64::from_str_radix(line.trim(), 16).unwrap()
                };
                let all = !(bit(Signal::KILL) | bit(Signal::STOP) | bit(Signal::CHILD) | own);
                let (caught, has) = (mask("SigCgt:"), mask("SigIgn:"));
                if caught & all == 0 && has & all == ignored & all && mask("SigBlk:") & all == 0 {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), settled).await.expect(command);
        process.kill().await.unwrap();
    }
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

#[tokio::test]
async fn an_invalid_command_line_is_reported() {
    for args in [&[][..], &["run"], &["serve", "--root", "/"]] {
        let output = binary(args).output().await.unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
        assert!(!output.stderr.is_empty());
    }
}
