use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use audit::Event;
use egress_rules::{Destination, Narrowed, Opening, Pool, Rules, Scheme};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use tokio::sync::watch;

use super::*;
use crate::live::{Begun, Opener};
use crate::table::Table;
use crate::testing::{own, rules, shared};
use crate::{Control, Outside};

/// Reviewers that answer when the test says so.
struct Reviewers {
    answer: watch::Receiver<Option<Answer>>,
    asked: AtomicUsize,
    withdrawn: AtomicUsize,
}

impl Control for Reviewers {
    fn rules(&self) -> Arc<Narrowed> {
        Arc::new(Narrowed::new(Rules::none()))
    }

    fn record(&self, _: Event) -> BoxFuture<'_, bool> {
        ready(true).boxed()
    }

    fn share_limits(&self, _: u32) {}

    fn calls(&self) -> Vec<String> {
        Vec::new()
    }

    fn ancestry(&self, _: Vec<(String, String)>) -> BoxFuture<'_, Vec<Option<bool>>> {
        ready(Vec::new()).boxed()
    }

    fn ask(&self, _: Question, given_up: CancellationToken) -> BoxFuture<'_, Answer> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut answer = self.answer.clone();
        async move {
            tokio::select! {
                biased;
                () = given_up.cancelled() => {
                    self.withdrawn.fetch_add(1, Ordering::SeqCst);
                    Answer::Cancelled
                }
                answer = answer.wait_for(Option::is_some) => answer.unwrap().clone().unwrap(),
            }
        }
        .boxed()
    }
}

struct Scene {
    state: Arc<State>,
    reviewers: Arc<Reviewers>,
    answer: watch::Sender<Option<Answer>>,
    _names: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let names = tempfile::tempdir().unwrap();
        let table = Table::open(&names.path().join("names"), Pool::DEFAULT_BLOCK).unwrap();
        let (answer, answers) = watch::channel(None);
        let reviewers = Arc::new(Reviewers {
            answer: answers,
            asked: AtomicUsize::new(0),
            withdrawn: AtomicUsize::new(0),
        });
        let outside = Arc::new(Outside::new(BTreeMap::new(), None, shared(&names)));
        let state = State::new(
            "run".to_owned(),
            own(None),
            reviewers.clone(),
            outside,
            table,
            crate::View::default(),
        );
        Self { state: Arc::new(state), reviewers, answer, _names: names }
    }

    fn join(&self) -> Result<Waiter, String> {
        self.state.join(Question {
            destination: Destination::parse("a.example.org").unwrap(),
            port: 443,
            scheme: Scheme::Https,
            methods: None,
            rule: "egress rule 1: a.example.org".to_owned(),
            opening: Opening::default(),
            push: None,
        })
    }

    fn counts(&self) -> (usize, usize) {
        let count = |number: &AtomicUsize| number.load(Ordering::SeqCst);
        (count(&self.reviewers.asked), count(&self.reviewers.withdrawn))
    }
}

fn approved() -> Answer {
    Answer::Approved { approval_id: "a".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn connections_that_wait_are_asked_about_once_and_all_go_on() {
    let scene = Scene::new();
    let waiters: Vec<_> = (0..50).map(|_| answer_of(scene.join().unwrap())).collect();
    scene.answer.send_replace(Some(approved()));
    for waiter in waiters {
        assert_eq!(waiter.await, approved());
    }
    assert_eq!(scene.counts(), (1, 0));
    // Consent counts for those that waited.
    assert_eq!(answer_of(scene.join().unwrap()).await, approved());
    assert_eq!(scene.counts(), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_question_is_withdrawn_when_nobody_has_waited_for_a_while() {
    let scene = Scene::new();
    drop(scene.join().unwrap());
    tokio::time::sleep(GRACE / 2).await;
    let again = scene.join().unwrap();
    tokio::time::sleep(GRACE * 3).await;
    assert_eq!(scene.counts(), (1, 0), "a program that tries again in time finds the same question");
    drop(again);
    tokio::time::sleep(GRACE * 2).await;
    assert_eq!(scene.counts(), (1, 1));
    let _waiter = scene.join().unwrap();
    tokio::task::yield_now().await;
    assert_eq!(scene.counts(), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_denial_refuses_without_a_question() {
    let scene = Scene::new();
    let denied = Answer::Denied { approval_id: "a".to_owned(), comment: "no".to_owned() };
    scene.answer.send_replace(Some(denied.clone()));
    assert_eq!(answer_of(scene.join().unwrap()).await, denied);
    for _ in 0..100 {
        assert!(scene.join().unwrap_err().contains("a reviewer denied it (approval a): no"));
    }
    assert_eq!(scene.counts(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_run_withdraws_its_questions() {
    let scene = Scene::new();
    let waiter = scene.join().unwrap();
    tokio::task::yield_now().await;
    scene.state.withdraw_questions().await;
    assert_eq!(answer_of(waiter).await, Answer::Cancelled);
    assert_eq!(scene.counts(), (1, 1));
}

#[test]
fn a_connection_that_was_not_looked_at_for_a_scheme_does_not_pass_it() {
    let destination = Destination::parse("a.example.org").unwrap();
    let verdict = |scheme: &str| {
        let rule = serde_json::json!({ "host": "a.example.org", "ports": [443], "scheme": scheme, "decision": "allow" });
        rules(&serde_json::json!({ "rules": [rule] }).to_string()).decide(&destination, 443)
    };
    for (looked_at_for, scheme, passes) in [
        ("https", "https", true),
        ("https", "tcp", true),
        ("tcp", "https", false),
        ("tcp", "http", false),
        ("http", "https", false),
    ] {
        let live = {
            let begun =
                Begun { destination: destination.clone(), port: 443, calls: Vec::new(), by: Opener::Program };
            Live::new(begun, verdict(looked_at_for))
        };
        assert_eq!(live.passes(&verdict(scheme)), passes, "{looked_at_for} {scheme}");
    }
}

#[test]
fn a_reason_is_said_as_a_sentence() {
    assert_eq!(sentence("a reviewer denied it"), "A reviewer denied it.");
}
