//! Tests messages that a worker must not send.

use operations::Bounds;
use tokio_util::sync::CancellationToken;
use wire::v1;
use wire::worker::v1::from_worker::Body;
use wire::worker::v1::output::Stream::{Stderr, Stdout, Unspecified};
use wire::worker::v1::{self as w, FromWorker, Hello};

use crate::client::tests::fake::{
    Asked, Fake, Leaf, call, call_with, connect, ended, exec, executed, failed, list, listed, spawned, wrote,
};
use crate::client::{CloseReason, ConnectError, LaneError, Violation};
use crate::frame::encode;

/// How far a placed command has come when the frames of a case are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Begun,
    Running,
    Cleared,
}

/// The client says that `bodies`, about a call of its own, break the protocol; the call is lost, what it left is ended.
async fn breaks(at: At, bodies: Vec<Body>, expected: Violation) {
    let case = format!("{at:?} {bodies:?}");
    let (mut fake, client) = Fake::connected().await;
    let (leaf, mut asked) = Leaf::new(None);
    let calling = call_with(&client, exec(), Bounds::default(), Some(leaf), CancellationToken::new());
    let (id, _) = fake.started().await;
    if at != At::Begun {
        fake.say(id, spawned(40)).await;
        fake.heard().await;
        assert_eq!(asked.recv().await, Some(Asked::Place(40)));
    }
    if at == At::Cleared {
        fake.say(id, ended(false)).await;
        fake.heard().await;
        assert_eq!(asked.recv().await, Some(Asked::Finish { forced: false }));
    }
    for body in bodies {
        fake.say(id, body).await;
    }
    assert_eq!(client.closed().await, CloseReason::Protocol(expected), "{case}");
    let lost = calling.await.unwrap();
    assert_eq!(lost, Err(LaneError::Lost(CloseReason::Protocol(expected))), "{case}");
    if at == At::Running {
        assert_eq!(asked.recv().await, Some(Asked::Finish { forced: true }), "{case}");
    }
    assert!(!matches!(asked.recv().await, Some(Asked::Finish { .. })), "finished twice: {case}");
}

#[tokio::test]
async fn commands_are_announced_once_and_with_a_process() {
    for pid in [0, 1, u32::MAX] {
        breaks(At::Begun, vec![spawned(pid)], Violation::Spawned).await;
    }
    breaks(At::Running, vec![spawned(41)], Violation::Spawned).await;
    breaks(At::Cleared, vec![spawned(41)], Violation::Spawned).await;
}

#[tokio::test]
async fn ends_arrive_once_and_after_the_beginning() {
    breaks(At::Begun, vec![ended(false)], Violation::Ended).await;
    breaks(At::Cleared, vec![ended(true)], Violation::Ended).await;
}

#[tokio::test]
async fn output_has_its_offset_its_order_and_its_bounds() {
    breaks(At::Begun, vec![wrote(Stdout, 0, b"a")], Violation::Output).await;
    for body in [
        wrote(Unspecified, 0, b"a"),
        wrote(Stdout, 1, b"a"),
        wrote(Stdout, u64::MAX, b"a"),
        wrote(Stderr, 0, b""),
        wrote(Stderr, 0, &vec![0; 65_537]),
    ] {
        breaks(At::Running, vec![body], Violation::Output).await;
    }
    let twice = vec![wrote(Stdout, 0, b"ab"), wrote(Stderr, 0, b"c"), wrote(Stdout, 1, b"b")];
    breaks(At::Running, twice, Violation::Output).await;
}

#[tokio::test]
async fn more_output_than_the_profile_allows_closes_the_stream() {
    let (mut fake, client) = Fake::connected().await;
    let bounds = Bounds { max_spool_bytes: 5, ..Bounds::default() };
    let calling = call_with(&client, exec(), bounds, None, CancellationToken::new());
    let (id, _) = fake.started().await;
    fake.say(id, wrote(Stdout, 0, b"abc")).await;
    fake.say(id, wrote(Stderr, 0, b"def")).await;
    assert_eq!(client.closed().await, CloseReason::Protocol(Violation::Output));
    assert!(calling.await.unwrap().is_err());
}

#[tokio::test]
async fn outcomes_fit_their_operation_and_are_consistent() {
    breaks(At::Begun, vec![executed(0, 0)], Violation::Outcome).await;
    breaks(At::Running, vec![executed(1, 0)], Violation::Outcome).await;
    breaks(At::Running, vec![listed(0)], Violation::Outcome).await;
    breaks(At::Running, vec![wrote(Stdout, 0, b"a"), failed("NOT_FOUND")], Violation::Outcome).await;
    breaks(At::Cleared, vec![failed("NOT_FOUND")], Violation::Outcome).await;
    breaks(At::Cleared, vec![executed(1, 0)], Violation::Outcome).await;
    breaks(At::Cleared, vec![wrote(Stdout, 0, b"ab"), executed(1, 0)], Violation::Outcome).await;
    breaks(At::Running, vec![failed("NO_SUCH_REASON")], Violation::Outcome).await;
    breaks(At::Running, vec![Body::Outcome(w::Outcome::default())], Violation::Outcome).await;
    // The result of a command is the daemon's to make.
    for result in
        [v1::ExecResult::default(), v1::ExecResult { stdout: "forged".to_owned(), ..Default::default() }]
    {
        let result = v1::Result { kind: Some(v1::result::Kind::Exec(result)) };
        let outcome = w::Outcome { kind: Some(w::outcome::Kind::Result(result)), ..Default::default() };
        breaks(At::Cleared, vec![Body::Outcome(outcome)], Violation::Outcome).await;
    }
}

