//! Tests anomaly detection, from the suspicious call to the webhook that reports it.

use std::path::Path;

use harness::v1::alert_delivery::State as DeliveryState;
use harness::v1::alert_measure::State as MeasureState;
use harness::v1::call_response::Status;
use harness::{Clients, Daemon, RunHandle, Setup, calls, outlives, reason, record, requests, v1};

use crate::receiver::{answer, header, receiver, secret, signature};

/// The built-in policy is replaced by a small one with these rules.
fn policy(anomalies: &str) -> Vec<(&'static str, String)> {
    let rest = "
profiles:
  p:
    workspace: read-write
    unattended: true
    operations: { read: allow, list: allow, write: allow, edit: allow, exec: allow }
    exec: { default: allow, read_only_commands: true }
roles:
  director: { allow: [read, list, write, edit, exec] }
";
    vec![("p.yaml", format!("{rest}anomalies:\n{anomalies}"))]
}

async fn daemon(anomalies: &str, config: String) -> (Daemon, RunHandle) {
    let daemon = Daemon::start_with(Setup { policy: policy(anomalies), config, ..Default::default() }).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n"), ("b.txt", "two\n")]);
    let run = daemon.run("p", &workspace).await;
    (daemon, run)
}

/// The first change of an alert for which `is` holds.
pub(crate) async fn alert(clients: &mut Clients, is: impl Fn(&v1::Alert) -> bool) -> v1::Alert {
    let mut changes =
        clients.alerts.watch_alerts(v1::WatchAlertsRequest::default()).await.unwrap().into_inner();
    loop {
        let alert = changes.message().await.unwrap().expect("the watch ended").alert.unwrap();
        if is(&alert) {
            return alert;
        }
    }
}

fn measure_is(state: MeasureState) -> impl Fn(&v1::Alert) -> bool {
    move |alert| alert.measure.as_ref().is_some_and(|measure| measure.state() == state)
}

async fn acknowledge(clients: &mut Clients, alert_id: &str) -> Result<v1::Alert, tonic::Status> {
    let request =
        v1::AcknowledgeAlertRequest { alert_id: alert_id.to_owned(), comment: "seen by a test".to_owned() };
    clients.alerts.acknowledge_alert(request).await.map(|response| response.into_inner().alert.unwrap())
}

async fn list(clients: &mut Clients, request: v1::ListAlertsRequest) -> v1::ListAlertsResponse {
    clients.alerts.list_alerts(request).await.unwrap().into_inner()
}

/// States of the alert records.
async fn records(clients: &mut Clients) -> Vec<String> {
    let events = clients.events("", "alert").await;
    events.iter().map(|event| record(event)["details"]["state"].as_str().unwrap().to_owned()).collect()
}

const LOOP_ASKS: &str =
    "  loop: {threshold: 3, window_s: 600, action: require_approval, for_s: 600, severity: high}\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_makes_calls_need_consent_until_an_operator_has_seen_it() {
    let (mut daemon, mut run) = daemon(LOOP_ASKS, String::new()).await;
    for _ in 0..2 {
        run.ok(calls::read("a.txt")).await;
        run.ok(calls::read("b.txt")).await;
    }
    assert!(list(&mut run.clients, v1::ListAlertsRequest::default()).await.alerts.is_empty());
    run.ok(calls::read("a.txt")).await;
    let raised = alert(&mut run.clients, measure_is(MeasureState::InForce)).await;
    assert_eq!((raised.rule.as_str(), raised.count, raised.run_id.as_str()), ("loop", 3, run.id()));
    assert_eq!(raised.sequences.len(), 3);
    for sequence in &raised.sequences {
        let events = run.clients.events("", "call_receipt").await;
        assert!(events.iter().any(|event| event.sequence == *sequence && event.operation == "read"));
    }

    let asked = run.asks(calls::write("c.txt", "three\n")).await;
    let approval = run.clients.approval(&asked.approval_id).await;
    assert!(approval.justification.contains(&raised.alert_id), "{}", approval.justification);
    run.clients.approve(&asked.approval_id).await.unwrap();
    assert_eq!(run.outcome(&asked.call_id).await.status(), Status::Succeeded, "consent holds as ever");

    // A measure is told before it is recorded.
    run.clients.events_when("", "alert", |alerts| alerts.len() >= 2).await;

    // The same after a restart: in force from the first call on, raised and recorded once.
    let before = records(&mut run.clients).await;
    assert_eq!(before, ["raised", "imposed"]);
    daemon.relaunch().await;
    let mut clients = daemon.connect().await;
    let kept = list(&mut clients, v1::ListAlertsRequest::default()).await.alerts;
    assert_eq!(kept.iter().map(|alert| &alert.alert_id).collect::<Vec<_>>(), [&raised.alert_id]);
    assert!(measure_is(MeasureState::InForce)(&kept[0]));
    let seen = acknowledge(&mut clients, &raised.alert_id).await.unwrap();
    assert!(measure_is(MeasureState::Lifted)(&seen));
    assert_eq!((seen.acknowledged_by.as_str(), seen.comment.as_str()), ("uid:0", "seen by a test"));
    let again = acknowledge(&mut clients, &raised.alert_id).await.unwrap_err();
    assert_eq!(reason(&again), "PRECONDITION_FAILED");
    assert_eq!(records(&mut clients).await, ["raised", "imposed", "acknowledged"]);

    // Filters, and what they refuse.
    let count = async |clients: &mut Clients, request| list(clients, request).await.alerts.len();
    let mut filter = v1::ListAlertsRequest { rule: "loop".to_owned(), ..Default::default() };
    assert_eq!(count(&mut clients, filter.clone()).await, 1);
    filter.set_state(v1::alert::State::Open);
    assert_eq!(count(&mut clients, filter.clone()).await, 0);
    filter.set_state(v1::alert::State::Acknowledged);
    filter.set_min_severity(v1::alert::Severity::Critical);
    assert_eq!(count(&mut clients, filter.clone()).await, 0);
    filter.rule = "lopo".to_owned();
    let refused = clients.alerts.list_alerts(filter).await.unwrap_err();
    assert_eq!(reason(&refused), "INVALID_ARGUMENT");
    let bad = v1::ListAlertsRequest { page_token: "x".to_owned(), ..Default::default() };
    assert_eq!(reason(&clients.alerts.list_alerts(bad).await.unwrap_err()), "INVALID_ARGUMENT");
}

