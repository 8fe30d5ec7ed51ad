//! Tests the ends of sessions, and that nothing of them is left.

use std::time::Duration;

use harness::v1::terminal_closed::Reason;
use harness::v1::{self, terminal_signal::Kind};
use harness::{Daemon, Setup};
use serde_json::json;

use super::{Seat, assert_idle, digest, events, recorded, recording, run, runs, text};

#[tokio::test(flavor = "multi_thread")]
async fn processes_end_when_the_operator_disconnects() {
    let daemon = Daemon::start().await;
    let run = run(&daemon).await;
    let mut seat = Seat::at(&run).await;
    // In sessions of their own, and deaf to SIGTERM and SIGHUP.
    seat.types("./probe tree setsid 3 stay &\r").await;
    seat.sees("ready").await;
    seat.types("./probe tree deaf 3 stay &\r").await;
    seat.sees("ready").await;
    let session = seat.session.clone();
    drop(seat);
    let closed = recorded(&run, &session, "session_closed").await;
    assert_eq!(closed["outcome"]["reason"], "DISCONNECTED");
    let kill = &closed["outcome"]["facts"]["kill"];
    assert_eq!(kill["left"], 0, "{kill}");
    assert!(kill["ended"].as_u64().unwrap() >= 6, "{kill}");
    let path = recording(&daemon, &run, &session);
    assert_eq!(closed["outcome"]["facts"]["recording"]["sha256"], json!(digest(&path)));
    assert_idle(&run);
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_end_with_the_shell() {
    let daemon = Daemon::start().await;
    let run = run(&daemon).await;
    let mut seat = Seat::at(&run).await;
    seat.types("./probe tree setsid 3 stay &\r").await;
    seat.sees("ready").await;
    seat.types("exit 0\r").await;
    assert_eq!(seat.closed().await, (Reason::Exited, Some(0), None));
    assert_idle(&run);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_with_its_run_and_its_recording_with_the_runs_deletion() {
    let daemon = Daemon::start().await;
    let mut run = run(&daemon).await;
    let mut seat = Seat::at(&run).await;
    seat.types("sleep 1000\r").await;
    runs(&run, "sleep 1000").await;
    let (stopped, closed) = tokio::join!(run.stop(), seat.closed());
    assert_eq!((stopped.state(), closed.0), (v1::run::State::Stopped, Reason::RunEnded));
    let record = recorded(&run, &seat.session, "session_closed").await;
    assert_eq!(record["outcome"]["reason"], "RUN_ENDED");
    let path = recording(&daemon, &run, &seat.session);
    assert_eq!(record["outcome"]["facts"]["recording"]["sha256"], json!(digest(&path)));
    run.delete().await;
    assert!(!path.parent().unwrap().exists());
    assert_eq!(daemon.leftovers(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn session_ends_when_its_recording_is_full() {
    let config = "sessions: { max_recording: 512KiB }\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let run = run(&daemon).await;
    let mut seat = Seat::running(&run, &["sh", "-c", "while :; do echo 0123456789; done"]).await.unwrap();
    assert_eq!(seat.closed().await.0, Reason::RecordingFull);
    let path = recording(&daemon, &run, &seat.session);
    let size = std::fs::metadata(&path).unwrap().len();
    // What comes at once, 64 KiB and its escapes, is recorded whole or not at all.
    assert!((384 << 10..=512 << 10).contains(&size), "{size}");
    assert_eq!(text(&events(&path), "o"), String::from_utf8_lossy(&seat.screen), "shown is what is recorded");
    let record = recorded(&run, &seat.session, "session_closed").await;
    assert_eq!(record["outcome"]["facts"]["recording"], json!({ "sha256": digest(&path), "bytes": size }));
    assert_idle(&run);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_and_long_sessions_end() {
    let config = "sessions: { idle_timeout: 3s, max_length: 7s }\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let run = run(&daemon).await;
    let mut idle = Seat::at(&run).await;
    let mut busy = Seat::running(&run, &["sh", "-c", "while sleep 0.2; do echo tick; done"]).await.unwrap();
    let (first, second) =
        tokio::join!(async { (idle.closed().await.0, tokio::time::Instant::now()) }, async {
            (busy.closed().await.0, tokio::time::Instant::now())
        });
    assert_eq!((first.0, second.0), (Reason::TimedOut, Reason::TimedOut));
    assert!(second.1 > first.1 + Duration::from_secs(1), "what is shown keeps a session from being idle");
    let why = |record: serde_json::Value| record["outcome"]["message"].as_str().unwrap().to_owned();
    let (idle, busy) = (
        why(recorded(&run, &idle.session, "session_closed").await),
        why(recorded(&run, &busy.session, "session_closed").await),
    );
    assert!(idle.contains("was idle") && busy.contains("longest time"), "{idle}; {busy}");
    assert_idle(&run);
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_flood_does_not_block_others() {
    let daemon = Daemon::start().await;
    let run = run(&daemon).await;
    let mut flood = Seat::running(&run, &["/workspace/probe", "flood", "1000000000"]).await.unwrap();
    // More than every window and every buffer on the way holds, typed at a program that does not read.
    let deaf = Seat::running(&run, &["sleep", "1000"]).await.unwrap();
    runs(&run, "sleep 1000").await;
    while deaf.say.try_send(typed(16 * 1024)).is_ok() {}
    // The run and its other sessions go on.
    let mut third = Seat::at(&run).await;
    third.types("echo $((6*7))\r").await;
    third.sees("42").await;
    flood.signal(Kind::Kill).await;
    drop(third);
    let (reason, _, signal) = flood.closed().await;
    assert_eq!((reason, signal), (Reason::Exited, Some(9)));
    let session = deaf.session.clone();
    drop(deaf);
    assert_eq!(recorded(&run, &session, "session_closed").await["outcome"]["reason"], "DISCONNECTED");
}

fn typed(bytes: usize) -> v1::OpenTerminalRequest {
    input(vec![b'x'; bytes])
}

fn input(bytes: Vec<u8>) -> v1::OpenTerminalRequest {
    v1::OpenTerminalRequest { event: Some(v1::open_terminal_request::Event::Input(bytes)) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_dies_leaves_no_session_without_an_end() {
    let mut daemon = Daemon::start().await;
    let run = run(&daemon).await;
    let mut seat = Seat::at(&run).await;
    seat.types("echo $((6*7))\r").await;
    seat.sees("42").await;
    // Of a run that nobody knows.
    let stray = daemon.state_dir().join("sessions/0198a1b2-0000-7000-8000-00000000aaaa");
    std::fs::create_dir(&stray).unwrap();
    daemon.relaunch().await;
    let run = harness::RunHandle { run: run.run.clone(), clients: daemon.connect().await };
    let closed = recorded(&run, &seat.session, "session_closed").await;
    assert_eq!((&closed["outcome"]["status"], &closed["run_id"]), (&json!("interrupted"), &json!(run.id())));
    let path = recording(&daemon, &run, &seat.session);
    assert_eq!(closed["outcome"]["facts"]["recording"]["sha256"], json!(digest(&path)));
    assert!(text(&events(&path), "o").contains("42"), "what was seen is in it");
    assert!(!stray.exists());
    // Its run outlived the daemon, what ran on the terminal did not.
    let idle = ["/.cofferdam/guest hold", "/.cofferdam/guest serve"];
    assert_eq!(harness::processes(&run.run.container_id), idle);
    let mut next = Seat::at(&run).await;
    next.types("echo $((6*8))\r").await;
    next.sees("48").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_stops_ends_its_sessions_in_order() {
    let mut daemon = Daemon::start().await;
    let run = run(&daemon).await;
    let mut seat = Seat::at(&run).await;
    seat.types("echo $((6*7))\r").await;
    seat.sees("42").await;
    let session = seat.session.clone();
    let watching = tokio::spawn(async move { seat.closed().await });
    daemon.stop().await;
    assert_eq!(watching.await.unwrap().0, Reason::RunEnded);
    daemon.launch().await;
    let run = harness::RunHandle { run: run.run.clone(), clients: daemon.connect().await };
    assert_eq!(recorded(&run, &session, "session_closed").await["outcome"]["reason"], "RUN_ENDED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_worker_costs_its_sessions_and_the_next_one_begins() {
    let daemon = Daemon::start().await;
    let run = run(&daemon).await;
    let mut seat = Seat::at(&run).await;
    seat.types("./probe tree setsid 3 stay &\r").await;
    seat.sees("ready").await;
    let agent = harness::pid_of(&run.run.container_id, "/.cofferdam/guest serve").unwrap();
    let agent = rustix::process::Pid::from_raw(i32::try_from(agent).unwrap()).unwrap();
    rustix::process::kill_process(agent, rustix::process::Signal::KILL).unwrap();
    assert_eq!(seat.closed().await.0, Reason::Lost);
    assert_eq!(recorded(&run, &seat.session, "session_closed").await["outcome"]["reason"], "LOST");
    let next = async {
        loop {
            // Whoever comes too early is told so; a worker that is there again has no event for clients.
            let mut seat = Seat::at(&run).await;
            // A session that is over already does not hear it.
            let _ = seat.say.send(input(b"exit 9\r".to_vec())).await;
            match seat.over().await {
                Ok(closed) if closed.reason() == Reason::Exited => return closed.exit_code,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    assert_eq!(tokio::time::timeout(super::PATIENCE, next).await.unwrap(), Some(9));
    assert_idle(&run);
}
