//! Tests the number of calls at once: real commands in a real container, and slots that are returned however a call ends.

use std::time::Duration;

use harness::v1::call_response::Status;
use harness::v1::{self, CallRequest, CallResponse};
use harness::{Daemon, RunHandle, Setup, calls, reason, requests};
use tokio::task::JoinHandle;
use tonic::Code;
use tonic_types::StatusExt as _;

/// Says when it began and when it ends, in the order in which that is.
const COUNTED: &str = "echo + >> log; sleep 0.2; echo - >> log";

fn setup(concurrency: &str, config: &str) -> Setup {
    let profile = format!(
        "profiles:
  p:
    workspace: read-write
    unattended: true
    operations: {{ read: allow, list: allow, shell: allow, exec: allow, write: ask }}
    exec: {{ read_only_commands: true, default: allow }}
    rate_limits:
      operations: {{ default: {{ minute: unlimited, hour: unlimited, day: unlimited }} }}
      run: {{ minute: unlimited, hour: unlimited, day: unlimited }}
      principal: {{ minute: unlimited, hour: unlimited, day: unlimited }}
    concurrency: {concurrency}
    approvals: {{ freeze: false }}
roles: {{ director: {{ allow: \"*\" }} }}
"
    );
    Setup { policy: vec![("p.yaml", profile)], config: config.to_owned(), ..Default::default() }
}

async fn at_once(run: &mut RunHandle) -> Vec<(String, [u32; 4])> {
    let request = v1::GetRateLimitsRequest { run_id: run.id().to_owned(), ..Default::default() };
    let shown = run.clients.limits.get_rate_limits(request).await.unwrap().into_inner();
    let caps = shown.concurrency.into_iter();
    caps.map(|cap| (cap.scope, [cap.running, cap.limit, cap.waiting, cap.max_waiting])).collect()
}

/// Calls of the run that run, and that wait.
async fn of_run(run: &mut RunHandle) -> (u32, u32) {
    let (scope, [running, _, waiting, _]) = at_once(run).await.remove(0);
    assert_eq!(scope, "run");
    (running, waiting)
}

/// Until so many run and so many wait.
async fn until(run: &mut RunHandle, expected: (u32, u32)) {
    let reached = async {
        while of_run(run).await != expected {
            // There is no event for it: it is what an operator would do.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(60), reached).await.is_ok();
    assert!(in_time, "{:?} run and wait, not {expected:?}", of_run(run).await);
}

fn begin(run: &RunHandle, request: CallRequest) -> JoinHandle<Result<CallResponse, tonic::Status>> {
    let mut run = run.clone();
    tokio::spawn(async move { run.call_with(request).await })
}

/// A command that takes longer than any test.
fn sleeping(request_id: &str) -> CallRequest {
    let exec = v1::ExecRequest {
        command: "sleep".to_owned(),
        args: vec!["110".to_owned()],
        timeout_ms: Some(120_000),
        ..Default::default()
    };
    let request = Some(v1::operation::Kind::Exec(exec).into());
    CallRequest { request, request_id: request_id.to_owned(), ..Default::default() }
}

async fn cancel(run: &mut RunHandle, request_id: &str) {
    // The same request again tells the call's id.
    let mut again = run.clone();
    let request = CallRequest { run_id: run.id().to_owned(), ..sleeping(request_id) };
    let mut calls = again.clients.tools.call_stream(request).await.unwrap().into_inner();
    let begun = calls.message().await.unwrap().unwrap();
    let Some(v1::call_stream_response::Event::Accepted(begun)) = begun.event else { panic!("{begun:?}") };
    let request = v1::CancelCallRequest { call_id: begun.call_id };
    run.clients.tools.cancel_call(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_commands_at_once_are_never_one_more_than_the_run_may_have_and_all_get_their_turn() {
    let daemon = Daemon::start_with(setup("{ run: 3, principal: 9, waiting: 64, wait_s: 120 }", "")).await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("p", &workspace).await;
    let caps = at_once(&mut run).await;
    assert_eq!(
        caps,
        [
            ("run".to_owned(), [0, 3, 0, 64]),
            ("principal".to_owned(), [0, 9, 0, 9]),
            ("daemon".to_owned(), [0, 512, 0, 2_048])
        ]
    );
    // Of the principal nine may wait: the others come again.
    let commands: Vec<_> = (0..64)
        .map(|_| {
            let mut run = run.clone();
            tokio::spawn(async move {
                while let Err(status) = run.call(calls::shell(COUNTED)).await {
                    assert_eq!(reason(&status), "OVERLOADED");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            })
        })
        .collect();
    for command in commands {
        command.await.unwrap();
    }
    let log = std::fs::read_to_string(workspace.join("log")).unwrap();
    let (mut running, mut most) = (0, 0);
    for line in log.lines() {
        running += if line == "+" { 1 } else { -1 };
        most = most.max(running);
    }
    assert_eq!(
        (log.lines().count(), running, most),
        (128, 0, 3),
        "as many as may run did, and never one more"
    );
    until(&mut run, (0, 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn call_without_a_slot_is_refused_with_retry_time() {
    let nobody_waits = setup("{ run: 2, principal: 3, waiting: 9, wait_s: 0 }", "limits: { calls: 4 }\n");
    let daemon = Daemon::start_with(nobody_waits).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("p", &workspace).await;
    let mut other = daemon.run_on(requests::managed("p")).await;
    let held = [begin(&run, sleeping("a")), begin(&run, sleeping("b"))];
    until(&mut run, (2, 0)).await;

    let refused = run.call(calls::read("a.txt")).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::ResourceExhausted, "OVERLOADED"));
    let details = refused.get_error_details();
    let delay = details.retry_info().unwrap().retry_delay.unwrap();
    assert!(delay >= Duration::from_millis(100) && delay <= Duration::from_secs(60), "{delay:?}");
    let metadata = &details.error_info().unwrap().metadata;
    assert_eq!(metadata["rule"], "profile p: concurrency.run");
    assert_eq!(metadata["retry_after_is"], "estimated");
    assert!(refused.message().contains("2 calls of this run run already"), "{}", refused.message());

    // In an agent's dialect it is an answer that a model can read.
    let dialect = v1::DialectCall {
        dialect: "native".to_owned(),
        name: "read_file".to_owned(),
        arguments_json: r#"{"path": "a.txt"}"#.to_owned(),
    };
    let told = run.call(dialect).await.unwrap();
    assert_eq!(told.status(), Status::Denied);
    assert!(told.rendered.contains("fewer calls at the same time"), "{}", told.rendered);

    // Another run of the principal has one place.
    let third = begin(&other, sleeping("c"));
    until(&mut other, (1, 0)).await;
    let refused = other.call(calls::list(".")).await.unwrap_err();
    let metadata = refused.get_error_details().error_info().unwrap().metadata.clone();
    assert_eq!(metadata["rule"], "profile p: concurrency.principal");

    // Both records of each, refused ones included.
    let id = run.id().to_owned();
    let receipts = run.clients.events(&id, "call_receipt").await;
    assert_eq!(receipts.len(), 2, "those that were refused");
    for call in ["a", "b"] {
        cancel(&mut run, call).await;
    }
    for call in held {
        let _ = call.await.unwrap();
    }
    run.ok(calls::read("a.txt")).await;
    third.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_is_returned_however_its_call_ends() {
    let daemon = Daemon::start_with(setup("{ run: 2, principal: 99, waiting: 9, wait_s: 300 }", "")).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("p", &workspace).await;
    for round in 0..3 {
        let name = |call: &str| format!("{call}{round}");
        let running = [begin(&run, sleeping(&name("a"))), begin(&run, sleeping(&name("b")))];
        until(&mut run, (2, 0)).await;
        // One waits and is cancelled, one waits until its client leaves.
        let cancelled = begin(&run, sleeping(&name("c")));
        until(&mut run, (2, 1)).await;
        cancel(&mut run, &name("c")).await;
        assert_eq!(reason(&cancelled.await.unwrap().unwrap_err()), "CANCELLED");
        let lost = CallRequest { cancel_on_disconnect: true, ..sleeping(&name("d")) };
        let lost = begin(&run, lost);
        until(&mut run, (2, 1)).await;
        lost.abort();
        until(&mut run, (2, 0)).await;

        // Those that run: one is cancelled, the other one's time is over.
        cancel(&mut run, &name("a")).await;
        let mut running = running.into_iter();
        let _ = running.next().unwrap().await.unwrap();
        until(&mut run, (1, 0)).await;
        let brief = CallRequest { timeout: Some(wire::duration(Duration::from_millis(200))), ..sleeping("") };
        let _ = begin(&run, brief).await.unwrap();
        cancel(&mut run, &name("b")).await;
        let _ = running.next().unwrap().await.unwrap();
        until(&mut run, (0, 0)).await;
    }
    assert_eq!(at_once(&mut run).await[2].1, [0, 512, 0, 2_048], "none is left of the daemon's");
    run.ok(calls::read("a.txt")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_and_paused_calls_hold_no_slot() {
    let daemon = Daemon::start_with(setup("{ run: 1, principal: 1, waiting: 9, wait_s: 60 }", "")).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("p", &workspace).await;
    let mut other = daemon.run_on(requests::managed("p")).await;
    let asked = run.asks(calls::write("b.txt", "x")).await;
    assert_eq!(of_run(&mut run).await, (0, 0));
    other.ok(calls::list(".")).await;

    // Its turn comes when the one that runs is over, and it is executed then.
    let working = begin(&run, sleeping("a"));
    until(&mut run, (1, 0)).await;
    run.clients.approve(&asked.approval_id).await.unwrap();
    until(&mut run, (1, 1)).await;
    assert!(!workspace.join("b.txt").exists());
    cancel(&mut run, "a").await;
    let _ = working.await.unwrap();
    assert_eq!(run.outcome(&asked.call_id).await.status(), Status::Succeeded);
    assert_eq!(std::fs::read_to_string(workspace.join("b.txt")).unwrap(), "x");

    // One of a run that is paused has been let through before: it gives way.
    let working = begin(&other, sleeping("b"));
    until(&mut other, (1, 0)).await;
    let waiting = begin(&run, CallRequest { request: Some(calls::list(".").into()), ..Default::default() });
    until(&mut run, (0, 1)).await;
    let pause = v1::PauseRunRequest { run_id: run.id().to_owned() };
    run.clients.runs.pause_run(pause).await.unwrap();
    cancel(&mut other, "b").await;
    let _ = working.await.unwrap();
    other.ok(calls::list(".")).await;
    let resume = v1::ResumeRunRequest { run_id: run.id().to_owned(), ..Default::default() };
    run.clients.runs.resume_run(resume).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().status(), Status::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn call_is_refused_after_the_longest_wait() {
    let daemon = Daemon::start_with(setup("{ run: 1, principal: 9, waiting: 1, wait_s: 1 }", "")).await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("p", &workspace).await;
    let _held = begin(&run, sleeping("a"));
    until(&mut run, (1, 0)).await;
    let late = run.call(calls::list(".")).await.unwrap_err();
    assert_eq!(reason(&late), "OVERLOADED");
    assert_eq!(late.get_error_details().error_info().unwrap().metadata["waited_s"], "1");
    assert_eq!(of_run(&mut run).await, (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_one_file_at_once_are_all_made() {
    let daemon = Daemon::start().await;
    let lines = |word: &str| (0..36).map(|n| format!("{word} {n:02}\n")).collect::<Vec<_>>().concat();
    let workspace = daemon.workspace("w", &[("f", lines("old").as_str())]);
    let run = daemon.run("build", &workspace).await;
    let changes: Vec<_> = (0..36)
        .map(|n| {
            let (old, new) = (format!("old {n:02}"), format!("new {n:02}"));
            let envelope = format!("*** Begin Patch\n*** Update File: f\n-{old}\n+{new}\n*** End Patch\n");
            let change = if n % 2 == 0 { calls::replace("f", &old, &new) } else { calls::patch(&envelope) };
            let mut run = run.clone();
            tokio::spawn(async move { run.call(change).await })
        })
        .collect();
    for change in changes {
        let response = change.await.unwrap().unwrap();
        assert_eq!(response.status(), Status::Succeeded, "{response:?}");
    }
    assert_eq!(std::fs::read_to_string(workspace.join("f")).unwrap(), lines("new"));
}
