//! Tests successful calls: many at once, output, placement, cancellation, deadlines.

use std::time::Duration;

use operations::{Bounds, KillMethod, OpResult, Reason};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wire::worker::v1::output::Stream::{Stderr, Stdout};
use wire::worker::v1::{self as w, from_worker, to_worker::Body};

use crate::client::tests::fake::{
    Asked, Fake, Leaf, call, call_with, ended, exec, executed, failed, list, listed, spawned, wrote,
};
use crate::client::{Client, CloseReason, Finished, LaneError, Usage};
use crate::convert::Reply;
use crate::frame::encode;

fn report(finished: Finished<Reply>) -> operations::CommandReport {
    match finished.outcome {
        Ok(Reply::Command(report)) => *report,
        other => panic!("not of exec: {other:?}"),
    }
}

fn entries(finished: &Finished<Reply>) -> u64 {
    match &finished.outcome {
        Ok(Reply::Result(OpResult::List(result))) => result.total_entries,
        other => panic!("not of list: {other:?}"),
    }
}

#[tokio::test]
async fn a_call_gives_the_workers_outcome_and_counts_bytes() {
    let (mut fake, client) = Fake::connected().await;
    let calling = call(&client, list());
    let (id, start) = fake.started().await;
    assert_eq!((start.deadline_ms, start.placed, start.preview), (1000, false, false));
    fake.say(id, listed(3)).await;
    let finished = calling.await.unwrap().unwrap();
    assert_eq!(entries(&finished), 3);
    assert!(finished.bytes_in > 10 && finished.bytes_out > 10, "{finished:?}");

    let calling = call(&client, list());
    let (id, _) = fake.started().await;
    fake.say(id, failed("NOT_FOUND")).await;
    assert_eq!(calling.await.unwrap().unwrap().outcome.unwrap_err().reason, Reason::NotFound);
}

#[tokio::test]
async fn many_calls_are_answered_in_any_order() {
    let (mut fake, client) = Fake::connected().await;
    let calling: Vec<_> = (0..32).map(|_| call(&client, list())).collect();
    let mut ids = Vec::new();
    for _ in 0..32 {
        ids.push(fake.started().await.0);
    }
    for id in ids.iter().rev() {
        fake.say(*id, listed(*id)).await;
    }
    let mut answers = Vec::new();
    for calling in calling {
        answers.push(entries(&calling.await.unwrap().unwrap()));
    }
    answers.sort_unstable();
    ids.sort_unstable();
    assert_eq!(answers, ids);
}

#[tokio::test]
async fn the_stream_may_be_cut_at_every_byte() {
    let frames = |id| {
        let mut bytes = Vec::new();
        for body in [wrote(Stdout, 0, b"abc"), wrote(Stderr, 0, b"d"), executed(3, 1)] {
            bytes.extend(encode(&wire::worker::v1::FromWorker { id, body: Some(body) }).unwrap());
        }
        bytes
    };
    let (mut fake, client) = Fake::connected().await;
    for cut in 0..frames(1).len() {
        let calling = call(&client, exec());
        let (id, _) = fake.started().await;
        let bytes = frames(id);
        fake.raw(&bytes[..cut]).await;
        tokio::task::yield_now().await;
        fake.raw(&bytes[cut..]).await;
        let report = report(calling.await.unwrap().unwrap());
        assert_eq!((report.stdout.text.as_str(), report.stderr.text.as_str()), ("abc", "d"), "cut at {cut}");
    }
}

#[tokio::test]
async fn a_command_that_is_not_placed_has_the_workers_evidence() {
    let (mut fake, client) = Fake::connected().await;
    let calling = call(&client, exec());
    let (id, start) = fake.started().await;
    assert!(!start.placed);
    fake.say(id, executed(0, 0)).await;
    let finished = calling.await.unwrap().unwrap();
    assert_eq!(finished.usage, Usage { cpu_time_us: Some(5), peak_memory_bytes: Some(6) });
    assert_eq!(report(finished).kill.method(), KillMethod::Descendants);
}

#[tokio::test]
async fn reported_usage_is_capped() {
    let (mut fake, client) = Fake::connected().await;
    for (cpu_time_us, peak_memory_bytes) in
        [(None, None), (Some(3), Some(4_096)), (Some(u64::MAX), Some(u64::MAX))]
    {
        let began = std::time::Instant::now();
        let calling = call(&client, list());
        let (id, _) = fake.started().await;
        let from_worker::Body::Outcome(outcome) = listed(1) else { panic!("an outcome") };
        let usage = Some(w::Usage { cpu_time_us, peak_memory_bytes });
        fake.say(id, from_worker::Body::Outcome(w::Outcome { usage, ..outcome })).await;
        let used = calling.await.unwrap().unwrap().usage;
        if cpu_time_us == Some(u64::MAX) {
            let processors = std::thread::available_parallelism().unwrap().get() as u128;
            let most = began.elapsed().as_micros() * processors + 100_000;
            assert!(u128::from(used.cpu_time_us.unwrap()) <= most, "{used:?}");
            assert_eq!(used.peak_memory_bytes, Some(1 << 50));
        } else {
            assert_eq!(used, Usage { cpu_time_us, peak_memory_bytes });
        }
    }
}

