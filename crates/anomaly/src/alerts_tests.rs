use std::path::Path;
use std::sync::Arc;

use crate::alert::{Alert, ImposedState};
use async_trait::async_trait;
use audit::{Kind, Reader};
use audit_service::AuditLog;
use identity::{Principal, Roles};
use operations::Reason;
use parking_lot::Mutex;
use policy::{AnomalyAction, AnomalyRule, AnomalySetting};
use serde_json::Value;
use store::Store;
use timestamp::UnixMillis;

use super::Alerts;
use crate::detector::Firing;
use crate::enforce::Enforcement;
use crate::rules::{Evidence, testing};
use crate::seen::Subject;

/// Notes what it is told.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

#[async_trait]
impl Enforcement for Notes {
    async fn impose(&self, alert: &Alert) -> Result<(), String> {
        self.0.lock().push(format!("impose {}", alert.agent_id));
        if alert.agent_id == "gone" { Err("the run has ended".to_owned()) } else { Ok(()) }
    }

    async fn lift(&self, alert: &Alert) -> Result<(), String> {
        self.0.lock().push(format!("lift {}", alert.agent_id));
        Ok(())
    }
}

struct Fixture {
    directory: tempfile::TempDir,
    audit: Arc<AuditLog>,
    notes: Arc<Notes>,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (log, ..) =
            AuditLog::open(&directory.path().join("audit"), audit_service::Settings::default()).unwrap();
        Self { directory, audit: Arc::new(log), notes: Arc::default() }
    }

    fn store(&self) -> std::path::PathBuf {
        self.directory.path().join("store.db")
    }

    /// A daemon's alerts, on what the one before has stored at `store`.
    fn open(&self, store: &Path) -> Alerts {
        let store = Store::open(store, store::OutcomeBounds::WIDE).unwrap();
        Alerts::open(store, self.audit.clone(), self.notes.clone(), Vec::new()).unwrap()
    }

    fn notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes.0.lock())
    }

    /// The states of all alert records.
    fn records(&self) -> Vec<String> {
        let states = Reader::from(self.directory.path().join("audit"), 0)
            .map(|record| record.unwrap().event)
            .filter(|event| event.kind == Kind::Alert)
            .map(|event| event.details.unwrap()["state"].as_str().unwrap().to_owned());
        states.collect()
    }

    /// Reads the log as the watch does at start.
    async fn found(&self, alerts: &Alerts) {
        for record in Reader::from(self.directory.path().join("audit"), 0) {
            alerts.found(&record.unwrap()).await;
        }
    }
}

fn fire(alerts: &Alerts, who: &str, action: AnomalyAction) -> identity::AlertId {
    let agent = testing::agent(who);
    let firing = Firing {
        rule: AnomalyRule::Denials,
        subject: Subject::Agent(agent.clone()),
        agent,
        run: "run".into(),
        at: 0,
        sequence: 7,
        evidence: Evidence { count: 20, sequences: vec![5, 7] },
    };
    let setting = AnomalySetting { action, ..AnomalyRule::Denials.default_setting() };
    alerts.fire(&firing, &setting, UnixMillis::now().0);
    alerts.list(None, 1, |_| true)[0].id
}

fn operator() -> Principal {
    Principal { name: "uid:0".to_owned(), uid: 0, gid: 0, roles: Roles::all(), ..Principal::anonymous() }
}

const ASK: AnomalyAction = AnomalyAction::RequireApproval { for_s: 600 };

#[tokio::test]
async fn each_step_is_done_once_and_lifted_once() {
    let fixture = Fixture::new();
    let alerts = fixture.open(&fixture.store());
    let id = fire(&alerts, "alice", ASK);
    for _ in 0..3 {
        alerts.finish().await;
    }
    assert_eq!(fixture.notes(), ["impose alice"]);
    assert_eq!(fixture.records(), ["raised", "imposed"]);
    let imposed = alerts.get(id).unwrap().imposed;
    assert_eq!(imposed.state, ImposedState::InForce);
    assert!(imposed.until.unwrap() > UnixMillis::now().0);

    let seen = alerts.acknowledge(id, &operator(), "a test").await.unwrap();
    assert_eq!(
        (seen.imposed.state, seen.acknowledged.unwrap().comment.as_str()),
        (ImposedState::Lifted, "a test")
    );
    let again = alerts.acknowledge(id, &operator(), "").await.unwrap_err();
    assert_eq!(again.reason, Reason::PreconditionFailed);
    let unknown = alerts.acknowledge(identity::AlertId::new(), &operator(), "").await.unwrap_err();
    assert_eq!(unknown.reason, Reason::NotFound);
    let long = alerts.acknowledge(id, &operator(), &"x".repeat(5_000)).await.unwrap_err();
    assert_eq!(long.reason, Reason::InvalidArgument);
    alerts.finish().await;
    assert_eq!(fixture.notes(), ["lift alice"]);
    assert_eq!(fixture.records(), ["raised", "imposed", "acknowledged"]);
}

