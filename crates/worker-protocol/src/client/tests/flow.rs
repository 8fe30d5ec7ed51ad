//! Tests output and credit: the effects of a slow reader.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use operations::Bounds;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wire::worker::v1::output::Stream::{Stderr, Stdout};
use wire::worker::v1::to_worker::Body;

use crate::client::tests::fake::{
    Asked, Fake, Leaf, call, ended, exec, executed, failed, list, listed, spawned, wrote,
};
use crate::client::window::{CREDIT, WINDOW};
use crate::client::{
    CallSpec, Client, CloseReason, Finished, LaneError, OutputSink, OutputStream, Placement, Violation,
};
use crate::convert::Reply;

const CHUNK: u64 = 65_536;

/// Takes a piece for each permit.
struct Gate {
    open: Semaphore,
    taken: Mutex<Vec<(OutputStream, u64, Bytes)>>,
    news: Notify,
}

impl Gate {
    fn new(pieces: usize) -> Arc<Self> {
        Arc::new(Self { open: Semaphore::new(pieces), taken: Mutex::default(), news: Notify::new() })
    }

    fn bytes(&self) -> u64 {
        self.taken.lock().iter().map(|(_, _, data)| data.len() as u64).sum()
    }

    async fn has(&self, bytes: u64) {
        while self.bytes() < bytes {
            self.news.notified().await;
        }
    }
}

impl OutputSink for Gate {
    fn take(
        &self,
        stream: OutputStream,
        offset: u64,
        data: Bytes,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            self.open.acquire().await.unwrap().forget();
            self.taken.lock().push((stream, offset, data));
            self.news.notify_one();
        })
    }
}

/// Takes nothing, for ever.
struct Stuck;

impl OutputSink for Stuck {
    fn take(&self, _: OutputStream, _: u64, _: Bytes) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(pending())
    }
}

fn watch(
    client: &Client,
    sink: Arc<dyn OutputSink>,
    placement: Option<Arc<dyn Placement>>,
    cancel: &CancellationToken,
) -> JoinHandle<Result<Finished<Reply>, LaneError>> {
    let (client, cancel) = (client.clone(), cancel.clone());
    tokio::spawn(async move {
        let (operation, bounds) = (exec(), Bounds::default());
        let deadline = Duration::from_secs(1);
        let spec = CallSpec {
            operation: &operation,
            bounds: &bounds,
            deadline,
            preview: false,
            output: Some(&sink),
        };
        client.call(spec, placement, cancel).await
    })
}

fn watched(client: &Client, sink: Arc<dyn OutputSink>) -> JoinHandle<Result<Finished<Reply>, LaneError>> {
    watch(client, sink, None, &CancellationToken::new())
}

/// Sends output in chunks, from `offset` on.
async fn write(fake: &mut Fake, id: u64, offset: u64, bytes: u64) {
    let end = offset + bytes;
    let mut offset = offset;
    while offset < end {
        let length = CHUNK.min(end - offset);
        fake.say(id, wrote(Stdout, offset, &vec![b'x'; usize::try_from(length).unwrap()])).await;
        offset += length;
    }
}

async fn credit(fake: &mut Fake) -> (u64, u64) {
    match fake.heard().await {
        (id, Body::Credit(credit)) => (id, credit.bytes),
        other => panic!("no credit: {other:?}"),
    }
}

fn counts(finished: &Finished<Reply>) -> (u64, u64) {
    match &finished.outcome {
        Ok(Reply::Command(report)) => (report.stdout.bytes, report.stderr.bytes),
        other => panic!("not of exec: {other:?}"),
    }
}

