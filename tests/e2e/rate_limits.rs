//! Tests rate limits: through the API, in an agent's dialect, shown, changed and imposed.

use std::time::Duration;

use harness::v1::{self, call_response, rate_limit::Scope};
use harness::{Daemon, RunHandle, Setup, calls, reason};
use tonic::Code;
use tonic_types::StatusExt as _;

const ROLES: &str = "roles: { director: { allow: \"*\" } }\n";

fn policy(reads: u32) -> String {
    format!(
        "profiles:
  p:
    workspace: read-write
    unattended: true
    operations: {{ read: allow, list: allow, write: allow }}
    rate_limits:
      operations:
        default: {{ minute: 50, hour: 50, day: 50 }}
        read: {{ minute: {reads}, hour: 40, day: 40 }}
"
    )
}

async fn start(policy: String) -> Daemon {
    let policy = vec![("p.yaml", policy), ("roles.yaml", ROLES.to_owned())];
    Daemon::start_with(Setup { policy, ..Default::default() }).await
}

async fn limits(run: &mut RunHandle) -> v1::GetRateLimitsResponse {
    let request = v1::GetRateLimitsRequest { run_id: run.id().to_owned(), ..Default::default() };
    run.clients.limits.get_rate_limits(request).await.unwrap().into_inner()
}

