//! Tests streams: no record is skipped or doubled, for any reader from any position.

use harness::v1::{self, AuditEvent, EventFilter, StreamEventsRequest, run::State};
use harness::{Clients, Daemon, calls, reason, requests};
use tonic::Streaming;

async fn stream(clients: &mut Clients, request: StreamEventsRequest) -> Streaming<v1::StreamEventsResponse> {
    clients.audit.stream_events(request).await.unwrap().into_inner()
}

async fn read(clients: &mut Clients, after_sequence: u64) -> Vec<AuditEvent> {
    let request = StreamEventsRequest { after_sequence, ..Default::default() };
    let mut stream = stream(clients, request).await;
    let mut events = Vec::new();
    while let Some(response) = stream.message().await.unwrap() {
        events.push(response.event.unwrap());
    }
    events
}

/// Follows until the run has stopped.
async fn follow(mut clients: Clients, run: String, after_sequence: u64) -> Vec<AuditEvent> {
    let request = StreamEventsRequest { after_sequence, follow: true, ..Default::default() };
    let mut stream = stream(&mut clients, request).await;
    let mut events = Vec::new();
    loop {
        let event = stream.message().await.unwrap().expect("a followed stream does not end").event.unwrap();
        let over =
            event.run_id == run && event.kind == "run_state" && event.record_json.contains("\"STOPPED\"");
        events.push(event);
        if over {
            return events;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_replayed_from_anywhere_and_followed_by_many() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("open", &workspace).await;
    let before = read(&mut run.clients, 0).await.len() as u64;
    let mut followers = Vec::new();
    for after in [0, 1, before, before + 5] {
        let clients = daemon.connect().await;
        followers.push((after, tokio::spawn(follow(clients, run.id().to_owned(), after))));
    }
    // One that breaks off again and again and resumes after the last that it has seen.
    let resuming = tokio::spawn({
        let (mut clients, id) = (daemon.connect().await, run.id().to_owned());
        async move {
            let mut seen: Vec<AuditEvent> = Vec::new();
            loop {
                let after_sequence = seen.last().map_or(0, |event| event.sequence);
                let request = StreamEventsRequest { after_sequence, follow: true, ..Default::default() };
                let mut stream = stream(&mut clients, request).await;
                for _ in 0..3 {
                    let event = stream.message().await.unwrap().unwrap().event.unwrap();
                    let over = event.run_id == id && event.record_json.contains("\"STOPPED\"");
                    seen.push(event);
                    if over {
                        return seen;
                    }
                }
            }
        }
    });

    let calls = (0..20).map(|i| {
        let mut run = run.clone();
        tokio::spawn(async move {
            match i % 2 {
                0 => run.ok(calls::read("a.txt")).await,
                _ => run.ok(calls::write(&format!("{i}.txt"), "x")).await,
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    run.stop().await;

    let all = read(&mut run.clients, 0).await;
    let sequences: Vec<_> = all.iter().map(|event| event.sequence).collect();
    assert_eq!(sequences, (1..=all.len() as u64).collect::<Vec<_>>());
    assert!(all.windows(2).all(|pair| pair[0].hash == pair[1].previous_hash));
    for after in [0, 1, before, all.len() as u64 - 1, all.len() as u64, all.len() as u64 + 100] {
        let rest: Vec<_> = all.iter().filter(|event| event.sequence > after).cloned().collect();
        assert_eq!(read(&mut run.clients, after).await, rest, "after {after}");
    }
    let stopped = all.iter().rposition(|event| event.kind == "run_state").unwrap();
    for (after, follower) in followers {
        let expected: Vec<_> =
            all[..=stopped].iter().filter(|event| event.sequence > after).cloned().collect();
        assert_eq!(follower.await.unwrap(), expected, "after {after}");
    }
    assert_eq!(resuming.await.unwrap(), all[..=stopped]);

    // Filtered as asked.
    let call = all.iter().find(|event| event.kind == "call_receipt").unwrap();
    let filter = EventFilter { call_id: call.call_id.clone(), ..Default::default() };
    let request = StreamEventsRequest { filter: Some(filter), ..Default::default() };
    let mut stream = stream(&mut run.clients, request).await;
    let mut kinds = Vec::new();
    while let Some(response) = stream.message().await.unwrap() {
        kinds.push(response.event.unwrap().kind);
    }
    assert_eq!(kinds, ["call_intent", "call_receipt"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_the_newest_events_leaves_out_those_before_them() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("open", &workspace).await;
    for _ in 0..5 {
        run.ok(calls::read("a.txt")).await;
    }
    let receipts = EventFilter { kinds: vec!["call_receipt".to_owned()], ..Default::default() };
    let request =
        StreamEventsRequest { filter: Some(receipts.clone()), newest_only: true, ..Default::default() };
    let mut once = stream(&mut run.clients, request.clone()).await;
    let newest = once.message().await.unwrap().unwrap().event.unwrap();
    let all = run.clients.events("", "call_receipt").await;
    assert_eq!((Some(&newest), all.len()), (all.last(), 5));
    assert!(once.message().await.unwrap().is_none(), "the stream ends with the log");

    let after_sequence = newest.sequence;
    let mut followed =
        stream(&mut run.clients, StreamEventsRequest { after_sequence, follow: true, ..request }).await;
    for _ in 0..200 {
        run.ok(calls::read("a.txt")).await;
    }
    let last = run.clients.events("", "call_receipt").await.pop().unwrap();
    let mut sent = Vec::new();
    while sent.last().is_none_or(|event: &AuditEvent| event.sequence < last.sequence) {
        sent.push(followed.message().await.unwrap().unwrap().event.unwrap());
    }
    assert_eq!(sent.last(), Some(&last));
    assert!(sent.len() < 200, "{} of 200 events were sent", sent.len());
    assert!(sent.windows(2).all(|pair| pair[0].sequence < pair[1].sequence));
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_see_each_state_of_a_run() {
    let daemon = Daemon::start().await;
    let mut clients = daemon.connect().await;
    let mut all = clients.runs.watch_runs(v1::WatchRunsRequest::default()).await.unwrap().into_inner();
    let mut run = daemon.run_on(requests::managed("open")).await;
    let mut other = daemon.run_on(requests::managed("open")).await;
    let only = v1::WatchRunsRequest { run_id: run.id().to_owned() };
    let mut only = clients.runs.watch_runs(only).await.unwrap().into_inner();
    other.stop().await;
    run.stop().await;

    let mut seen = Vec::new();
    while seen.last() != Some(&State::Stopped) {
        seen.push(only.message().await.unwrap().unwrap().run.unwrap().state());
    }
    assert_eq!(seen, [State::Ready, State::Stopping, State::Stopped]);
    let mut seen = Vec::new();
    while seen.last() != Some(&(run.id().to_owned(), State::Stopped)) {
        let run = all.message().await.unwrap().unwrap().run.unwrap();
        seen.push((run.run_id.clone(), run.state()));
    }
    for id in [run.id(), other.id()] {
        let states: Vec<_> = seen.iter().filter(|(run, _)| run == id).map(|(_, state)| *state).collect();
        assert_eq!(states, [State::Ready, State::Stopping, State::Stopped]);
    }
    let unknown = v1::WatchRunsRequest { run_id: "0198a1b2-0000-7000-8000-000000000000".to_owned() };
    assert_eq!(reason(&clients.runs.watch_runs(unknown).await.unwrap_err()), "NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_with_the_daemon() {
    let mut daemon = Daemon::start().await;
    let mut clients = daemon.connect().await;
    let request = StreamEventsRequest { follow: true, ..Default::default() };
    let mut events = stream(&mut clients, request).await;
    let mut runs = clients.runs.watch_runs(v1::WatchRunsRequest::default()).await.unwrap().into_inner();
    assert!(events.message().await.unwrap().is_some());
    let stopping = tokio::spawn(async move {
        daemon.stop().await;
        daemon
    });
    while events.message().await.is_ok_and(|event| event.is_some()) {}
    assert!(!runs.message().await.is_ok_and(|run| run.is_some()));
    stopping.await.unwrap();
}