#[tokio::test(flavor = "multi_thread")]
async fn probing_stops_the_run_and_a_throttle_holds_until_it_is_lifted() {
    let rules = "  escape_attempts: {threshold: 3, action: stop, severity: critical}\n  loop: {threshold: 3, action: throttle, per_minute: 1, for_s: 600}\n";
    let (daemon, mut run) = daemon(rules, String::new()).await;
    for _ in 0..3 {
        run.ok(calls::list(".")).await;
    }
    let throttled = alert(&mut run.clients, measure_is(MeasureState::InForce)).await;
    assert_eq!(throttled.measure.as_ref().unwrap().per_minute, 1);
    run.ok(calls::read("a.txt")).await;
    let refused = run.call(calls::read("a.txt")).await.unwrap_err();
    assert_eq!(reason(&refused), "RATE_LIMITED");
    acknowledge(&mut run.clients, &throttled.alert_id).await.unwrap();
    run.ok(calls::read("a.txt")).await;

    for path in ["../../etc/passwd", "/etc/shadow", "@project/../../x"] {
        let refused = run.call(calls::read(path)).await.unwrap_err();
        assert_eq!(reason(&refused), "SANDBOX_VIOLATION", "{path}");
    }
    let stopped = alert(&mut run.clients, measure_is(MeasureState::Over)).await;
    assert_eq!(
        (stopped.rule.as_str(), stopped.severity()),
        ("escape_attempts", v1::alert::Severity::Critical)
    );
    assert_eq!(stopped.run_id, run.id());
    assert_eq!(stopped.measure.unwrap().action, "stop");
    assert_eq!(run.ended().await.state(), v1::run::State::Stopped);
    let refused = run.call(calls::read("a.txt")).await.unwrap_err();
    assert_eq!(reason(&refused), "RUN_NOT_READY");
    drop(daemon);
}

const LOOP_FREEZES: &str = "  loop: {threshold: 3, window_s: 600, action: freeze, severity: critical}\n";

