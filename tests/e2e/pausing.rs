//! Paused runs: their commands stand still, they take no calls, and they go on where they were.

use harness::v1::{self, call_response::Status, run::State, run_hold::Kind};
use harness::{Daemon, RunHandle, calls, reason, record};

use crate::ticks::{QUIET, counted, counts_beyond};

/// A command that writes a byte again and again until `stop` appears.
fn ticks(run: &RunHandle) -> tokio::task::JoinHandle<Result<v1::CallResponse, tonic::Status>> {
    run.waits(calls::exec(&[
        "sh",
        "-c",
        "while [ ! -e stop ]; do printf x >> ticks; sleep 0.01; done; echo done",
    ]))
}

async fn pause(run: &mut RunHandle) -> v1::Run {
    let request = v1::PauseRunRequest { run_id: run.id().to_owned() };
    run.clients.runs.pause_run(request).await.unwrap().into_inner().run.unwrap()
}

async fn resume(run: &mut RunHandle) -> v1::Run {
    let request = v1::ResumeRunRequest { run_id: run.id().to_owned(), lift_alerts: false };
    run.clients.runs.resume_run(request).await.unwrap().into_inner().run.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_run_is_frozen_and_continues_after_resuming() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("open", &workspace).await;
    let mut watch = run
        .clients
        .runs
        .watch_runs(v1::WatchRunsRequest { run_id: run.id().to_owned() })
        .await
        .unwrap()
        .into_inner();
    let counting = ticks(&run);
    counts_beyond(&workspace, 3).await;

    let paused = pause(&mut run).await;
    assert_eq!(paused.state(), State::Paused);
    let [hold] = &paused.holds[..] else { panic!("{:?}", paused.holds) };
    assert_eq!((hold.kind(), hold.principal.as_str()), (Kind::Operator, "uid:0"));
    assert_eq!(pause(&mut run).await.holds.len(), 1, "once more changes nothing");
    let before = counted(&workspace);
    tokio::time::sleep(QUIET).await;
    assert_eq!(counted(&workspace), before, "a paused command went on");
    for call in [calls::read("a.txt"), calls::exec(&["true"]), calls::write("b.txt", "x")] {
        let refused = run.call(call).await.unwrap_err();
        assert_eq!(reason(&refused), "RUN_NOT_READY");
        assert!(refused.message().contains("PAUSED"), "{}", refused.message());
    }
    assert!(!workspace.join("b.txt").exists());

    assert_eq!(resume(&mut run).await.state(), State::Ready);
    counts_beyond(&workspace, before).await;
    std::fs::write(workspace.join("stop"), "").unwrap();
    let over = counting.await.unwrap().unwrap();
    assert_eq!(over.status(), Status::Succeeded, "{:?}", over.error);
    assert_eq!(run.exec(&["cat", "a.txt"]).await.stdout, "one\n");
    assert_eq!(resume(&mut run).await.state(), State::Ready, "what is not paused is no error");

    let id = run.id().to_owned();
    let states: Vec<_> = run
        .clients
        .events(&id, "run_state")
        .await
        .iter()
        .map(|event| record(event)["details"]["state"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(states, ["READY", "PAUSED", "READY"]);
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.push(watch.message().await.unwrap().unwrap().run.unwrap().state());
    }
    assert_eq!(seen, [State::Ready, State::Paused, State::Ready]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_in_a_paused_run_can_be_cancelled_and_the_others_stay() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("open", &workspace).await;
    let working = run.works(&workspace).await;
    let counting = ticks(&run);
    counts_beyond(&workspace, 3).await;
    pause(&mut run).await;
    let before = counted(&workspace);

    let id = run.id().to_owned();
    let of_working = run.clients.events(&id, "call_intent").await[0].call_id.clone();
    let cancel = v1::CancelCallRequest { call_id: of_working };
    run.clients.tools.cancel_call(cancel).await.unwrap();
    let cancelled = working.await.unwrap().unwrap();
    assert_eq!(cancelled.error.as_ref().unwrap().reason, "CANCELLED");
    let Some(v1::result::Kind::Exec(exec)) = cancelled.kind().cloned() else { panic!("no result") };
    let kill = exec.kill.unwrap();
    assert!(kill.ended > 0 && kill.left == 0, "{kill:?}");
    tokio::time::sleep(QUIET).await;
    assert_eq!(counted(&workspace), before, "another command went on meanwhile");
    assert_eq!(run.show().await.state(), State::Paused);

    resume(&mut run).await;
    counts_beyond(&workspace, before).await;
    std::fs::write(workspace.join("stop"), "").unwrap();
    assert_eq!(counting.await.unwrap().unwrap().status(), Status::Succeeded);
    assert!(!workspace.join("ended").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn timeout_ends_a_frozen_command() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("open", &workspace).await;
    let exec = v1::ExecRequest {
        command: "sh".to_owned(),
        args: ["-c", "printf x > ticks; sleep 60; echo > ended"].map(str::to_owned).to_vec(),
        timeout_ms: Some(5_000),
        ..Default::default()
    };
    let working = run.waits(v1::operation::Kind::Exec(exec));
    counts_beyond(&workspace, 0).await;
    pause(&mut run).await;
    let over = working.await.unwrap().unwrap();
    let Some(v1::result::Kind::Exec(exec)) = over.clone().into_kind() else { panic!("{over:?}") };
    assert!(exec.timed_out);
    assert_eq!(exec.kill.unwrap().left, 0);
    assert_eq!(resume(&mut run).await.state(), State::Ready);
    assert_eq!(run.exec(&["echo", "on"]).await.stdout, "on\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_run_that_is_stopped_leaves_nothing() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("open", &workspace).await;
    let counting = ticks(&run);
    counts_beyond(&workspace, 3).await;
    pause(&mut run).await;
    let before = counted(&workspace);
    run.stop().await;
    assert_eq!(run.show().await.state(), State::Stopped);
    assert!(run.show().await.holds.is_empty());
    drop(counting);
    assert_eq!(counted(&workspace), before, "it ran on before it ended");
    assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
    let refused =
        run.clients.runs.pause_run(v1::PauseRunRequest { run_id: run.id().to_owned() }).await.unwrap_err();
    assert_eq!(reason(&refused), "RUN_NOT_READY");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reviewers_answer_waits_until_the_run_resumes() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("review", &workspace).await;
    let waiting = run.waits(calls::write("a.txt", "two\n"));
    let id = run.id().to_owned();
    let approval = run.clients.pending_approval(&id).await;
    pause(&mut run).await;
    run.clients.approve(&approval.approval_id).await.unwrap();
    tokio::time::sleep(QUIET).await;
    assert_eq!(std::fs::read_to_string(workspace.join("a.txt")).unwrap(), "one\n");
    resume(&mut run).await;
    let written = waiting.await.unwrap().unwrap();
    assert_eq!(written.status(), Status::Succeeded, "{:?}", written.error);
    assert_eq!(std::fs::read_to_string(workspace.join("a.txt")).unwrap(), "two\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_ends_with_its_run_has_failed() {
    let daemon = Daemon::start().await;
    for paused in [false, true] {
        let workspace = daemon.workspace(if paused { "paused" } else { "ready" }, &[]);
        let mut run = daemon.run("open", &workspace).await;
        let counting = ticks(&run);
        counts_beyond(&workspace, 3).await;
        if paused {
            pause(&mut run).await;
        }
        let request = v1::StopRunRequest { run_id: run.id().to_owned() };
        run.clients.runs.stop_run(request).await.unwrap();
        let done = counting.await.unwrap().unwrap();
        let reason = done.error.as_ref().map(|error| error.reason.as_str());
        assert_eq!((done.status(), reason), (Status::Failed, Some("CANCELLED")), "{paused}: {done:?}");
        let receipt = record(run.clients.of_call(&done.call_id).await.last().unwrap());
        let outcome = &receipt["outcome"];
        assert_eq!(
            (&outcome["status"], &outcome["reason"]),
            (&"failed".into(), &"CANCELLED".into()),
            "{paused}: {outcome}"
        );
    }
}
