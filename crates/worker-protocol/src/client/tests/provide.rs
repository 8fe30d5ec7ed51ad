//! Variables of a run for a worker that was greeted before its run was known.

use std::collections::BTreeMap;
use std::time::Duration;

use operations::Environment;
use wire::worker::v1::{VariablesTaken, from_worker, to_worker::Body};

use crate::client::tests::fake::Fake;
use crate::client::{CloseReason, LaneError, Violation};

fn environment() -> Environment {
    Environment::parse("env", BTreeMap::from([("CI".to_owned(), "1".to_owned())])).unwrap()
}

#[tokio::test]
async fn variables_are_sent_whole_and_acknowledged_once() {
    let (mut fake, client) = Fake::connected().await;
    let environment = environment();
    let answer = async {
        let (id, body) = fake.heard().await;
        let Body::Variables(variables) = body else { panic!("{body:?}") };
        assert_eq!((id, &variables.environment), (0, environment.variables()));
        fake.say(0, from_worker::Body::VariablesTaken(VariablesTaken {})).await;
    };
    let (provided, ()) = tokio::join!(client.provide(&environment), answer);
    assert_eq!(provided, Ok(()));
    assert!(!client.is_closed());
    fake.say(0, from_worker::Body::VariablesTaken(VariablesTaken {})).await;
    assert_eq!(client.closed().await, CloseReason::Protocol(Violation::Variables));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_does_not_take_them_or_is_lost_is_an_error() {
    let (mut fake, client) = Fake::connected().await;
    let environment = environment();
    let silent = async {
        // Pings are answered meanwhile.
        let _ = tokio::time::timeout(Duration::from_secs(6), async {
            loop {
                fake.heard().await;
            }
        })
        .await;
    };
    let (provided, ()) = tokio::join!(client.provide(&environment), silent);
    assert_eq!(provided, Err(LaneError::TimedOut));
    drop(fake);
    let lost = client.provide(&environment).await;
    assert!(matches!(lost, Err(LaneError::Lost(_))), "{lost:?}");
}