async fn resume(run: &mut RunHandle, lift_alerts: bool) -> v1::Run {
    let request = v1::ResumeRunRequest { run_id: run.id().to_owned(), lift_alerts };
    run.clients.runs.resume_run(request).await.unwrap().into_inner().run.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_freezes_its_run_over_restarts_until_an_operator_releases_it() {
    let (mut daemon, mut run) = daemon(LOOP_FREEZES, String::new()).await;
    let ticks = daemon.roots().join("w/ticks");
    let counted = || std::fs::read(&ticks).map_or(0, |ticks| ticks.len());
    let counting =
        run.waits(calls::exec(&["sh", "-c", "while [ ! -e stop ]; do printf x >> ticks; sleep 0.01; done"]));
    let begins = async {
        // A command has no other way to tell.
        while counted() < 3 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), begins).await.unwrap();
    repeat(&mut run).await;
    let raised = alert(&mut run.clients, measure_is(MeasureState::InForce)).await;
    assert_eq!((raised.rule.as_str(), raised.run_id.as_str()), ("loop", run.id()));
    assert_eq!(raised.measure.as_ref().unwrap().action, "freeze");
    let is_held = |run: &v1::Run| {
        assert_eq!(run.state(), v1::run::State::Paused);
        let [hold] = &run.holds[..] else { panic!("{:?}", run.holds) };
        assert_eq!((hold.kind(), &hold.cause_id), (v1::run_hold::Kind::Alert, &raised.alert_id));
    };
    is_held(&run.show().await);
    let before = counted();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(counted(), before, "the command goes on");
    assert_eq!(reason(&run.call(calls::read("b.txt")).await.unwrap_err()), "RUN_NOT_READY");
    is_held(&resume(&mut run, false).await);
    drop(counting);

    let mut run = outlives(&mut daemon, run).await;
    is_held(&run.show().await);
    let resumed = resume(&mut run, true).await;
    assert_eq!((resumed.state(), resumed.holds.len()), (v1::run::State::Ready, 0));
    run.ok(calls::read("b.txt")).await;
    let lifted = alert_due(&mut run.clients, &raised.alert_id).await;
    assert!(measure_is(MeasureState::Lifted)(&lifted) && lifted.acknowledged_by == "uid:0", "{lifted:?}");

    let mut run = outlives(&mut daemon, run).await;
    assert_eq!(run.show().await.state(), v1::run::State::Ready, "what was let go stays so");
    assert_eq!(records(&mut run.clients).await, ["raised", "imposed", "acknowledged"]);

    // The same by the alert itself.
    repeat(&mut run).await;
    let again = alert(&mut run.clients, measure_is(MeasureState::InForce)).await;
    assert_ne!(again.alert_id, raised.alert_id);
    acknowledge(&mut run.clients, &again.alert_id).await.unwrap();
    assert_eq!(run.show().await.state(), v1::run::State::Ready);
    run.ok(calls::read("b.txt")).await;
}

fn webhook(port: u16, secret: &Path, more: &str) -> String {
    format!(
        "alerts: {{ webhooks: [{{ name: pager, url: 'http://127.0.0.1:{port}/hook/T0K3N', secret_file: {}, first_retry: 1s{more} }}] }}\n",
        secret.display()
    )
}

const LOOP_ALERTS: &str = "  loop: {threshold: 3, action: alert}\n";