/// A call whose command has been placed and let run.
struct Placed {
    fake: Fake,
    client: Client,
    id: u64,
    calling: JoinHandle<Result<Finished<Reply>, LaneError>>,
    asked: UnboundedReceiver<Asked>,
}

async fn placed() -> Placed {
    let (mut fake, client) = Fake::connected().await;
    let (leaf, asked) = Leaf::new(None);
    let calling = call_with(&client, exec(), Bounds::default(), Some(leaf), CancellationToken::new());
    let (id, _) = fake.started().await;
    fake.say(id, spawned(40)).await;
    assert!(matches!(fake.heard().await, (_, Body::Go(_))));
    Placed { fake, client, id, calling, asked }
}

#[tokio::test]
async fn a_placed_command_goes_through_all_its_stages() {
    let (mut fake, client) = Fake::connected().await;
    let (leaf, mut asked) = Leaf::new(None);
    let calling = call_with(&client, exec(), Bounds::default(), Some(leaf), CancellationToken::new());
    let (id, start) = fake.started().await;
    assert!(start.placed);
    fake.say(id, spawned(40)).await;
    assert!(matches!(fake.heard().await, (go, Body::Go(_)) if go == id));
    assert_eq!(asked.recv().await, Some(Asked::Place(40)));
    fake.say(id, wrote(Stdout, 0, b"ab")).await;
    fake.say(id, ended(false)).await;
    let (_, Body::Go(go)) = fake.heard().await else { panic!("no go") };
    assert_eq!(go.evidence.unwrap().method(), KillMethod::CgroupV2Kill);
    assert_eq!(asked.recv().await, Some(Asked::Finish { forced: false }));
    fake.say(id, wrote(Stdout, 2, b"c")).await;
    fake.say(id, executed(3, 0)).await;
    let report = report(calling.await.unwrap().unwrap());
    assert_eq!((report.stdout.text.as_str(), report.stdout.bytes), ("abc", 3));
    // What was found here counts, not what the worker repeats.
    assert_eq!((report.kill.method(), report.kill.ended), (KillMethod::CgroupV2Kill, 2));
    assert_eq!(asked.recv().await, None);
}

#[tokio::test]
async fn remains_of_an_ended_command_are_ended() {
    let Placed { mut fake, client: _client, id, calling, mut asked } = placed().await;
    fake.say(id, wrote(Stdout, 0, b"ab")).await;
    fake.say(id, executed(2, 0)).await;
    let report = report(calling.await.unwrap().unwrap());
    assert_eq!((report.stdout.text.as_str(), report.kill.method()), ("ab", KillMethod::CgroupV2Kill));
    assert_eq!(asked.recv().await, Some(Asked::Place(40)));
    assert_eq!(asked.recv().await, Some(Asked::Finish { forced: false }));
    assert_eq!(asked.recv().await, None);
}

#[tokio::test]
async fn a_command_that_cannot_be_placed_does_not_run() {
    let (mut fake, client) = Fake::connected().await;
    let (leaf, mut asked) = Leaf::new(Some("no cgroup"));
    let calling = call_with(&client, exec(), Bounds::default(), Some(leaf), CancellationToken::new());
    let (id, _) = fake.started().await;
    fake.say(id, spawned(40)).await;
    assert!(matches!(fake.heard().await, (_, Body::Cancel(_))));
    fake.say(id, failed("CANCELLED")).await;
    assert_eq!(calling.await.unwrap(), Err(LaneError::NotPlaced("no cgroup".to_owned())));
    assert_eq!(asked.recv().await, Some(Asked::Place(40)));
    assert_eq!(asked.recv().await, Some(Asked::Finish { forced: true }));
}

#[tokio::test]
async fn long_output_is_clipped_and_counted() {
    let (mut fake, client) = Fake::connected().await;
    let bounds = Bounds { max_output_bytes: 10, max_spool_bytes: 200_000, ..Bounds::default() };
    let calling = call_with(&client, exec(), bounds, None, CancellationToken::new());
    let (id, _) = fake.started().await;
    for chunk in 0..3 {
        fake.say(id, wrote(Stdout, chunk * 65_536, &vec![b'x'; 65_536])).await;
    }
    fake.say(id, wrote(Stderr, 0, &[b'y'; 3392])).await;
    // The limit is reached: more may have been written than came.
    fake.say(id, executed(196_608, 5000)).await;
    let report = report(calling.await.unwrap().unwrap());
    assert_eq!(report.stdout.text, "xxxxx\n[… 196598 bytes left out …]\nxxxxx");
    assert_eq!((report.stdout.bytes, report.stdout.omitted), (196_608, 196_598));
    assert_eq!((report.stderr.bytes, report.stderr.omitted), (5000, 4995));
}