#[tokio::test]
async fn the_sink_has_every_byte_before_the_call_returns() {
    let (mut fake, client) = Fake::connected().await;
    let gate = Gate::new(100);
    let calling = watched(&client, gate.clone());
    let (id, start) = fake.started().await;
    assert_eq!(start.output_window, WINDOW);
    fake.say(id, wrote(Stdout, 0, b"ab")).await;
    fake.say(id, wrote(Stderr, 0, b"c")).await;
    fake.say(id, wrote(Stdout, 2, b"d")).await;
    fake.say(id, executed(3, 1)).await;
    let finished = calling.await.unwrap().unwrap();
    assert_eq!(counts(&finished), (3, 1));
    let mut streams = [Vec::new(), Vec::new()];
    for (stream, offset, data) in gate.taken.lock().iter() {
        let stream = &mut streams[usize::from(*stream == OutputStream::Stderr)];
        assert_eq!(*offset, stream.len() as u64);
        stream.extend_from_slice(data);
    }
    assert_eq!(streams, [b"abd".to_vec(), b"c".to_vec()]);
    // Short output costs no credit: the next frame is that of the next call.
    let calling = call(&client, list());
    let (id, start) = fake.started().await;
    assert_eq!(start.output_window, 0);
    fake.say(id, listed(0)).await;
    calling.await.unwrap().unwrap();
}

#[tokio::test]
async fn credit_is_returned_as_the_sink_reads() {
    let (mut fake, client) = Fake::connected().await;
    let gate = Gate::new(0);
    let calling = watched(&client, gate.clone());
    let (id, _) = fake.started().await;
    write(&mut fake, id, 0, WINDOW).await;
    // Others go on, and see no credit for this one in front of them.
    let other = call(&client, list());
    let (listing, _) = fake.started().await;
    fake.say(listing, listed(1)).await;
    assert!(other.await.unwrap().is_ok());
    assert_eq!(gate.bytes(), 0);
    gate.open.add_permits(8);
    assert_eq!(credit(&mut fake).await, (id, CREDIT));
    write(&mut fake, id, WINDOW, CREDIT).await;
    gate.open.add_permits(1000);
    assert_eq!(credit(&mut fake).await, (id, CREDIT));
    assert_eq!(credit(&mut fake).await, (id, CREDIT));
    fake.say(id, executed(WINDOW + CREDIT, 0)).await;
    assert_eq!(counts(&calling.await.unwrap().unwrap()), (WINDOW + CREDIT, 0));
    assert_eq!(gate.bytes(), WINDOW + CREDIT);
}

#[tokio::test]
async fn credit_is_returned_without_a_sink() {
    let (mut fake, client) = Fake::connected().await;
    let calling = call(&client, exec());
    let (id, _) = fake.started().await;
    for round in 0..20 {
        write(&mut fake, id, round * CREDIT, CREDIT).await;
        assert_eq!(credit(&mut fake).await, (id, CREDIT));
    }
    fake.say(id, executed(20 * CREDIT, 0)).await;
    assert!(calling.await.unwrap().is_ok());
}

#[tokio::test]
async fn more_than_the_window_breaks_the_protocol() {
    for sink in [Gate::new(0) as Arc<dyn OutputSink>, Arc::new(Stuck)] {
        let (mut fake, client) = Fake::connected().await;
        let calling = watched(&client, sink);
        let (id, _) = fake.started().await;
        write(&mut fake, id, 0, WINDOW).await;
        fake.say(id, wrote(Stderr, 0, b"x")).await;
        assert_eq!(client.closed().await, CloseReason::Protocol(Violation::Window));
        calling.abort();
    }
}