async fn repeat(run: &mut RunHandle) {
    for _ in 0..3 {
        run.ok(calls::read("a.txt")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_brings_a_webhook_its_new_secret_and_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let (port, mut received) = receiver().await;
    let file = secret(directory.path());
    let daemon = Daemon::start_with(Setup { policy: policy(LOOP_ALERTS), ..Default::default() }).await;
    let mut control = v1::daemon_service_client::DaemonServiceClient::new(daemon.connect().await.channel);
    let text = std::fs::read_to_string(daemon.config_path()).unwrap();
    let mut take = async |text: &str| {
        std::fs::write(daemon.config_path(), text).unwrap();
        control.reload_daemon(v1::ReloadDaemonRequest {}).await.unwrap().into_inner()
    };
    // Another agent each time: one has one alert for a while.
    let misbehave = async |agent: &str| {
        let request = v1::CreateRunRequest { agent_id: agent.to_owned(), ..requests::managed("p") };
        let mut run = daemon.run_on(request).await;
        for _ in 0..3 {
            run.ok(calls::list(".")).await;
        }
        run
    };
    let with = format!("{text}{}", webhook(port, &file, ""));
    assert_eq!(take(&with).await.applied, ["alerts"]);
    let _first = misbehave("one").await;
    let (stream, request) = received.recv().await.unwrap();
    assert_eq!(header(&request, "webhook-signature"), signature(&[1; 24], &request));
    answer(stream, "204 No Content").await;

    // The secret is in a file that has the same name: no key of the configuration differs.
    std::fs::write(&file, format!("whsec_{}\n", "AgIC".repeat(8))).unwrap();
    assert!(take(&with).await.applied.is_empty());
    let _second = misbehave("two").await;
    let (stream, request) = received.recv().await.unwrap();
    assert_eq!(header(&request, "webhook-signature"), signature(&[2; 24], &request));
    answer(stream, "204 No Content").await;

    assert_eq!(take(&text).await.applied, ["alerts"]);
    let mut third = misbehave("three").await;
    let id = third.id().to_owned();
    let raised = alert(&mut third.clients, |alert| alert.run_id == id && alert.deliveries.is_empty());
    tokio::time::timeout(std::time::Duration::from_secs(30), raised)
        .await
        .expect("there is no alert without a delivery");
    assert!(received.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_gets_signed_alerts_after_failures_and_across_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (port, mut requests) = receiver().await;
    let config = webhook(port, &secret(directory.path()), "");
    let (mut daemon, mut run) = daemon(LOOP_ALERTS, config).await;
    repeat(&mut run).await;

    let (stream, first) = requests.recv().await.unwrap();
    let (head, body) = first.split_once("\r\n\r\n").unwrap();
    assert_eq!(header(head, "webhook-signature"), signature(&[1; 24], &first));
    assert!(head.starts_with("POST /hook/T0K3N HTTP/1.1\r\n"), "{head}");
    let message: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!((&message["type"], &message["data"]["rule"]), (&"alert.raised".into(), &"loop".into()));
    assert_eq!(message["data"]["alert_id"], header(head, "webhook-id"));
    answer(stream, "500 Oops").await;
    let (stream, second) = requests.recv().await.unwrap();
    answer(stream, "302 Found\r\nlocation: http://127.0.0.1:1/").await;
    let (unanswered, third) = requests.recv().await.unwrap();
    for again in [&second, &third] {
        let (again_head, again_body) = again.split_once("\r\n\r\n").unwrap();
        assert_eq!(header(again_head, "webhook-id"), header(head, "webhook-id"));
        assert_eq!(again_body, body, "the same bytes at every attempt");
        assert_eq!(header(again_head, "webhook-signature"), signature(&[1; 24], again));
    }

    // While the receiver holds the connection, calls come to their end and further alerts are raised.
    run.ok(calls::write("c.txt", "three\n")).await;
    for _ in 0..3 {
        run.ok(calls::read("b.txt")).await;
    }
    daemon.kill().await;
    drop(unanswered);
    daemon.launch().await;
    let (stream, fourth) = requests.recv().await.unwrap();
    assert_eq!(header(&fourth, "webhook-id"), header(head, "webhook-id"), "it goes on where it was");
    answer(stream, "204 No Content").await;
    let mut clients = daemon.connect().await;
    let delivered = |alert: &v1::Alert| alert.deliveries[0].state() == DeliveryState::Delivered;
    let alert = alert_now(&mut clients, delivered).await;
    assert_eq!(alert.deliveries[0].attempts, 3, "the one that the kill cut off is not known");
    let states = records(&mut clients).await;
    assert_eq!(states, ["raised"], "one alert, once, across failures and the restart");
    assert!(!daemon.log().contains("T0K3N") && !daemon.log().contains("AQEB"), "{}", daemon.log());
}

/// An alert for which `is` holds, now or later, whether it is open or not.
async fn alert_now(clients: &mut Clients, is: impl Fn(&v1::Alert) -> bool) -> v1::Alert {
    alert(clients, is).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_always_fails_is_given_up_and_reported() {
    let directory = tempfile::tempdir().unwrap();
    let (port, mut requests) = receiver().await;
    let config = webhook(port, &secret(directory.path()), ", attempts: 2");
    let (daemon, mut run) = daemon(LOOP_ALERTS, config).await;
    repeat(&mut run).await;
    for _ in 0..2 {
        let (stream, _) = requests.recv().await.unwrap();
        answer(stream, "503 Later").await;
    }
    let gave_up = |alert: &v1::Alert| alert.deliveries[0].state() == DeliveryState::GaveUp;
    let alert = alert_now(&mut run.clients, gave_up).await;
    assert_eq!((alert.deliveries[0].attempts, alert.deliveries[0].failure.as_str()), (2, "answered 503"));
    run.ok(calls::read("b.txt")).await;
    assert!(requests.try_recv().is_err(), "no third attempt");
    let is_said = async || daemon.log().contains("an alert is not delivered: answered 503");
    harness::until("the log does not say it", is_said).await;
}

/// The detector waits for nobody, and nobody for it: calls are answered while the webhook's connection stays open.
#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_never_answers_delays_no_call() {
    let directory = tempfile::tempdir().unwrap();
    let (port, mut requests) = receiver().await;
    let config = webhook(port, &secret(directory.path()), ", timeout: 60s");
    let (_daemon, mut run) = daemon(LOOP_ASKS, config).await;
    repeat(&mut run).await;
    let (held, _) = requests.recv().await.unwrap();
    let raised = alert(&mut run.clients, measure_is(MeasureState::InForce)).await;
    acknowledge(&mut run.clients, &raised.alert_id).await.unwrap();
    for number in 0..8 {
        run.ok(calls::write("c.txt", &format!("{number}\n"))).await;
    }
    let due = alert_due(&mut run.clients, &raised.alert_id).await;
    assert_eq!(due.deliveries[0].state(), DeliveryState::Due);
    assert!(requests.try_recv().is_err(), "one connection, and it is still held");
    drop(held);
}

async fn alert_due(clients: &mut Clients, alert_id: &str) -> v1::Alert {
    let request = v1::GetAlertRequest { alert_id: alert_id.to_owned() };
    clients.alerts.get_alert(request).await.unwrap().into_inner().alert.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_changes_the_rules_and_a_bad_one_does_not() {
    let (daemon, mut run) = daemon("  loop: {action: off}\n", String::new()).await;
    for _ in 0..25 {
        run.ok(calls::read("a.txt")).await;
    }
    let write = |anomalies: &str| {
        let (name, text) = policy(anomalies).remove(0);
        std::fs::write(daemon.policy_dir().join(name), text).unwrap();
    };
    write("  loop: {threshold: 0, action: frieze}\n");
    let refused = run.clients.policy.reload_policy(v1::ReloadPolicyRequest::default()).await.unwrap_err();
    for said in ["p.yaml:", "anomalies.loop.threshold", "action: off", "did you mean `freeze`?"] {
        assert!(refused.message().contains(said), "{said}: {}", refused.message());
    }
    write(LOOP_ALERTS);
    run.clients.policy.reload_policy(v1::ReloadPolicyRequest::default()).await.unwrap();
    repeat(&mut run).await;
    let raised = alert(&mut run.clients, |_| true).await;
    assert_eq!(
        (raised.rule.as_str(), raised.count),
        ("loop", 3),
        "what came before the rule was on does not count"
    );
}

/// What a role does not have, what a team denies and what was revoked; and calls that go on over a limit.
#[tokio::test(flavor = "multi_thread")]
async fn attempted_escalations_and_calls_over_a_limit_raise_alerts() {
    let text = "
profiles:
  p:
    workspace: read-write
    unattended: true
    operations: { read: allow, list: allow, glob: allow, write: allow, edit: deny, delete: ask }
    rate_limits:
      operations:
        default: { minute: 100, hour: 100, day: 100 }
        read: { minute: 1, hour: 100, day: 100 }
roles:
  director: { allow: [read, list, glob, edit, delete] }
teams:
  testers: { agents: [tester], deny: [delete] }
anomalies:
  permission_escalation: { threshold: 3 }
  rate_limit_abuse: { threshold: 3, severity: critical }
";
    let policy = vec![("p.yaml", text.to_owned())];
    let daemon = Daemon::start_with(Setup { policy, ..Default::default() }).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("p", &workspace).await;
    let permission = v1::Permission {
        subject: Some(v1::permission::Subject::AgentId("tester".to_owned())),
        operation: "list".to_owned(),
        reason: "a test".to_owned(),
        ..Default::default()
    };
    let what = Some(v1::revoke_permission_request::What::Permission(permission));
    let request = v1::RevokePermissionRequest { what, ..Default::default() };
    run.clients.permissions.revoke_permission(request).await.unwrap();

    // What the profile denies to all is no try to have more.
    let denied = [calls::replace("a.txt", "one", "two"), calls::replace("a.txt", "one", "three")];
    let beyond = [calls::write("b.txt", "x"), calls::delete("a.txt"), calls::list(".")];
    for operation in denied.into_iter().chain(beyond) {
        assert_eq!(reason(&run.call(operation).await.unwrap_err()), "PERMISSION_DENIED");
    }
    let raised = alert(&mut run.clients, |alert| alert.rule == "permission_escalation").await;
    assert_eq!((raised.count, raised.severity()), (3, v1::alert::Severity::High), "{raised:?}");
    let agent = raised.summary.contains("attempts to use rights that were not granted");
    assert!(agent, "{}", raised.summary);

    run.ok(calls::read("a.txt")).await;
    for _ in 0..3 {
        assert_eq!(reason(&run.call(calls::read("a.txt")).await.unwrap_err()), "RATE_LIMITED");
    }
    let raised = alert(&mut run.clients, |alert| alert.rule == "rate_limit_abuse").await;
    assert_eq!((raised.count, raised.severity()), (3, v1::alert::Severity::Critical), "{raised:?}");
    assert!(raised.summary.contains("calls over a rate limit"), "{}", raised.summary);
}