#[tokio::test]
async fn restart_restores_measures_in_force_but_not_lifted_ones() {
    let fixture = Fixture::new();
    let alerts = fixture.open(&fixture.store());
    fire(&alerts, "alice", ASK);
    let bob = fire(&alerts, "bob", ASK);
    fire(&alerts, "gone", AnomalyAction::Freeze);
    fire(&alerts, "carol", AnomalyAction::Alert);
    alerts.finish().await;
    alerts.acknowledge(bob, &operator(), "").await.unwrap();
    assert_eq!(fixture.notes(), ["impose alice", "impose bob", "impose gone", "lift bob"]);
    let recorded = fixture.records();
    assert_eq!(recorded.iter().filter(|state| *state == "failed").count(), 1);
    drop(alerts);

    let alerts = fixture.open(&fixture.store());
    alerts.restore().await;
    fixture.found(&alerts).await;
    alerts.finish().await;
    assert_eq!(fixture.notes(), ["impose alice"]);
    assert_eq!(fixture.records(), recorded, "nothing is recorded twice");
    let states = alerts.list(None, 9, |_| true).into_iter().map(|alert| alert.imposed.state);
    assert_eq!(
        states.collect::<Vec<_>>(),
        [ImposedState::None, ImposedState::Failed, ImposedState::Lifted, ImposedState::InForce]
    );
}

/// The daemon dies after each step, before it could store that the step was done.
#[tokio::test]
async fn a_daemon_that_dies_between_steps_loses_nothing_and_repeats_nothing() {
    let fixture = Fixture::new();
    let alerts = fixture.open(&fixture.store());
    let id = fire(&alerts, "alice", ASK);
    alerts.keep().await;
    let copy = |name: &str| {
        let path = fixture.directory.path().join(name);
        for ending in ["", "-wal"] {
            let from = fixture.directory.path().join(format!("store.db{ending}"));
            if from.exists() {
                std::fs::copy(from, fixture.directory.path().join(format!("{name}{ending}"))).unwrap();
            }
        }
        path
    };
    let raised = copy("raised.db");
    alerts.finish().await;
    let imposed = copy("imposed.db");
    alerts.acknowledge(id, &operator(), "seen").await.unwrap();
    fixture.notes();
    drop(alerts);

    for stored in [raised, imposed] {
        let alerts = fixture.open(&stored);
        alerts.restore().await;
        fixture.found(&alerts).await;
        alerts.finish().await;
        assert_eq!(fixture.records(), ["raised", "imposed", "acknowledged"]);
        let alert = alerts.get(id).unwrap();
        assert_eq!(alert.imposed.state, ImposedState::Lifted);
        assert_eq!(alert.acknowledged.unwrap().comment, "seen");
        assert_eq!(fixture.notes().last().map(String::as_str), Some("lift alice"));
    }
}

#[tokio::test]
async fn the_record_says_which_records_fired_it() {
    let fixture = Fixture::new();
    let alerts = fixture.open(&fixture.store());
    let id = fire(&alerts, "alice", AnomalyAction::Alert);
    assert!(alerts.next_delivery("any").is_none());
    alerts.finish().await;
    let record = Reader::from(fixture.directory.path().join("audit"), 0).next().unwrap().unwrap();
    let details: Value = record.event.details.unwrap();
    assert_eq!(details["alert_id"], id.to_string());
    assert_eq!((&details["rule"], &details["count"]), (&"denials".into(), &20.into()));
    assert_eq!(details["sequences"], serde_json::json!([5, 7]));
    assert_eq!(details["subject"], serde_json::json!({ "principal": "uid:1", "agent_id": "alice" }));
    assert_eq!(fixture.records(), ["raised"]);
}
