use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use timestamp::UnixMillis;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use webhook::{Endpoint, Sender, Target};

use super::{Hook, Links};
use crate::board::{Board, Notice};
use crate::form::Form;

fn notice(approval: &str, run: &str) -> Notice {
    Notice {
        approval_id: approval.into(),
        run_id: run.into(),
        operation: "exec".into(),
        profile: "build".into(),
        risk: "high",
        requested_by: "uid:1".into(),
        expires_at: UnixMillis::now().after(Duration::from_mins(5)),
        preview: String::new(),
    }
}

/// A receiver that answers with these statuses, the last one for ever, and hands over the bodies.
async fn receiver(statuses: &'static [u16]) -> (u16, mpsc::UnboundedReceiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (bodies, received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for nr in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut sent = Vec::new();
            let body = loop {
                let mut piece = [0; 4_096];
                let count = stream.read(&mut piece).await.unwrap();
                sent.extend_from_slice(&piece[..count]);
                let text = String::from_utf8_lossy(&sent).into_owned();
                let Some((_, body)) = text.split_once("\r\n\r\n") else { continue };
                if let Ok(body) = serde_json::from_str::<Value>(body) {
                    break body;
                }
            };
            let status = statuses[nr.min(statuses.len() - 1)];
            let _ = stream
                .write_all(format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n").as_bytes())
                .await;
            let _ = bodies.send(body);
        }
    });
    (port, received)
}

fn start(port: u16, per_minute: u32) -> (Arc<Board>, CancellationToken) {
    let hook = Hook {
        endpoint: Endpoint {
            name: "team".into(),
            target: Target::parse(&format!("http://127.0.0.1:{port}/"), false).unwrap(),
            secret: None,
            timeout: Duration::from_secs(5),
            attempts: 3,
            first_retry: Duration::from_millis(20),
        },
        form: Form::Standard,
        details: false,
        batch: Duration::from_millis(50),
        per_minute,
    };
    let (board, stop) = (Arc::new(Board::default()), CancellationToken::new());
    tokio::spawn(hook.run(board.clone(), Links::default(), Sender::new().unwrap(), stop.clone()));
    (board, stop)
}

fn ids(body: &Value) -> Vec<&str> {
    let approvals = body["data"]["approvals"].as_array().unwrap();
    approvals.iter().map(|approval| approval["approval_id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn approvals_of_a_run_are_one_message_and_runs_come_in_order() {
    let (port, mut received) = receiver(&[200]).await;
    let (board, _stop) = start(port, 60_000);
    for (approval, run) in [("1", "a"), ("2", "b"), ("3", "a")] {
        board.waits(notice(approval, run));
    }
    let first = received.recv().await.unwrap();
    assert_eq!((ids(&first), &first["data"]["run_id"]), (vec!["1", "3"], &"a".into()));
    assert_eq!(ids(&received.recv().await.unwrap()), ["2"]);
    board.ended("3", "APPROVED");
    let ended = received.recv().await.unwrap();
    assert_eq!(ended["type"], "approval.ended");
    assert_eq!(ended["data"]["ended"][0], serde_json::json!({ "approval_id": "3", "state": "APPROVED" }));
    assert_eq!(ended["data"]["waiting_in_all"], 2);
}

#[tokio::test]
async fn a_retry_leaves_out_what_was_decided_meanwhile() {
    let (port, mut received) = receiver(&[500, 200]).await;
    let (board, _stop) = start(port, 60_000);
    board.waits(notice("1", "a"));
    board.waits(notice("2", "a"));
    assert_eq!(ids(&received.recv().await.unwrap()), ["1", "2"]);
    board.ended("1", "DENIED");
    board.waits(notice("3", "a"));
    let again = received.recv().await.unwrap();
    assert_eq!(ids(&again), ["2", "3"]);
    assert!(again["data"]["ended"].as_array().unwrap().is_empty(), "it was never told of 1");
}

#[tokio::test]
async fn attempts_are_bounded_and_the_next_approval_is_told() {
    let (port, mut received) = receiver(&[500, 500, 500, 200]).await;
    let (board, _stop) = start(port, 60_000);
    board.waits(notice("1", "a"));
    for _ in 0..3 {
        assert_eq!(ids(&received.recv().await.unwrap()), ["1"]);
    }
    board.waits(notice("2", "a"));
    assert_eq!(ids(&received.recv().await.unwrap()), ["2"]);
}

#[tokio::test]
async fn a_receiver_that_is_gone_gets_no_more() {
    let (port, mut received) = receiver(&[410]).await;
    let (board, _stop) = start(port, 60_000);
    board.waits(notice("1", "a"));
    received.recv().await.unwrap();
    board.waits(notice("2", "a"));
    assert!(tokio::time::timeout(Duration::from_millis(500), received.recv()).await.is_err());
}

#[tokio::test]
async fn messages_keep_to_their_rate_and_then_tell_all_at_once() {
    let (port, mut received) = receiver(&[200]).await;
    // One in 600 ms.
    let (board, _stop) = start(port, 100);
    let begun = std::time::Instant::now();
    board.waits(notice("1", "a"));
    received.recv().await.unwrap();
    for nr in 2..9 {
        board.waits(notice(&nr.to_string(), "a"));
    }
    assert_eq!(ids(&received.recv().await.unwrap()).len(), 7);
    assert!(begun.elapsed() >= Duration::from_millis(600), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn an_approval_that_ends_before_it_was_told_is_not_told() {
    let (port, mut received) = receiver(&[200]).await;
    let (board, _stop) = start(port, 60_000);
    board.waits(notice("1", "a"));
    board.ended("1", "APPROVED");
    board.waits(notice("2", "b"));
    assert_eq!(ids(&received.recv().await.unwrap()), ["2"]);
    board.replace([notice("3", "b")]);
    let next = received.recv().await.unwrap();
    assert_eq!(ids(&next), ["3"]);
    assert_eq!(next["data"]["ended"][0]["state"], "OVER", "its end was missed");
}
