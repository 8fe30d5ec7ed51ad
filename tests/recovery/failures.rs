//! Tests whose failure a failure is: what a program brings about is never put down to the infrastructure, and what the host, its engine
//! or the daemon did is, with the facts that show it. A handle never leads to another run.

use std::collections::HashMap;
use std::time::Duration;

use harness::v1::call_response::Status;
use harness::v1::run::State;
use harness::v1::{self, CreateRunRequest, Evidence, Fault};
use harness::{Daemon, RunHandle, calls, debian, reason, record, requests, until};
use tonic_types::StatusExt as _;

use crate::full_disk::on_a_small_disk;

/// The value of a fact; empty if there is none.
fn shown<'e>(evidence: &'e [Evidence], what: &str) -> &'e str {
    evidence.iter().find(|fact| fact.what == what).map_or("", |fact| &fact.value)
}

fn facts(status: &tonic::Status) -> HashMap<String, String> {
    status.get_details_error_info().unwrap().metadata
}

fn docker(arguments: &[&str]) {
    let output = harness::docker().args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Runs of this principal that were requested with this id.
async fn requested(clients: &harness::Clients, request_id: &str) -> Vec<v1::Run> {
    let request = v1::ListRunsRequest { request_id: request_id.to_owned(), ..Default::default() };
    clients.runs.clone().list_runs(request).await.unwrap().into_inner().runs
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_of_a_program_are_its_own_with_the_limit_that_it_reached() {
    let daemon = Daemon::start().await;
    let limits = v1::Limits { memory_bytes: 96 << 20, ..Default::default() };
    let request = CreateRunRequest { limits: Some(limits), image: debian(), ..requests::managed("harness") };
    let mut run = daemon.run_on(request).await;

    let done = run.call(calls::exec(&["tail", "/dev/zero"])).await.unwrap();
    let error = done.error.clone().unwrap();
    assert_eq!((error.reason.as_str(), error.fault()), ("MEMORY_LIMIT", Fault::Program), "{error:?}");
    assert!(!error.retry_safe, "it ran");
    assert!(shown(&error.evidence, "cgroup.oom_kills").parse::<u64>().unwrap() > 0, "{error:?}");
    // cgroup v1 does not count how often the limit was reached.
    let hits = error.evidence.iter().filter(|fact| fact.what == "cgroup.limit_hits");
    assert!(hits.clone().all(|fact| fact.value != "0"), "{error:?}");
    let facts_told = 2 + hits.count();
    assert_eq!(shown(&error.evidence, "limit.memory_bytes"), (96 << 20).to_string());
    let receipt = &record(run.clients.of_call(&done.call_id).await.last().unwrap())["outcome"];
    assert_eq!(receipt["facts"]["fault"], "PROGRAM", "{receipt}");
    assert_eq!(receipt["facts"]["evidence"].as_array().map(Vec::len), Some(facts_told), "{receipt}");

    let timeout = v1::ExecRequest {
        command: "sleep".to_owned(),
        args: vec!["60".to_owned()],
        timeout_ms: Some(300),
        ..Default::default()
    };
    let late = run.call(v1::operation::Kind::Exec(timeout)).await.unwrap().error.unwrap();
    assert_eq!((late.reason.as_str(), late.fault(), late.retry_safe), ("TIMED_OUT", Fault::Program, false));

    // A program that ends the worker beside it does not make its failure one of the host.
    let killed = run.fails(calls::shell("kill -9 $PPID; sleep 5")).await;
    assert_eq!((killed.reason.as_str(), killed.fault()), ("CANCELLED", Fault::Program), "{killed:?}");
    let refused = run.call(calls::read("../outside")).await.unwrap_err();
    let facts = facts(&refused);
    assert_eq!((facts["fault"].as_str(), facts["retry_safe"].as_str()), ("POLICY", "true"), "{refused}");
    assert_eq!(run.exec(&["true"]).await.exit_code, Some(0));
    let shown = run.show().await;
    assert_eq!(
        (shown.state(), shown.fault(), shown.failure_reason.as_str()),
        (State::Ready, Fault::Unspecified, "")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_killed_from_outside_is_a_lost_run_that_never_comes_back() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let request = CreateRunRequest { request_id: "once".to_owned(), ..requests::bind("open", &workspace) };
    let mut run = daemon.run_on(request.clone()).await;
    let working = run.works(&workspace).await;

    docker(&["kill", &run.run.container_id]);
    let call = working.await.unwrap().unwrap();
    let error = call.error.clone().unwrap();
    assert_eq!((error.reason.as_str(), error.fault()), ("RUN_LOST", Fault::Infrastructure), "{error:?}");
    assert!(!error.retry_safe, "the command ran");
    assert_eq!(shown(&error.evidence, "engine.exit_code"), "137");
    assert_eq!(shown(&error.evidence, "engine.oom_killed"), "false");
    let failed = run.ended().await;
    assert_eq!((failed.state(), failed.failure_reason.as_str()), (State::Failed, "RUN_LOST"));
    assert_eq!((failed.fault(), &failed.evidence), (Fault::Infrastructure, &error.evidence));
    assert!(failed.failure.contains("killed from outside"), "{}", failed.failure);

    // A later call has done nothing, and the handle and the request lead to no other run.
    let refused = run.call(calls::exec(&["true"])).await.unwrap_err();
    assert_eq!(reason(&refused), "RUN_LOST", "{refused}");
    let told = facts(&refused);
    assert_eq!((told["fault"].as_str(), told["retry_safe"].as_str()), ("INFRASTRUCTURE", "true"));
    assert_eq!(told["evidence.engine.exit_code"], "137");
    let again = run.clients.runs.create_run(request).await.unwrap().into_inner().run.unwrap();
    assert_eq!((again.run_id.as_str(), again.state()), (run.id(), State::Failed));
    until("its container is left", async || daemon.containers().is_empty()).await;

    let id = run.id().to_owned();
    let states = run.clients.events(&id, "run_state").await;
    let details = &record(states.last().unwrap())["details"];
    assert_eq!(
        (&details["failure_reason"], &details["fault"]),
        (&"RUN_LOST".into(), &"INFRASTRUCTURE".into())
    );
    let receipt = &record(run.clients.of_call(&call.call_id).await.last().unwrap())["outcome"];
    assert_eq!(receipt["facts"]["fault"], "INFRASTRUCTURE", "{receipt}");

    // Also for the next daemon.
    let mut daemon = daemon;
    daemon.relaunch().await;
    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    assert_eq!(run.show().await.fault(), Fault::Infrastructure);
    assert_eq!(run.get(&call.call_id).await.error, Some(error));
    assert_eq!(reason(&run.call(calls::exec(&["true"])).await.unwrap_err()), "RUN_LOST");
    assert_eq!(daemon.containers(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_paused_or_restarted_from_outside_is_put_down_to_the_infrastructure() {
    let daemon = Daemon::start().await;
    // The daemon may see the end before the start that follows it.
    let deeds: [(&[&str], _, &[&str]); 2] = [
        (&["pause"], "engine.state", &["paused"]),
        (&["restart", "-t", "0"], "engine.event", &["restart", "die"]),
    ];
    for (deed, what, values) in deeds {
        let workspace = daemon.workspace(deed[0], &[]);
        let mut run = daemon.run("open", &workspace).await;
        let working = run.works(&workspace).await;
        docker(&[deed, &[&run.run.container_id]].concat());
        let error = working.await.unwrap().unwrap().error.unwrap();
        assert_eq!((error.fault(), error.retry_safe), (Fault::Infrastructure, false), "{error:?}");
        assert!(values.contains(&shown(&error.evidence, what)), "{error:?}");
        let failed = run.ended().await;
        assert_eq!((failed.state(), failed.failure_reason.as_str()), (State::Failed, "RUN_LOST"));
        assert_eq!(failed.fault(), Fault::Infrastructure, "{}", failed.failure);
        assert!(values.contains(&shown(&failed.evidence, what)), "{failed:?}");
        assert!(failed.failure.contains("from outside"), "{}", failed.failure);
        assert!(!workspace.join("ended").exists());
    }
    until("a container is left", async || daemon.containers().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_stops_its_worker_is_not_taken_for_a_pause_from_outside() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let stopped = run.fails(calls::shell("kill -STOP $PPID; sleep 60")).await;
    assert_eq!((stopped.reason.as_str(), stopped.fault()), ("CANCELLED", Fault::Program), "{stopped:?}");
    assert_eq!(shown(&stopped.evidence, "engine.state"), "");
    assert_eq!(run.exec(&["true"]).await.exit_code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_end_is_seen_first_a_killed_container_is_put_down_to_the_infrastructure() {
    let daemon = Daemon::start().await;
    for round in 0..5 {
        let workspace = daemon.workspace(&format!("w{round}"), &[]);
        let mut run = daemon.run("open", &workspace).await;
        docker(&["kill", &run.run.container_id]);
        // Each comes at another moment of the end.
        for number in 0..20 {
            let is_lost = match run.call(calls::exec(&["true"])).await {
                Ok(call) => call.error.is_some_and(|error| error.fault() == Fault::Infrastructure),
                Err(refused) => facts(&refused)["fault"] == "INFRASTRUCTURE",
            };
            assert!(is_lost, "call {number} of round {round}");
        }
        assert_eq!(run.ended().await.fault(), Fault::Infrastructure);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_the_daemon_lost_is_put_down_to_it_and_not_safe_to_repeat() {
    let mut daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let run = daemon.run("open", &workspace).await;
    let working = run.works(&workspace).await;
    daemon.kill().await;
    assert!(working.await.unwrap().is_err());
    daemon.launch().await;
    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    let id = run.id().to_owned();
    let intents = run.clients.events(&id, "call_intent").await;
    let lost = run.get(&intents.last().unwrap().call_id).await;
    let error = lost.error.clone().unwrap();
    assert_eq!((lost.status(), error.reason.as_str()), (Status::Failed, "CANCELLED"));
    assert_eq!((error.fault(), error.retry_safe), (Fault::Infrastructure, false), "{error:?}");
    assert_eq!(run.show().await.state(), State::Ready, "the run itself goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_of_the_host_is_told_apart_from_a_used_up_quota() {
    let (daemon, small) = on_a_small_disk(64).await;
    let run = daemon.run_on(requests::managed("open")).await;
    small.leave(2 << 20);
    let mut told = None;
    until("the disk is not full", async || {
        match run.clone().call(calls::write("a.txt", "x")).await {
            Err(refused) => told = Some(refused),
            Ok(done) => assert_eq!(done.status(), Status::Succeeded, "{done:?}"),
        }
        told.is_some()
    })
    .await;
    let refused = told.unwrap();
    let told = facts(&refused);
    assert_eq!(told["fault"], "INFRASTRUCTURE", "{refused}");
    // The log may lack its space before the run does.
    if reason(&refused) != "AUDIT_UNAVAILABLE" {
        assert_eq!(
            (reason(&refused).as_str(), told["retry_safe"].as_str()),
            ("WRITE_LIMIT", "true"),
            "{refused}"
        );
        assert_eq!(told["evidence.disk.state"], "full", "{told:?}");
    }
    small.free();
    until("the disk stays full", async || {
        run.clone()
            .call(calls::write("a.txt", "x"))
            .await
            .is_ok_and(|done| done.status() == Status::Succeeded)
    })
    .await;

    let daemon = Daemon::start().await;
    let limits = v1::Limits { disk_bytes: 8 << 20, ..Default::default() };
    let mut run = daemon.run_on(CreateRunRequest { limits: Some(limits), ..requests::managed("open") }).await;
    // The kernel or the watch ends it.
    let _ = run.call(calls::shell("head -c 64000000 /dev/zero > large")).await;
    let mut told = None;
    until("the quota is not used up", async || {
        // The kernel fails the write itself, where it holds the quota.
        told = match run.clone().call(calls::write("a.txt", &"x".repeat(500_000))).await {
            Err(refused) => Some((reason(&refused), facts(&refused)["fault"] == "POLICY")),
            Ok(done) => done.error.map(|error| (error.reason.clone(), error.fault() == Fault::Policy)),
        };
        told.is_some()
    })
    .await;
    assert_eq!(told, Some(("WRITE_LIMIT".to_owned(), true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_was_cut_off_is_found_by_its_request_and_is_one_run() {
    let mut daemon = Daemon::start().await;
    let request = |id: &str| CreateRunRequest { request_id: id.to_owned(), ..requests::managed("open") };

    // The connection is gone before the answer.
    let clients = daemon.connect().await;
    let mut runs = clients.runs.clone();
    let cut = tokio::time::timeout(Duration::from_millis(50), runs.create_run(request("cut"))).await;
    drop((runs, clients));
    let clients = daemon.connect().await;
    if cut.is_err() {
        until("the run is not READY", async || {
            requested(&clients, "cut").await.iter().any(|run| run.state() == State::Ready)
        })
        .await;
    }
    let found = requested(&clients, "cut").await;
    assert_eq!(found.len(), 1);
    assert_eq!(daemon.run_on(request("cut")).await.id(), found[0].run_id);
    assert_eq!(requested(&clients, "another").await, []);
    let too_long = v1::ListRunsRequest { request_id: "x".repeat(129), ..Default::default() };
    let refused = clients.runs.clone().list_runs(too_long).await.unwrap_err();
    assert_eq!(reason(&refused), "INVALID_ARGUMENT");

    // The daemon is killed after it was READY, and while it is made.
    daemon.relaunch().await;
    let clients = daemon.connect().await;
    assert_eq!(requested(&clients, "cut").await[0].run_id, found[0].run_id);
    let mut runs = clients.runs.clone();
    let making = tokio::spawn(async move { runs.create_run(request("killed")).await.map(drop) });
    until("the run is not begun", async || !requested(&clients, "killed").await.is_empty()).await;
    daemon.kill().await;
    let answered = making.await.unwrap().is_ok();
    daemon.launch().await;
    let clients = daemon.connect().await;
    let before = requested(&clients, "killed").await;
    assert!(before.len() <= 1 && (!answered || before.len() == 1), "{before:?}");
    let run = daemon.run_on(request("killed")).await;
    assert!(before.iter().all(|before| before.run_id == run.id()), "{before:?}");
    let found = requested(&clients, "killed").await;
    assert_eq!(found.iter().map(|run| run.run_id.as_str()).collect::<Vec<_>>(), [run.id()]);
    assert_eq!(daemon.containers().len(), 2);

    // The ids of a request are its principal's.
    daemon.expose();
    let found = harness::as_user(4321, &daemon.socket(), async |clients| {
        let request = v1::ListRunsRequest { request_id: "killed".to_owned(), ..Default::default() };
        clients.runs.clone().list_runs(request).await.map(|found| found.into_inner().runs.len())
    })
    .await;
    assert!(!matches!(found, Ok(1..)), "{found:?}");
}
