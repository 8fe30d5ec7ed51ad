//! A node of a fleet: its identity, its drain, admission to it, and what watchers see.

use std::time::{Duration, Instant};

use harness::v1::exec_result::EndedBy;
use harness::v1::node::State;
use harness::v1::node_service_client::NodeServiceClient;
use harness::v1::process::State as ProcessState;
use harness::v1::result::Kind as Answer;
use harness::v1::run::{EndCause, State as RunState};
use harness::v1::{self, DrainNodeRequest, Node};
use harness::{Daemon, Setup, as_user, calls, forks, process, reason, record, requests, session};
use node_id::NodeId;
use serde_json::json;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt as _;

use crate::cli;

const PATIENCE: Duration = Duration::from_secs(30);
const AUDITOR: u32 = 4321;

fn policy() -> String {
    "profiles:
  p:
    workspace: read-write
    unattended: true
    operations: { read: allow, exec: allow, process: allow, session: allow }
    exec: { read_only_commands: true, default: allow }
    limits: { memory_mib: 128, cpu_millis: 500, disk_mib: 64, pids: 128 }
roles: { director: { allow: \"*\" } }
"
    .to_owned()
}

fn setup(config: &str) -> Setup {
    Setup { policy: vec![("p.yaml", policy())], config: config.to_owned(), ..Setup::default() }
}

async fn nodes(daemon: &Daemon) -> NodeServiceClient<Channel> {
    NodeServiceClient::new(daemon.connect().await.channel)
}

async fn node(daemon: &Daemon) -> Node {
    nodes(daemon).await.get_node(v1::GetNodeRequest {}).await.unwrap().into_inner().node.unwrap()
}

async fn drain(daemon: &Daemon, why: &str, deadline: Option<i64>) -> Node {
    let deadline = deadline.map(seconds);
    let request = DrainNodeRequest { reason: why.to_owned(), deadline };
    nodes(daemon).await.drain_node(request).await.unwrap().into_inner().node.unwrap()
}

fn seconds(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}

async fn undrain(daemon: &Daemon) -> Node {
    nodes(daemon).await.undrain_node(v1::UndrainNodeRequest {}).await.unwrap().into_inner().node.unwrap()
}

async fn health(daemon: &Daemon, service: &str) -> ServingStatus {
    let mut health = HealthClient::new(daemon.connect().await.channel);
    let request = HealthCheckRequest { service: service.to_owned() };
    health.check(request).await.unwrap().into_inner().status()
}

async fn refused(daemon: &Daemon) -> Status {
    daemon.run_with(requests::managed("p")).await.map(|run| run.id().to_owned()).unwrap_err()
}

/// Facts of a refusal, by their names.
fn facts<const N: usize>(refused: &Status, names: [&str; N]) -> [String; N] {
    let details = refused.get_error_details();
    let metadata = &details.error_info().unwrap().metadata;
    names.map(|name| metadata[name].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_node_refuses_runs_and_keeps_those_that_live() {
    let config = "node: { id: 7 }\npool: [{ profile: p, min: 1, max: 1 }]\n";
    let daemon = Daemon::start_with(setup(config)).await;
    daemon.pool_is_full(1).await;
    let request = v1::CreateRunRequest { request_id: "first".to_owned(), ..requests::managed("p") };
    let mut run = daemon.run_on(request.clone()).await;
    daemon.pool_is_full(2).await;
    assert_eq!(health(&daemon, "cofferdam.create").await, ServingStatus::Serving);

    let drained = drain(&daemon, "a new kernel", None).await;
    assert_eq!((drained.state(), drained.used.unwrap().runs), (State::Draining, 1));
    let shown = drained.drain.unwrap();
    assert_eq!((shown.reason.as_str(), shown.deadline), ("a new kernel", None));
    let refused = refused(&daemon).await;
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Unavailable, "NODE_DRAINED"));
    assert_eq!(facts(&refused, ["node"]), ["7"]);
    let said = refused.message();
    assert!(said.contains("a new kernel") && said.contains("another node"), "{said}");
    // A fork is a new run, too, and its checkpoint is still made.
    let id = run.id().to_owned();
    let checkpoint = forks::checkpoint(&mut run.clients, &id).await.unwrap();
    let request_of_fork = forks::of_checkpoint(&checkpoint.checkpoint_id, 1);
    let forked = forks::fork(&mut run.clients, request_of_fork).await;
    let said = forked.map_or_else(|status| reason(&status), |answer| format!("{answer:?}"));
    assert!(said.contains("NODE_DRAINED"), "{said}");
    // Forks of the run itself leave no checkpoint behind.
    let before = forks::list(&mut run.clients).await.len();
    let request_of_forks = v1::ForkRunRequest { request_id: "forks".to_owned(), ..forks::of_run(&id, 1) };
    let forked = forks::fork(&mut run.clients, request_of_forks).await;
    assert_eq!(reason(&forked.unwrap_err()), "NODE_DRAINED");
    assert_eq!(forks::list(&mut run.clients).await.len(), before);
    // The run of a request that is repeated is found.
    let again = daemon.run_on(request).await;
    assert_eq!(again.id(), run.id());
    assert_eq!(run.exec(&["echo", "on"]).await.stdout, "on\n");
    // A balancer stops to create runs, and goes on to route calls.
    harness::until("creation is still reported", async || {
        health(&daemon, "cofferdam.create").await == ServingStatus::NotServing
    })
    .await;
    for service in ["", "cofferdam.v1.RunService", "cofferdam.v1.ToolService"] {
        assert_eq!(health(&daemon, service).await, ServingStatus::Serving, "{service}");
    }
    harness::until("containers still wait", async || node(&daemon).await.pools.is_empty()).await;
    run.stop().await;
    assert_eq!(node(&daemon).await.state(), State::Drained);

    // Another reason replaces the first, and the drain began when it began.
    let since = node(&daemon).await.state_since;
    let again = drain(&daemon, "a new disk", None).await;
    assert_eq!((again.state_since, again.drain.unwrap().reason), (since, "a new disk".to_owned()));

    let serving = undrain(&daemon).await;
    assert_eq!((serving.state(), serving.drain), (State::Serving, None));
    assert_eq!(undrain(&daemon).await.state(), State::Serving);
    // Refusals of creates and of forks are on record, together.
    let mut clients = daemon.connect().await;
    let events = clients.events_when("", "run_refused", |events| !events.is_empty()).await;
    let [event] = &events[..] else { panic!("{events:?}") };
    let event = record(event);
    assert_eq!((&event["principal"], &event["outcome"]["reason"]), (&json!("uid:0"), &json!("NODE_DRAINED")));
    assert_eq!(event["details"], json!({ "tenant": "uid:0", "count": 1 }));

    daemon.run_on(requests::managed("p")).await;
    daemon.pool_is_full(3).await;
    harness::until("creation is not reported again", async || {
        health(&daemon, "cofferdam.create").await == ServingStatus::Serving
    })
    .await;

    let mut clients = daemon.connect().await;
    let drained = clients.events("", "node_drained").await;
    assert_eq!(drained.len(), 2);
    let first = record(&drained[0]);
    assert_eq!(
        first["details"],
        json!({ "reason": "a new kernel", "deadline": null, "living": 1 }),
        "{first}"
    );
    assert_eq!(first["principal"], "uid:0");
    assert_eq!(clients.events("", "node_undrained").await.len(), 1);
    assert!(clients.verify().await.intact);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_ends_the_runs_with_the_cause_of_the_drain() {
    let daemon = Daemon::start_with(setup("")).await;
    let runs = [daemon.run_on(requests::managed("p")).await, daemon.run_on(requests::managed("p")).await];
    let mut busy = daemon.run_on(requests::managed("p")).await;
    let cut = busy.waits(calls::exec(&["sh", "-c", "echo so far; sleep 60"]));
    let started = busy.start(process::command(&["sleep", "60"])).await.process_id;
    let (mut waiter, process_id) = (busy.clone(), started.clone());
    let outlived = tokio::spawn(async move { waiter.waited(&process_id).await });
    let shell = busy.open().await;
    let mut typist = busy.clone();
    let typed =
        tokio::spawn(async move { typist.try_in_session(session::command(&shell, "sleep 60")).await });
    busy.first_session_is_busy().await;
    let drained = drain(&daemon, "the host is replaced", Some(2)).await;
    assert_eq!(drained.state(), State::Draining);
    assert!(drained.drain.unwrap().deadline.is_some());
    harness::until("runs outlive the deadline", async || node(&daemon).await.state() == State::Drained).await;
    for run in runs {
        let request = v1::GetRunRequest { run_id: run.id().to_owned() };
        let mut clients = daemon.connect().await;
        let ended = clients.runs.get_run(request).await.unwrap().into_inner().run.unwrap();
        assert_eq!((ended.state(), ended.end_cause()), (RunState::Stopped, EndCause::NodeDrained));
        let states = clients.events(run.id(), "run_state").await;
        let last = record(states.last().unwrap());
        assert_eq!(last["details"]["cause"], "node_drained", "{last}");
    }
    // A call that is cut off is no failure of its caller.
    let cut = cut.await.unwrap().unwrap();
    let failure = cut.error.as_ref().unwrap();
    assert_eq!(
        (failure.reason.as_str(), failure.fault(), failure.retry_safe),
        ("RUN_LOST", v1::Fault::Infrastructure, false),
        "{failure:?}"
    );
    let fact = v1::Evidence { what: "run.end_cause".to_owned(), value: "node_drained".to_owned() };
    assert_eq!(failure.evidence, std::slice::from_ref(&fact));
    // Its answer has the output up to then, as one that timed out has.
    let Some(Answer::Exec(result)) = cut.kind() else { panic!("{cut:?}") };
    assert_eq!((result.stdout.as_str(), result.ended_by()), ("so far\n", EndedBy::RunEnded), "{result:?}");
    let receipt = busy.clients.of_call(&cut.call_id).await.iter().map(record).next_back().unwrap();
    let outcome = &receipt["outcome"];
    assert_eq!(
        (&outcome["reason"], &outcome["facts"]["fault"]),
        (&json!("RUN_LOST"), &json!("INFRASTRUCTURE"))
    );
    assert_eq!(outcome["facts"]["stdout_bytes"], 7, "{receipt}");
    // A command of a session is such a call, too.
    let typed = typed.await.unwrap().unwrap_err();
    assert_eq!(reason(&typed), "RUN_LOST", "{typed}");
    let shown = facts(&typed, ["fault", "evidence.run.end_cause"]);
    assert_eq!(shown, ["INFRASTRUCTURE", "node_drained"], "{typed}");
    // A process has the same party and fact, for those that wait for it, for readers of its output, and on record.
    let ended = outlived.await.unwrap();
    assert_eq!((ended.state(), ended.ended_by()), (ProcessState::Ended, EndedBy::RunEnded), "{ended:?}");
    assert!(ended.failure.contains("node_drained"), "{ended:?}");
    assert_eq!(ended.fault(), v1::Fault::Infrastructure, "{ended:?}");
    assert_eq!(ended.evidence, [fact], "{ended:?}");
    assert_eq!(busy.all_of(&started).await.process, Some(ended));
    let run_id = busy.id().to_owned();
    let ends = busy.clients.events(&run_id, "process_ended").await;
    let ends: Vec<_> = ends.iter().map(record).collect();
    let end = ends.iter().find(|end| end["details"]["process_id"] == started).unwrap();
    let facts = &end["outcome"]["facts"];
    assert_eq!(
        (&facts["ended_by"], &facts["fault"]),
        (&json!("run-ended"), &json!("INFRASTRUCTURE")),
        "{end}"
    );
    assert_eq!(reason(&refused(&daemon).await), "NODE_DRAINED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_and_its_deadline_outlive_the_daemon() {
    let mut daemon = Daemon::start_with(setup("runs: { on_stop: leave }\n")).await;
    let mut run = daemon.run_on(requests::managed("p")).await;
    drain(&daemon, "a new kernel", None).await;
    daemon.relaunch().await;
    assert_eq!(node(&daemon).await.state(), State::Draining);
    assert_eq!(health(&daemon, "cofferdam.create").await, ServingStatus::NotServing);
    let refused = refused(&daemon).await;
    assert_eq!(reason(&refused), "NODE_DRAINED");
    assert!(refused.message().contains("a new kernel"), "{}", refused.message());
    run.clients = daemon.connect().await;
    assert_eq!(run.exec(&["echo", "on"]).await.stdout, "on\n");
    // The deadline passes while no daemon runs.
    drain(&daemon, "a new kernel", Some(1)).await;
    daemon.kill().await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    daemon.launch().await;
    harness::until("the run outlives the deadline", async || node(&daemon).await.state() == State::Drained)
        .await;
    undrain(&daemon).await;
    daemon.stop().await;
    daemon.launch().await;
    assert_eq!(node(&daemon).await.state(), State::Serving);
    daemon.run_on(requests::managed("p")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_does_not_fit_is_refused_with_the_figures() {
    for (capacity, key, limit, wanted) in [
        ("runs: 1, cores: 64", "node.capacity.runs", 1, 1),
        ("disk_mib: 100, cores: 64", "node.capacity.disk_mib", 100, 64),
        ("cores: 1, core_overcommit: 1", "node.capacity.cores", 1_000, 500),
    ] {
        let config = format!("node: {{ capacity: {{ memory_mib: 100000, {capacity} }} }}\n");
        let daemon = Daemon::start_with(setup(&config)).await;
        let (shown, mut fitting) = (node(&daemon).await, Vec::new());
        assert!(shown.capacity_is_enforced, "{shown:?}");
        while (fitting.len() as u64 + 1) * wanted <= limit {
            fitting.push(daemon.run_on(requests::managed("p")).await);
        }
        let used = fitting.len() as u64 * wanted;
        let refused = refused(&daemon).await;
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::ResourceExhausted, "OVERLOADED"));
        let found = facts(&refused, ["limit", "used", "wanted", "max", "over"]);
        let numbers = [used, wanted, limit, used + wanted - limit].map(|number| number.to_string());
        let [used, wanted, max, over] = numbers;
        assert_eq!(found, [key.to_owned(), used.clone(), wanted, max.clone(), over]);
        let said = refused.message();
        assert!(said.contains(&format!("take {used} of at most {max} ")), "{said}");
        let details = refused.get_error_details();
        assert!(details.retry_info().unwrap().retry_delay.is_some(), "{said}");
        // A run that ends gives its part back. Its disk counts with what it has left, which is next to nothing.
        fitting.pop().unwrap().stop().await;
        daemon.run_on(requests::managed("p")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_counts_with_the_costs_outside_of_the_container_and_bounds_hold_for_many_at_once() {
    let daemon = Daemon::start_with(setup("node: { capacity: { memory_mib: 300, cores: 64 } }\n")).await;
    let clients = daemon.connect().await;
    let mut requested = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let mut clients = clients.clone();
        requested.spawn(async move { clients.runs.create_run(requests::managed("p")).await });
    }
    let (made, refused): (Vec<_>, Vec<_>) = requested.join_all().await.into_iter().partition(Result::is_ok);
    // Two runs of 128 MiB, and what they cost outside of their containers.
    assert_eq!((made.len(), refused.len()), (2, 48));
    for refused in refused {
        let refused = refused.unwrap_err();
        let [limit, wanted] = facts(&refused, ["limit", "wanted"]);
        assert_eq!(limit, "node.capacity.memory_mib");
        assert!(wanted.parse::<u64>().unwrap() > 128, "{wanted}");
    }
    let used = node(&daemon).await.used.unwrap();
    assert!(used.runs == 2 && used.memory_mib > 256 && used.cpu_millis == 1_000, "{used:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_throttle_of_creates_says_when_to_come_back() {
    let daemon = Daemon::start_with(setup("node: { creates_per_minute: 2 }\n")).await;
    assert_eq!(node(&daemon).await.creates_per_minute, 2);
    let began = Instant::now();
    for _ in 0..2 {
        daemon.run_on(requests::managed("p")).await;
    }
    if began.elapsed() > Duration::from_secs(25) {
        // A token has come back meanwhile.
        daemon.run_on(requests::managed("p")).await;
    }
    let refused = refused(&daemon).await;
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::ResourceExhausted, "OVERLOADED"));
    assert_eq!(facts(&refused, ["limit", "max"]), ["node.creates_per_minute", "2"].map(str::to_owned));
    let details = refused.get_error_details();
    let wait = details.retry_info().unwrap().retry_delay.unwrap();
    assert!(wait > Duration::ZERO && wait <= Duration::from_secs(30), "{wait:?}");
    // On record at once for the first, and then at most once a minute.
    for _ in 0..20 {
        // A token may come back meanwhile.
        let _ = daemon.run_with(requests::managed("p")).await;
    }
    let mut clients = daemon.connect().await;
    let events = clients.events_when("", "run_refused", |events| !events.is_empty()).await;
    let [event] = &events[..] else { panic!("{events:?}") };
    let event = record(event);
    assert_eq!(event["outcome"]["reason"], "OVERLOADED");
    let details = json!({ "tenant": "uid:0", "limit": "node.creates_per_minute", "max": 2, "count": 1 });
    assert_eq!(event["details"], details);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_greedy_principal_leaves_the_next_creates_to_others() {
    let access = format!(
        "access: [{{ uid: 0, roles: [operator, orchestrator, auditor] }}, {{ uid: {AUDITOR}, roles: [orchestrator] }}]\n"
    );
    let daemon = Daemon::start_with(setup(&format!("node: {{ creates_per_minute: 6 }}\n{access}"))).await;
    daemon.expose();
    // All of a minute, and what comes back meanwhile.
    let mut made = 0;
    while daemon.run_with(requests::managed("p")).await.is_ok() {
        made += 1;
        assert!(made < 60, "the throttle does not hold");
    }
    // As another principal, which has had none: refused for one interval at most, while the greedy one asks all the time.
    let socket = daemon.socket();
    let modest = as_user(AUDITOR, &socket, async move |mut clients| {
        let began = Instant::now();
        loop {
            match clients.runs.create_run(requests::managed("p")).await {
                Ok(_) => return began.elapsed(),
                Err(refused) => assert_eq!(reason(&refused), "OVERLOADED"),
            }
            assert!(began.elapsed() < PATIENCE, "no create of the other principal");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let (mut said, mut others) = (String::new(), 0);
    let greedy = async {
        while others < 60 {
            match daemon.run_with(requests::managed("p")).await.map(|_| ()) {
                Ok(()) => others += 1,
                Err(refused) if refused.message().contains("the next ones are for others") => {
                    said = refused.message().to_owned();
                }
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::select! {
        waited = modest => waited,
        () = greedy => panic!("the throttle does not hold"),
    };
    // An interval of ten seconds, and the launch of a run.
    assert!(waited < Duration::from_secs(20), "{waited:?}");
    assert!(said.contains("creates_per_minute"), "the greedy principal was not held back: {said:?}");
    assert!(others <= 1, "{others} creates of the greedy principal came before the first of the other");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_sees_the_node_whole_and_each_change_and_the_stop() {
    let mut daemon = Daemon::start_with(setup("")).await;
    let request = v1::WatchNodeRequest {};
    let mut watch = nodes(&daemon).await.watch_node(request).await.unwrap().into_inner();
    let first = watch.message().await.unwrap().unwrap().node.unwrap();
    assert_eq!(first, node(&daemon).await);
    let (began, mut seen) = (Instant::now(), 0);
    let mut until = async |what: &str, is_so: &dyn Fn(&Node) -> bool| {
        loop {
            let next = tokio::time::timeout(PATIENCE, watch.message()).await.expect(what);
            let next = next.unwrap().unwrap().node.unwrap();
            seen += 1;
            // The first of them may come at once after a slow start of this test.
            assert!(seen <= began.elapsed().as_secs() + 2, "more than one message a second");
            if is_so(&next) {
                return;
            }
        }
    };
    let mut run = daemon.run_on(requests::managed("p")).await;
    until("the run is not seen", &|node| node.used.is_some_and(|used| used.runs == 1)).await;
    drain(&daemon, "a new kernel", None).await;
    until("the drain is not seen", &|node| node.state() == State::Draining).await;
    run.stop().await;
    until("the end of the run is not seen", &|node| node.state() == State::Drained).await;
    daemon.stop().await;
    let ended = tokio::time::timeout(PATIENCE, watch.message()).await.expect("the stream goes on");
    assert!(ended.is_err() || ended.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_sees_the_node_and_only_operators_drain_it() {
    let config = format!(
        "access: [{{ uid: 0, roles: [operator, orchestrator, auditor] }}, {{ uid: {AUDITOR}, roles: [auditor, approver, orchestrator] }}]\n"
    );
    let daemon = Daemon::start_with(setup(&config)).await;
    daemon.expose();
    as_user(AUDITOR, &daemon.socket(), async move |clients| {
        let mut nodes = NodeServiceClient::new(clients.channel);
        let shown = nodes.get_node(v1::GetNodeRequest {}).await.unwrap().into_inner().node.unwrap();
        assert_eq!(shown.state(), State::Serving);
        let request = DrainNodeRequest { reason: "mischief".to_owned(), deadline: None };
        assert_eq!(reason(&nodes.drain_node(request).await.unwrap_err()), "PERMISSION_DENIED");
        let refused = nodes.undrain_node(v1::UndrainNodeRequest {}).await.unwrap_err();
        assert_eq!(reason(&refused), "PERMISSION_DENIED");
    })
    .await;
    let mut nodes = nodes(&daemon).await;
    for (why, deadline) in
        [("", None), ("a\nb", None), ("x", Some(0)), ("x", Some(-1)), ("x", Some(40 * 86_400))]
    {
        let request = DrainNodeRequest { reason: why.to_owned(), deadline: deadline.map(seconds) };
        let refused = nodes.drain_node(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{why:?} {deadline:?}");
    }
    assert_eq!(node(&daemon).await.state(), State::Serving);
    assert!(daemon.connect().await.events("", "node_drained").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_names_itself_in_ids_and_shows_its_labels_on_the_command_line() {
    let config = "node: { id: 7, labels: { zone: b, example.org/gpu: \"no\" } }\n";
    let daemon = Daemon::start_with(setup(config)).await;
    let mut run = daemon.run_on(requests::managed("p")).await;
    assert_eq!(NodeId::of_text(run.id()).map(NodeId::get), Some(7), "{}", run.id());
    let shown = cli::json(&daemon, &["node", "show"]).await;
    assert_eq!((&shown["nodeId"], &shown["state"]), (&json!(7), &json!("SERVING")), "{shown}");
    assert_eq!(shown["labels"], json!({ "zone": "b", "example.org/gpu": "no" }));
    let versions = &shown["versions"];
    assert_eq!((&versions["api"], versions["engine"].is_string()), (&json!("cofferdam.v1"), true));
    let table = cli::out(&daemon, &["node", "show"]).await;
    assert!(table.contains("zone=b") && table.contains("CAPACITY"), "{table}");

    let text = std::fs::read_to_string(daemon.config_path()).unwrap();
    std::fs::write(daemon.config_path(), text.replace("id: 7", "id: 8")).unwrap();
    let told = cli::json(&daemon, &["reload"]).await;
    assert_eq!(told["needsRestart"], json!(["node.id"]), "{told}");

    let line = cli::out(&daemon, &["node", "drain", "--reason", "a new kernel", "--deadline", "1h"]).await;
    assert!(
        line.starts_with("node 7 DRAINING: 1 run or companion") && line.contains("(a new kernel)"),
        "{line}"
    );
    run.stop().await;
    let line = cli::out(&daemon, &["node", "drain", "--reason", "a new kernel", "--wait"]).await;
    assert!(line.starts_with("node 7 DRAINED: 0 runs and companions"), "{line}");
    let line = cli::out(&daemon, &["node", "undrain"]).await;
    assert!(line.starts_with("node 7 SERVING: "), "{line}");
}
