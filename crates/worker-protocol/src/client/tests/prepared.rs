//! Processes that wait for their command, and the placements that have to be finished after them.

use std::sync::Arc;
use std::time::Duration;

use operations::Bounds;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use wire::worker::v1::to_worker::Body;

use crate::client::drive::{Driver, Request};
use crate::client::tests::fake::{Asked, Fake, Leaf, exec, spawned};
use crate::client::{CallSpec, CloseReason, LaneError};

#[tokio::test(start_paused = true)]
async fn x2_a_process_that_is_reported_too_late_is_ended() {
    let (mut fake, client) = Fake::connected().await;
    let (leaf, mut asked) = Leaf::new(None);
    let preparing = tokio::spawn({
        let client = client.clone();
        async move { client.prepare(leaf).await.map(drop) }
    });
    let (id, prepare) = fake.heard().await;
    assert!(matches!(prepare, Body::Prepare(_)));
    // The client hears nothing within its time. The worker makes the process and then reads on.
    let next = tokio::time::timeout(Duration::from_secs(60), fake.heard()).await;
    let (cancelled, cancel) = next.expect("a frame that ends the process");
    assert!(matches!(cancel, Body::Cancel(_)), "{cancel:?}");
    assert_eq!((cancelled, preparing.await.unwrap()), (id, Err(LaneError::TimedOut)));
    fake.say(id, spawned(40)).await;
    assert_eq!(asked.recv().await, Some(Asked::Finish { forced: true }));
    assert!(asked.recv().await.is_none(), "it was never placed");
    assert!(!client.is_closed());
}

#[tokio::test]
async fn x2_a_call_on_a_stream_that_closed_meanwhile_finishes_its_process() {
    let (mut fake, client) = Fake::connected().await;
    let (leaf, mut asked) = Leaf::new(None);
    let answer = async {
        let (id, _) = fake.heard().await;
        fake.say(id, spawned(40)).await;
    };
    let (prepared, ()) = tokio::join!(client.prepare(leaf), answer);
    assert_eq!(asked.recv().await, Some(Asked::Place(40)));
    let (operation, bounds) = (exec(), Bounds::default());
    let deadline = Duration::from_secs(1);
    let request = Request {
        spec: CallSpec { operation: &operation, bounds: &bounds, deadline, preview: false, output: None },
        terminal: None,
        placement: None,
        prepared: prepared.ok(),
        go: None,
            way_out: 0,
        cancel: CancellationToken::new(),
        slot: Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap(),
    };
    let driver = Driver::new(&client.inner.shared, request).unwrap();
    client.inner.shared.close(CloseReason::Shutdown);
    assert_eq!(driver.run().await.unwrap_err(), LaneError::Lost(CloseReason::Shutdown));
    assert_eq!(asked.recv().await, Some(Asked::Finish { forced: true }));
}