#[tokio::test]
async fn a_cancelled_call_still_has_its_outcome() {
    let (mut fake, client) = Fake::connected().await;
    let cancel = CancellationToken::new();
    let calling = call_with(&client, list(), Bounds::default(), None, cancel.clone());
    let (id, _) = fake.started().await;
    cancel.cancel();
    assert!(matches!(fake.heard().await, (cancelled, Body::Cancel(_)) if cancelled == id));
    fake.say(id, failed("CANCELLED")).await;
    assert_eq!(calling.await.unwrap().unwrap().outcome.unwrap_err().reason, Reason::Cancelled);
    let cancelled = call_with(&client, list(), Bounds::default(), None, cancel).await.unwrap();
    assert_eq!(cancelled, Err(LaneError::Cancelled));
}

#[tokio::test]
async fn abandoned_call_is_cancelled_and_cleaned_up() {
    let Placed { mut fake, client: _client, id, calling, mut asked } = placed().await;
    calling.abort();
    assert!(matches!(fake.heard().await, (_, Body::Cancel(_))));
    fake.say(id, ended(true)).await;
    assert!(matches!(fake.heard().await, (_, Body::Go(_))));
    fake.say(id, executed(0, 0)).await;
    assert_eq!(asked.recv().await, Some(Asked::Place(40)));
    assert_eq!(asked.recv().await, Some(Asked::Finish { forced: true }));
    assert_eq!(asked.recv().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_outcome_ends_after_deadline_and_grace() {
    let (mut fake, client) = Fake::connected().await;
    let began = Instant::now();
    let (leaf, mut asked) = Leaf::new(None);
    let calling = call_with(&client, exec(), Bounds::default(), Some(leaf), CancellationToken::new());
    let (id, _) = fake.started().await;
    fake.say(id, spawned(40)).await;
    // Pongs are given: the worker lives, the call does not end.
    let cancelled = tokio::spawn(async move {
        loop {
            match fake.heard().await {
                (_, Body::Cancel(_)) => return fake,
                (_, Body::Go(_)) => {}
                other => panic!("unexpected {other:?}"),
            }
        }
    });
    assert_eq!(calling.await.unwrap(), Err(LaneError::TimedOut));
    assert_eq!(began.elapsed().as_secs(), 9);
    assert_eq!(asked.recv().await, Some(Asked::Place(40)));
    assert_eq!(asked.recv().await, Some(Asked::Finish { forced: true }));
    let mut fake = cancelled.await.unwrap();
    // Its frames may still come; the stream goes on.
    fake.say(id, wrote(Stdout, 0, b"late")).await;
    let calling = call(&client, list());
    let (id, _) = fake.started().await;
    fake.say(id, listed(1)).await;
    assert_eq!(entries(&calling.await.unwrap().unwrap()), 1);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_does_not_answer_pings_is_lost() {
    let (mut fake, client) = Fake::connected().await;
    let began = Instant::now();
    assert_eq!(client.closed().await, CloseReason::Heartbeat);
    assert_eq!(began.elapsed(), Duration::from_secs(15));
    assert!(matches!(fake.recv().await.unwrap().body, Some(Body::Ping(_))));
    assert_eq!(fake.recv().await, None);
}

#[tokio::test(start_paused = true)]
async fn pongs_keep_the_stream_open() {
    let (mut fake, client) = Fake::connected().await;
    for _ in 0..10 {
        assert!(matches!(fake.recv().await.unwrap().body, Some(Body::Ping(_))));
        fake.say(0, from_worker::Body::Pong(wire::worker::v1::Pong {})).await;
    }
    let calling = call(&client, list());
    let (id, _) = fake.started().await;
    fake.say(id, listed(1)).await;
    assert!(calling.await.unwrap().is_ok());
}

#[tokio::test]
async fn shutting_down_closes_the_stream_and_loses_the_calls() {
    let (mut fake, client) = Fake::connected().await;
    let calling = call(&client, list());
    fake.started().await;
    client.shutdown().await;
    assert_eq!(client.closed().await, CloseReason::Shutdown);
    assert_eq!(calling.await.unwrap(), Err(LaneError::Lost(CloseReason::Shutdown)));
    while fake.recv().await.is_some() {}
    assert_eq!(call(&client, list()).await.unwrap(), Err(LaneError::Lost(CloseReason::Shutdown)));
}

#[tokio::test]
async fn dropping_the_last_client_closes_the_stream() {
    let (mut fake, client) = Fake::connected().await;
    let closed = client.closed();
    drop(client);
    assert_eq!(closed.await, CloseReason::Shutdown);
    while fake.recv().await.is_some() {}
}

#[tokio::test]
async fn an_operation_that_no_frame_holds_is_not_sent() {
    let (mut fake, client) = Fake::connected().await;
    let operations::Operation::Exec(exec) = exec() else { panic!("not exec") };
    let huge =
        operations::Operation::Exec(operations::Exec { stdin: vec![0; crate::frame::MAX_FRAME], ..exec });
    assert_eq!(call(&client, huge).await.unwrap(), Err(LaneError::TooLarge));
    let calling = call(&client, list());
    let (id, _) = fake.started().await;
    fake.say(id, listed(1)).await;
    assert!(calling.await.unwrap().is_ok());
}
