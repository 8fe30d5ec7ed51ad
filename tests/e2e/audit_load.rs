//! The audit log under load: one intent and one receipt a call, whatever became of it, and every follower sees it all.

use std::collections::HashMap;
use std::time::Duration;

use harness::v1::{AuditEvent, CallRequest, StreamEventsRequest, StreamEventsResponse};
use harness::{Clients, Daemon, RunHandle, calls};
use tonic::Streaming;

const CLIENTS: usize = 32;

/// One call of a mixture in which most read, some write or run, and every third fails or is refused.
async fn mixed(run: &mut RunHandle, number: usize) {
    let operation = match number % 30 {
        0 => calls::write(&format!("out/{}.txt", number % 90), "x"),
        1 if number.is_multiple_of(40) => calls::exec(&["true"]),
        // Denied by policy, an operation that cannot be, and a call for another agent or another run.
        2..=4 => calls::exec(&["sudo", "id"]),
        5 => calls::read("../escape"),
        6 => {
            let request = CallRequest {
                run_id: "0198a1b2-0000-7000-8000-000000000000".to_owned(),
                request: Some(calls::read("a.txt").into()),
                ..Default::default()
            };
            assert!(run.clients.tools.call(request).await.is_err());
            return;
        }
        7 => {
            let agent_id = "somebody else".to_owned();
            let request =
                CallRequest { agent_id, request: Some(calls::read("a.txt").into()), ..Default::default() };
            assert!(run.call_with(request).await.is_err());
            return;
        }
        8..=10 => calls::read("missing.txt"),
        11 => calls::list("@project"),
        _ => calls::read("a.txt"),
    };
    // However it ends.
    let _ = run.call(operation).await;
}

async fn make_calls(daemon: &Daemon, run: &RunHandle, calls: usize) {
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let mut run = RunHandle { run: run.run.clone(), clients: daemon.connect().await };
        clients.push(tokio::spawn(async move {
            for number in (client..calls).step_by(CLIENTS) {
                mixed(&mut run, number).await;
            }
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_mixed_calls_leave_one_intent_and_one_receipt_each() {
    const CALLS: usize = 10_000;
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("open", &workspace).await;
    make_calls(&daemon, &run, CALLS).await;

    let mut seen: HashMap<String, [usize; 2]> = HashMap::new();
    let mut statuses: HashMap<String, usize> = HashMap::new();
    for event in run.clients.events("", "").await {
        let seen = seen.entry(event.call_id.clone());
        match event.kind.as_str() {
            "call_intent" => seen.or_default()[0] += 1,
            "call_receipt" => {
                let seen = seen.or_default();
                assert_eq!(seen[0], 1, "a receipt before its intent: {}", event.record_json);
                seen[1] += 1;
                let status = &harness::record(&event)["outcome"]["status"];
                *statuses.entry(status.as_str().unwrap().to_owned()).or_default() += 1;
            }
            _ => {}
        }
    }
    assert_eq!(seen.len(), CALLS);
    assert!(seen.values().all(|seen| *seen == [1, 1]));
    for (status, least) in [("succeeded", CALLS / 2), ("failed", CALLS / 20), ("denied", CALLS / 10)] {
        assert!(statuses[status] > least, "{statuses:?}");
    }
    let verified = run.clients.verify().await;
    assert!(verified.intact, "{verified:?}");
}

async fn follow(clients: &mut Clients, after_sequence: u64) -> Streaming<StreamEventsResponse> {
    let request = StreamEventsRequest { after_sequence, follow: true, ..Default::default() };
    clients.audit.stream_events(request).await.unwrap().into_inner()
}

/// Reads on until it has so many.
async fn read(stream: &mut Streaming<StreamEventsResponse>, events: &mut Vec<AuditEvent>, until: usize) {
    while events.len() < until {
        events.push(stream.message().await.unwrap().expect("a followed stream does not end").event.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_followers_see_everything_once_despite_stalled_ones() {
    const FOLLOWERS: usize = 100;
    const CALLS: usize = 400;
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("open", &workspace).await;
    // Twenty to a connection: one that stalls shares its connection with others.
    let mut connections = Vec::new();
    for _ in 0..FOLLOWERS / 20 {
        connections.push(daemon.connect().await);
    }
    let (over, _) = tokio::sync::watch::channel(0_usize);
    let mut followers = Vec::new();
    for follower in 0..FOLLOWERS {
        let mut clients = connections[follower / 20].clone();
        let mut over = over.subscribe();
        followers.push(tokio::spawn(async move {
            let mut events = Vec::new();
            let mut stream = follow(&mut clients, 0).await;
            match follower % 5 {
                // Stalls until everything is over.
                0 => {}
                // Breaks off again and again, and resumes behind the last that it has.
                1 => {
                    while *over.borrow() == 0 {
                        let until = events.len() + 17;
                        tokio::select! {
                            () = read(&mut stream, &mut events, until) => {}
                            _ = over.changed() => {}
                        }
                        stream = follow(&mut clients, events.last().map_or(0, |event| event.sequence)).await;
                    }
                }
                _ => {
                    tokio::select! {
                        () = read(&mut stream, &mut events, usize::MAX) => {}
                        _ = over.changed() => {}
                    }
                }
            }
            let all = *over.wait_for(|all| *all > 0).await.unwrap();
            read(&mut stream, &mut events, all).await;
            events
        }));
    }
    let calls = make_calls(&daemon, &run, CALLS);
    tokio::time::timeout(Duration::from_secs(120), calls).await.expect("followers hold up the calls");
    let all = run.clients.events("", "").await;
    over.send_replace(all.len());
    for follower in followers {
        let seen = tokio::time::timeout(Duration::from_secs(120), follower).await.unwrap().unwrap();
        assert!(seen == all, "a follower has {} of {} events, or others", seen.len(), all.len());
    }
    assert!(run.clients.verify().await.intact);
}
