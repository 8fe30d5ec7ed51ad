//! Calls that take effect only after `Go`.

use std::time::Duration;

use operations::{Bounds, Reason};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wire::worker::v1::to_worker::Body;

use crate::client::tests::fake::{Fake, failed, list, listed};
use crate::client::{CallSpec, Client, CloseReason, Finished, LaneError, Violation};
use crate::convert::Reply;

type Calling = JoinHandle<Result<Finished<Reply>, LaneError>>;

/// A call, and the `Go` that it waits for.
fn call(client: &Client) -> (Calling, oneshot::Sender<bool>) {
    let (word, awaited) = oneshot::channel();
    let client = client.clone();
    let calling = tokio::spawn(async move {
        let (operation, bounds, deadline) = (list(), Bounds::default(), Duration::from_secs(1));
        let spec =
            CallSpec { operation: &operation, bounds: &bounds, deadline, preview: false, output: None };
        let go = Box::pin(async { awaited.await.unwrap_or(false) });
        client.call_after(spec, go, CancellationToken::new()).await
    });
    (calling, word)
}

#[tokio::test]
async fn a_call_gets_go_once_or_is_cancelled() {
    let (mut fake, client) = Fake::connected().await;
    let (calling, word) = call(&client);
    let (id, start) = fake.started().await;
    assert!(start.awaits_go);
    word.send(true).unwrap();
    assert!(matches!(fake.heard().await, (allowed, Body::Go(_)) if allowed == id));
    fake.say(id, listed(1)).await;
    assert!(calling.await.unwrap().unwrap().outcome.is_ok());

    let (calling, word) = call(&client);
    let (id, _) = fake.started().await;
    word.send(false).unwrap();
    assert!(matches!(fake.heard().await, (cancelled, Body::Cancel(_)) if cancelled == id));
    fake.say(id, failed("CANCELLED")).await;
    assert_eq!(calling.await.unwrap().unwrap().outcome.unwrap_err().reason, Reason::Cancelled);

    // What fails needs no word.
    let (calling, word) = call(&client);
    let (id, _) = fake.started().await;
    fake.say(id, failed("NOT_FOUND")).await;
    assert_eq!(calling.await.unwrap().unwrap().outcome.unwrap_err().reason, Reason::NotFound);
    drop(word);
}

#[tokio::test]
async fn a_worker_that_reports_an_effect_before_go_is_rejected() {
    let (mut fake, client) = Fake::connected().await;
    let (calling, _word) = call(&client);
    let (id, _) = fake.started().await;
    fake.say(id, listed(1)).await;
    let lost = LaneError::Lost(CloseReason::Protocol(Violation::Outcome));
    assert_eq!(calling.await.unwrap().unwrap_err(), lost);
}