/// Calls in the hour's window, which no test outlasts.
fn used(limits: &v1::GetRateLimitsResponse, scope: Scope, name: &str) -> u32 {
    let limit = limits.limits.iter().find(|limit| limit.scope() == scope && limit.name == name);
    limit.map_or(0, |limit| limit.windows[1].used)
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_callers_get_exactly_the_limit_and_the_others_a_retry_time() {
    let daemon = start(policy(20)).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("p", &workspace).await;
    let calls = (0..64).map(|_| {
        let mut run = run.clone();
        tokio::spawn(async move { run.call(calls::read("a.txt")).await })
    });
    let (mut admitted, mut refused) = (0, Vec::new());
    for call in calls.collect::<Vec<_>>() {
        match call.await.unwrap() {
            Ok(_) => admitted += 1,
            Err(status) => refused.push(status),
        }
    }
    assert_eq!((admitted, refused.len()), (20, 44));
    for status in &refused {
        assert_eq!((status.code(), reason(status).as_str()), (Code::ResourceExhausted, "RATE_LIMITED"));
        let retry = status.get_details_retry_info().unwrap().retry_delay.unwrap();
        assert!(retry > Duration::ZERO && retry <= Duration::from_secs(62), "{retry:?}");
        assert!(
            status.message().contains("20 `read` calls in any minute; try again in"),
            "{}",
            status.message()
        );
    }

    // In an agent's dialect it is an answer that a model can read.
    let dialect = v1::DialectCall {
        dialect: "native".to_owned(),
        name: "read_file".to_owned(),
        arguments_json: r#"{"path": "a.txt"}"#.to_owned(),
    };
    let told = run.call(dialect).await.unwrap();
    assert_eq!(told.status(), call_response::Status::Denied);
    assert!(told.rendered.contains("try again in"), "{}", told.rendered);
    assert_eq!(told.error.unwrap().reason, "RATE_LIMITED");

    let shown = limits(&mut run).await;
    let id = run.id().to_owned();
    assert_eq!(shown.profile, "p");
    assert_eq!(used(&shown, Scope::Operation, "read"), 20);
    assert_eq!(used(&shown, Scope::Run, &id), 20, "what was refused used up nothing");
    assert!(shown.limits.iter().any(|limit| limit.windows[0].room_at.is_some()));

    // A new policy holds at once for what was counted.
    std::fs::write(daemon.policy_dir().join("p.yaml"), policy(22)).unwrap();
    run.clients.policy.reload_policy(v1::ReloadPolicyRequest {}).await.unwrap();
    for _ in 0..2 {
        run.ok(calls::read("a.txt")).await;
    }
    assert_eq!(reason(&run.call(calls::read("a.txt")).await.unwrap_err()), "RATE_LIMITED");
    run.ok(calls::list(".")).await;
}

/// The run's agent is throttled as it was. Throttles count in a clock that nobody sets, so that their end by the wall
/// clock is told anew each time, within what lies between two looks at two clocks.
async fn throttled(run: &mut RunHandle, imposed: &v1::Throttle) {
    let [shown] = limits(run).await.throttles.try_into().unwrap();
    let until = |throttle: &v1::Throttle| {
        let until = throttle.until.unwrap();
        i128::from(until.seconds) * 1_000 + i128::from(until.nanos / 1_000_000)
    };
    assert!((until(&shown) - until(imposed)).abs() < 1_000, "{shown:?}, {imposed:?}");
    assert_eq!(v1::Throttle { until: imposed.until, ..shown }, *imposed);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_throttles_an_agent_and_lifts_it() {
    let mut daemon = start(policy(40)).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("p", &workspace).await;
    let throttle = v1::ThrottleAgentRequest {
        agent_id: "tester".to_owned(),
        per_minute: 1,
        duration: Some(wire::duration(Duration::from_secs(3_600))),
        reason: "runs in circles".to_owned(),
        ..Default::default()
    };
    let imposed = run.clients.limits.throttle_agent(throttle).await.unwrap().into_inner().throttle.unwrap();
    assert_eq!((imposed.agent_id.as_str(), imposed.per_minute), ("tester", 1));
    assert_eq!(imposed.principal, "uid:0", "the only one whose agent has this name");
    run.ok(calls::read("a.txt")).await;
    assert_eq!(reason(&run.call(calls::list(".")).await.unwrap_err()), "RATE_LIMITED");
    assert_eq!(limits(&mut run).await.throttles.len(), 1);
    let events = run.clients.events("", "agent_throttled").await;
    assert_eq!((events.len(), events[0].principal.as_str()), (1, "uid:0"));
    assert_eq!(harness::record(&events[0])["details"]["agent_principal"], "uid:0");
    // Of somebody else's agent of this name nothing is taken, and nobody's agent is not throttled in silence.
    let other = v1::ThrottleAgentRequest {
        agent_id: "tester".to_owned(),
        principal: "uid:4242".to_owned(),
        duration: Some(wire::duration(Duration::from_secs(3_600))),
        ..Default::default()
    };
    run.clients.limits.throttle_agent(other.clone()).await.unwrap();
    throttled(&mut run, &imposed).await;
    let ambiguous = v1::ThrottleAgentRequest { principal: String::new(), ..other.clone() };
    let refused = run.clients.limits.throttle_agent(ambiguous).await.unwrap_err();
    assert_eq!(reason(&refused), "PRECONDITION_FAILED");
    let lift = v1::ThrottleAgentRequest { duration: None, ..other };
    assert_eq!(run.clients.limits.throttle_agent(lift).await.unwrap().into_inner().throttle, None);
    let nobody = v1::ThrottleAgentRequest { agent_id: "nobody".to_owned(), ..Default::default() };
    assert_eq!(reason(&run.clients.limits.throttle_agent(nobody).await.unwrap_err()), "NOT_FOUND");

    // It outlives the daemon.
    daemon.relaunch().await;
    let mut run = daemon.run("p", &workspace).await;
    throttled(&mut run, &imposed).await;
    run.ok(calls::read("a.txt")).await;
    assert_eq!(reason(&run.call(calls::list(".")).await.unwrap_err()), "RATE_LIMITED");
    let lift = v1::ThrottleAgentRequest { agent_id: "tester".to_owned(), ..Default::default() };
    assert_eq!(run.clients.limits.throttle_agent(lift).await.unwrap().into_inner().throttle, None);
    run.ok(calls::list(".")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limit_use_survives_kill_and_stop_exactly() {
    // By the hour: three starts may take longer than a minute.
    let mut daemon = start(policy(12).replace("hour: 40", "hour: 12")).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("p", &workspace).await;
    for _ in 0..4 {
        run.ok(calls::read("a.txt")).await;
    }
    // An effect is durable before it happens, and everything before it.
    run.ok(calls::write("b.txt", "x")).await;
    daemon.relaunch().await;
    let mut run = daemon.run("p", &workspace).await;
    let shown = limits(&mut run).await;
    assert_eq!((used(&shown, Scope::Operation, "read"), used(&shown, Scope::Operation, "write")), (4, 1));

    for _ in 0..4 {
        run.ok(calls::read("a.txt")).await;
    }
    daemon.stop().await;
    assert!(daemon.state_dir().join("limits.json").exists());
    daemon.launch().await;
    let mut run = daemon.run("p", &workspace).await;
    assert_eq!(used(&limits(&mut run).await, Scope::Operation, "read"), 8);
    for _ in 0..4 {
        run.ok(calls::read("a.txt")).await;
    }
    assert_eq!(reason(&run.call(calls::read("a.txt")).await.unwrap_err()), "RATE_LIMITED");

    // A copy that is broken costs nothing: the log has it all.
    run.ok(calls::write("b.txt", "y")).await;
    daemon.kill().await;
    std::fs::write(daemon.state_dir().join("limits.json"), "{").unwrap();
    daemon.launch().await;
    let mut run = daemon.run("p", &workspace).await;
    assert_eq!(used(&limits(&mut run).await, Scope::Operation, "read"), 12);
    assert_eq!(reason(&run.call(calls::read("a.txt")).await.unwrap_err()), "RATE_LIMITED");
}