#[tokio::test]
async fn more_output_than_was_sent_is_accepted_only_without_credit() {
    // In the last, credit is on its way: the worker cannot know of it yet.
    for (taken, sent, fits) in [(0, CHUNK, false), (0, WINDOW, true), (8, WINDOW, true)] {
        let (mut fake, client) = Fake::connected().await;
        let gate = Gate::new(taken);
        let calling = watched(&client, gate.clone());
        let (id, _) = fake.started().await;
        write(&mut fake, id, 0, sent).await;
        if taken > 0 {
            credit(&mut fake).await;
        }
        fake.say(id, executed(sent + 5, 3)).await;
        if fits {
            gate.open.add_permits(1000);
            assert_eq!(counts(&calling.await.unwrap().unwrap()), (sent + 5, 3));
            assert_eq!(gate.bytes(), sent);
        } else {
            assert_eq!(client.closed().await, CloseReason::Protocol(Violation::Outcome));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_sink_does_not_keep_a_call_open() {
    let (mut fake, client) = Fake::connected().await;
    let began = Instant::now();
    let calling = watched(&client, Arc::new(Stuck));
    let (id, _) = fake.started().await;
    fake.say(id, wrote(Stdout, 0, b"x")).await;
    fake.say(id, executed(1, 0)).await;
    let pongs = tokio::spawn(async move { fake.heard().await });
    assert_eq!(counts(&calling.await.unwrap().unwrap()), (1, 0));
    assert_eq!(began.elapsed().as_secs(), 9);
    pongs.abort();
}

#[tokio::test(start_paused = true)]
async fn a_stalled_sink_does_not_delay_the_end() {
    let (mut fake, client) = Fake::connected().await;
    let began = Instant::now();
    let (leaf, mut asked) = Leaf::new(None);
    let cancel = CancellationToken::new();
    let calling = watch(&client, Arc::new(Stuck), Some(leaf), &cancel);
    let (id, _) = fake.started().await;
    fake.say(id, spawned(40)).await;
    assert!(matches!(fake.heard().await, (_, Body::Go(_))));
    write(&mut fake, id, 0, WINDOW).await;
    cancel.cancel();
    assert!(matches!(fake.heard().await, (_, Body::Cancel(_))));
    fake.say(id, ended(true)).await;
    assert!(matches!(fake.heard().await, (_, Body::Go(_))));
    assert_eq!(asked.recv().await, Some(Asked::Place(40)));
    assert_eq!(asked.recv().await, Some(Asked::Finish { forced: true }));
    assert!(began.elapsed() < Duration::from_secs(1), "ended late");
    fake.say(id, executed(WINDOW + 7, 0)).await;
    let pongs = tokio::spawn(async move { fake.heard().await });
    assert_eq!(counts(&calling.await.unwrap().unwrap()), (WINDOW + 7, 0));
    assert_eq!(began.elapsed().as_secs(), 8);
    pongs.abort();
}

#[tokio::test]
async fn output_before_a_lost_stream_is_delivered() {
    let (mut fake, client) = Fake::connected().await;
    let gate = Gate::new(1);
    let calling = watched(&client, gate.clone());
    let (id, _) = fake.started().await;
    fake.say(id, wrote(Stdout, 0, b"first")).await;
    gate.has(5).await;
    fake.say(id, wrote(Stdout, 5, b"last")).await;
    drop(fake);
    assert_eq!(client.closed().await, CloseReason::Eof);
    gate.open.add_permits(1);
    assert_eq!(calling.await.unwrap(), Err(LaneError::Lost(CloseReason::Eof)));
    assert_eq!(gate.bytes(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_given_up_does_not_affect_others() {
    let (mut fake, client) = Fake::connected().await;
    let calling = watched(&client, Gate::new(0));
    let (id, _) = fake.started().await;
    let hearing = tokio::spawn(async move {
        assert!(matches!(fake.heard().await, (_, Body::Cancel(_))));
        fake
    });
    assert_eq!(calling.await.unwrap(), Err(LaneError::TimedOut));
    let mut fake = hearing.await.unwrap();
    // It still speaks, as far as its window goes; nobody keeps it, and nobody gives it credit.
    write(&mut fake, id, 0, WINDOW).await;
    let gate = Gate::new(1000);
    let calling = watched(&client, gate.clone());
    let (other, _) = fake.started().await;
    write(&mut fake, other, 0, CREDIT).await;
    assert_eq!(credit(&mut fake).await, (other, CREDIT));
    fake.say(other, executed(CREDIT, 0)).await;
    fake.say(id, executed(WINDOW, 0)).await;
    assert!(calling.await.unwrap().is_ok());
    assert_eq!(gate.bytes(), CREDIT);
}

#[tokio::test]
async fn a_command_that_did_not_run_has_no_output() {
    let (mut fake, client) = Fake::connected().await;
    let gate = Gate::new(1);
    let calling = watched(&client, gate.clone());
    let (id, _) = fake.started().await;
    fake.say(id, failed("NOT_FOUND")).await;
    assert!(calling.await.unwrap().unwrap().outcome.is_err());
    assert_eq!(gate.bytes(), 0);
}