#[tokio::test]
async fn command_messages_for_other_operations_break_the_protocol() {
    for (body, violation) in [
        (spawned(40), Violation::Spawned),
        (ended(false), Violation::Ended),
        (wrote(Stdout, 0, b"a"), Violation::Output),
        (executed(0, 0), Violation::Outcome),
    ] {
        let (mut fake, client) = Fake::connected().await;
        let calling = call(&client, list());
        let (id, _) = fake.started().await;
        fake.say(id, body).await;
        let reason = CloseReason::Protocol(violation);
        assert_eq!(calling.await.unwrap(), Err(LaneError::Lost(reason)));
    }
}

#[tokio::test]
async fn frames_are_about_calls_in_flight() {
    let (mut fake, client) = Fake::connected().await;
    fake.say(99, listed(0)).await;
    assert_eq!(client.closed().await, CloseReason::Protocol(Violation::UnknownCall));

    let (mut fake, client) = Fake::connected().await;
    let calling = call(&client, list());
    let (id, _) = fake.started().await;
    let other = call(&client, list());
    fake.started().await;
    fake.say(id, listed(1)).await;
    fake.say(id, listed(2)).await;
    let reason = CloseReason::Protocol(Violation::UnknownCall);
    assert_eq!(client.closed().await, reason);
    assert!(calling.await.unwrap().is_ok());
    assert_eq!(other.await.unwrap(), Err(LaneError::Lost(reason)));
}

#[tokio::test]
async fn unsolicited_messages_break_the_protocol() {
    let hello = Body::Hello(Hello { protocol: 1, nonce: vec![0; 32], pid: 7, ..Hello::default() });
    for (id, body, violation) in [
        (0, Body::Pong(w::Pong {}), Violation::Pong),
        (5, Body::Pong(w::Pong {}), Violation::Pong),
        (0, hello, Violation::Hello),
        (0, Body::VariablesTaken(w::VariablesTaken {}), Violation::Variables),
        (5, Body::VariablesTaken(w::VariablesTaken {}), Violation::Variables),
    ] {
        let (mut fake, client) = Fake::connected().await;
        fake.say(id, body).await;
        assert_eq!(client.closed().await, CloseReason::Protocol(violation));
    }
    let (mut fake, client) = Fake::connected().await;
    fake.raw(&encode(&FromWorker { id: 1, body: None }).unwrap()).await;
    assert_eq!(client.closed().await, CloseReason::Protocol(Violation::Empty));
}

#[tokio::test]
async fn malformed_frames_close_the_stream() {
    for (bytes, reason) in [
        (&b"\xff\xff\xff\xff"[..], CloseReason::Protocol(Violation::Frame)),
        (b"\0\0\0\x03\xff\xff\xff", CloseReason::Protocol(Violation::Frame)),
        (b"\0\0\0\x03\x08", CloseReason::Protocol(Violation::Cut)),
        (b"", CloseReason::Eof),
    ] {
        let (mut fake, client) = Fake::connected().await;
        fake.raw(bytes).await;
        fake.close_output().await;
        assert_eq!(client.closed().await, reason, "{bytes:?}");
    }
}

#[tokio::test]
async fn a_hello_answers_this_hello() {
    type Change = fn(Hello) -> (u64, Body);
    let cases: [(Change, &str); 5] = [
        (|hello| (0, Body::Hello(Hello { protocol: 3, ..hello })), "version 3"),
        (|hello| (0, Body::Hello(Hello { nonce: vec![0; 32], ..hello })), "does not answer"),
        (|hello| (0, Body::Hello(Hello { nonce: hello.nonce[..31].to_vec(), ..hello })), "does not answer"),
        (|hello| (1, Body::Hello(hello)), "not a hello"),
        (|_| (0, Body::Pong(w::Pong {})), "not a hello"),
    ];
    for (change, expected) in cases {
        let (mut fake, daemon) = Fake::pair();
        let connecting = tokio::spawn(connect(daemon));
        let Some(w::to_worker::Body::Hello(hello)) = fake.recv().await.unwrap().body else {
            panic!("no hello")
        };
        let (id, body) = change(hello);
        fake.say(id, body).await;
        let error = connecting.await.unwrap().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_does_not_start_has_a_separate_error() {
    let (mut fake, daemon) = Fake::pair();
    let (connected, ()) = tokio::join!(connect(daemon), fake.raw(b"OCI runtime exec failed"));
    assert!(matches!(connected, Err(ConnectError::Frame(_))));

    let (mut fake, daemon) = Fake::pair();
    let (connected, ()) = tokio::join!(connect(daemon), fake.close_output());
    assert!(matches!(connected, Err(ConnectError::Closed)));

    let (_fake, daemon) = Fake::pair();
    assert!(matches!(connect(daemon).await, Err(ConnectError::TimedOut)));
}
