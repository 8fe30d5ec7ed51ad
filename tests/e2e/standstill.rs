//! Tests runs that are frozen while a reviewer decides on a call: the state stays as it was shown.

use std::path::Path;
use std::time::Duration;

use harness::v1::call_response::Status;
use harness::v1::decide_approval_request::Decision;
use harness::v1::run::State;
use harness::v1::run_hold::Kind;
use harness::{Daemon, RunHandle, Setup, calls, pending, reason, record, v1};

use crate::ticks::{QUIET, counted, counts_beyond};

/// Commands run, but `sh job.sh` asks, and so does what writes. `more` goes to the profile.
fn setup(approvals: &str) -> Setup {
    let profile = format!(
        "profiles:\n  p:\n    workspace: read-write\n    operations: {{read: allow, write: ask, edit: ask, exec: allow, shell: ask, delete: ask}}\n    exec:\n      default: allow\n      rules: [{{prefix: [sh, job.sh], decision: ask, justification: It is a script., match: [sh job.sh]}}]\n    approvals: {approvals}\n    rate_limits:\n      operations: {{default: {{minute: unlimited, hour: unlimited, day: unlimited}}}}\n      run: {{minute: unlimited, hour: unlimited, day: unlimited}}\n      principal: {{minute: unlimited, hour: unlimited, day: unlimited}}\n"
    );
    let roles = "roles: {director: {allow: '*'}}\n".to_owned();
    Setup { policy: vec![("profile.yaml", profile), ("roles.yaml", roles)], ..Default::default() }
}

/// A command that does `what` and writes a byte, again and again, until `stop` appears.
async fn repeats(
    run: &RunHandle,
    workspace: &Path,
    what: &str,
) -> tokio::task::JoinHandle<Result<v1::CallResponse, tonic::Status>> {
    let script = format!("while [ ! -e stop ]; do {what}; printf x >> ticks; done; echo done");
    let repeating = run.waits(calls::exec(&["sh", "-c", &script]));
    counts_beyond(workspace, 3).await;
    repeating
}

async fn stops(
    workspace: &Path,
    repeating: tokio::task::JoinHandle<Result<v1::CallResponse, tonic::Status>>,
) {
    std::fs::write(workspace.join("stop"), "").unwrap();
    let over = repeating.await.unwrap().unwrap();
    assert_eq!(over.status(), Status::Succeeded, "{:?}", over.error);
}

/// Nothing holds the run any more.
async fn goes_on(run: &mut RunHandle) {
    let request = v1::WatchRunsRequest { run_id: run.id().to_owned() };
    let mut changes = run.clients.runs.watch_runs(request).await.unwrap().into_inner();
    let ready =
        async { while changes.message().await.unwrap().unwrap().run.unwrap().state() != State::Ready {} };
    tokio::time::timeout(Duration::from_secs(60), ready).await.expect("the run stands still");
}

#[tokio::test(flavor = "multi_thread")]
async fn approved_write_applies_to_the_previewed_file_under_changes() {
    let daemon = Daemon::start_with(setup("{freeze: true}")).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("p", &workspace).await;
    let swapping =
        repeats(&run, &workspace, "echo one > new && mv new a.txt && echo two > new && mv new a.txt").await;
    for round in 0..3 {
        let waiting = run.waits(calls::write("a.txt", &format!("round {round}\n")));
        let approval = pending(&mut run).await;
        assert!(approval.freezes_run);
        let shown = std::fs::read(workspace.join("a.txt")).unwrap();
        let before = counted(&workspace);
        let paused = run.show().await;
        assert_eq!(paused.state(), State::Paused);
        let [hold] = &paused.holds[..] else { panic!("{:?}", paused.holds) };
        assert_eq!((hold.kind(), &hold.cause_id), (Kind::Approval, &approval.approval_id));
        let request = v1::CallRequest {
            request: Some(calls::exec(&["true"]).into()),
            refuse_awaiting_approval: true,
            ..Default::default()
        };
        let refused = run.call_with(request).await.unwrap_err();
        assert_eq!(reason(&refused), "AWAITING_APPROVAL");
        assert!(refused.message().contains(&approval.approval_id), "{}", refused.message());
        let read = run.call(calls::read("a.txt")).await.unwrap();
        assert_eq!(read.status(), Status::Succeeded, "what only looks is done: {:?}", read.error);
        tokio::time::sleep(QUIET).await;
        assert_eq!(counted(&workspace), before, "a process went on under the reviewer");
        assert_eq!(std::fs::read(workspace.join("a.txt")).unwrap(), shown);
        let gone = format!("-{}", String::from_utf8(shown).unwrap());
        assert!(approval.preview.contains(&gone), "{}", approval.preview);

        run.clients.approve(&approval.approval_id).await.unwrap();
        let written = waiting.await.unwrap().unwrap();
        assert_eq!(written.status(), Status::Succeeded, "{:?}", written.error);
        assert_eq!(run.show().await.state(), State::Ready, "it goes on before the answer");
        counts_beyond(&workspace, before).await;
    }
    stops(&workspace, swapping).await;
    assert!(!workspace.join("b.txt").exists());
    let states: Vec<_> = run
        .clients
        .events(&run.run.run_id.clone(), "run_state")
        .await
        .iter()
        .map(|event| record(event)["details"].clone())
        .collect();
    assert_eq!(states.iter().filter(|state| state["state"] == "PAUSED").count(), 3);
    assert_eq!(states[1]["holds"][0]["kind"], "APPROVAL", "{}", states[1]);
    assert!(run.clients.verify().await.intact);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_continues_after_an_approved_command_which_runs_only_on_unchanged_files() {
    let daemon = Daemon::start_with(setup("{freeze: true}")).await;
    let workspace = daemon.workspace("w", &[("job.sh", "echo harmless\n")]);
    let mut run = daemon.run("p", &workspace).await;
    let counting = repeats(&run, &workspace, "sleep 0.01").await;

    let waiting = run.waits(calls::exec(&["sh", "job.sh"]));
    let approval = pending(&mut run).await;
    let before = counted(&workspace);
    run.clients.approve(&approval.approval_id).await.unwrap();
    let done = waiting.await.unwrap().unwrap();
    let Some(v1::result::Kind::Exec(exec)) = done.kind().cloned() else { panic!("{:?}", done.error) };
    assert_eq!(exec.stdout, "harmless\n");
    counts_beyond(&workspace, before).await;

    // Nobody is frozen on the host.
    let waiting = run.waits(calls::exec(&["sh", "job.sh"]));
    let approval = pending(&mut run).await;
    std::fs::write(workspace.join("job.sh"), "echo harmful\n").unwrap();
    run.clients.approve(&approval.approval_id).await.unwrap();
    assert_eq!(reason(&waiting.await.unwrap().unwrap_err()), "PRECONDITION_FAILED");
    assert_eq!(run.show().await.state(), State::Ready);
    stops(&workspace, counting).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_continues_however_its_approval_ends() {
    // Another profile, whose reviewers have next to no time.
    let mut setup = setup("{freeze: true}");
    let hasty = setup.policy[0].1.replace("  p:\n", "  hasty:\n");
    let hasty = hasty.replace("{freeze: true}", "{freeze: true, timeout_s: 2}");
    setup.policy.push(("hasty.yaml", hasty));
    let daemon = Daemon::start_with(setup).await;

    let workspace = daemon.workspace("hasty", &[("a.txt", "one\n")]);
    let mut run = daemon.run("hasty", &workspace).await;
    let counting = repeats(&run, &workspace, "sleep 0.01").await;
    let asked = run.asks(calls::write("a.txt", "two\n")).await;
    assert_eq!(run.outcome(&asked.call_id).await.error.unwrap().reason, "APPROVAL_EXPIRED");
    goes_on(&mut run).await;
    let before = counted(&workspace);
    counts_beyond(&workspace, before).await;
    assert_eq!(std::fs::read_to_string(workspace.join("a.txt")).unwrap(), "one\n");
    stops(&workspace, counting).await;

    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("p", &workspace).await;
    let counting = repeats(&run, &workspace, "sleep 0.01").await;
    let refused = run.call(calls::replace("a.txt", "no such text", "x")).await.unwrap_err();
    assert!(refused.message().contains("no reviewer was asked"), "{}", refused.message());
    assert_eq!(run.show().await.state(), State::Ready);

    let asked = run.asks(calls::write("a.txt", "two\n")).await;
    run.clients.decide(&asked.approval_id, Decision::Deny).await.unwrap();
    assert_eq!(run.outcome(&asked.call_id).await.error.unwrap().reason, "APPROVAL_DENIED");
    assert_eq!(run.show().await.state(), State::Ready, "it goes on before the outcome is known");

    let asked = run.asks(calls::write("a.txt", "two\n")).await;
    let cancel = v1::CancelCallRequest { call_id: asked.call_id.clone() };
    run.clients.tools.cancel_call(cancel).await.unwrap();
    assert_eq!(run.outcome(&asked.call_id).await.error.unwrap().reason, "CANCELLED");
    assert_eq!(run.show().await.state(), State::Ready);

    let before = counted(&workspace);
    counts_beyond(&workspace, before).await;
    assert_eq!(std::fs::read_to_string(workspace.join("a.txt")).unwrap(), "one\n");
    let asked = run.asks(calls::write("a.txt", "two\n")).await;
    assert_eq!(run.stop().await.state(), State::Stopped);
    assert_eq!(run.outcome(&asked.call_id).await.error.unwrap().reason, "CANCELLED");
    assert!(run.show().await.holds.is_empty());
    drop(counting);
}

/// Calls that come at the same moment may all get as far as their reviewers. Each holds the run.
#[tokio::test(flavor = "multi_thread")]
async fn run_is_frozen_until_its_last_approval_is_settled() {
    const CALLS: usize = 12;
    let daemon = Daemon::start_with(setup("{freeze: true}")).await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("p", &workspace).await;
    let (mut most, mut round) = (0, 0);
    while most < 2 {
        round += 1;
        let name = |number: usize| format!("{round}-{number}.txt");
        let made = (0..CALLS).map(|number| {
            let mut run = run.clone();
            let write = calls::write(&name(number), "x\n");
            tokio::spawn(async move { (number, run.call(write).await) })
        });
        let mut waiting = Vec::new();
        for made in made.collect::<Vec<_>>() {
            match made.await.unwrap() {
                (number, Ok(call)) => {
                    assert_eq!(call.status(), Status::PendingApproval, "{call:?}");
                    waiting.push((number, call));
                }
                (_, Err(refused)) => assert_eq!(reason(&refused), "RUN_NOT_READY"),
            }
        }
        let shown = run.show().await;
        let mut held: Vec<_> = shown.holds.iter().map(|hold| hold.cause_id.clone()).collect();
        let mut asked: Vec<_> = waiting.iter().map(|(_, call)| call.approval_id.clone()).collect();
        held.sort();
        asked.sort();
        assert_eq!((shown.state(), held), (State::Paused, asked));
        most = most.max(waiting.len());
        // Approved, denied, approved …
        for (turn, (number, call)) in waiting.iter().enumerate() {
            assert_eq!(run.show().await.state(), State::Paused);
            assert!(!workspace.join(name(*number)).exists());
            let decision = if turn % 2 == 0 { Decision::Approve } else { Decision::Deny };
            run.clients.decide(&call.approval_id, decision).await.unwrap();
        }
        for (turn, (number, call)) in waiting.iter().enumerate() {
            let call = run.outcome(&call.call_id).await;
            let expected = if turn % 2 == 0 { Status::Succeeded } else { Status::Denied };
            assert_eq!(call.status(), expected, "{:?}", call.error);
            assert_eq!(workspace.join(name(*number)).exists(), turn % 2 == 0);
        }
        goes_on(&mut run).await;
    }
    println!("{most} of {CALLS} calls waited at the same time");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_s_pause_outlasts_the_reviewer_s_answer() {
    let daemon = Daemon::start_with(setup("{freeze: true}")).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("p", &workspace).await;
    let asked = run.asks(calls::write("a.txt", "two\n")).await;
    run.clients.runs.pause_run(v1::PauseRunRequest { run_id: run.id().to_owned() }).await.unwrap();
    let resume = v1::ResumeRunRequest { run_id: run.id().to_owned(), lift_alerts: true };
    run.clients.runs.resume_run(resume.clone()).await.unwrap();
    assert_eq!(
        run.show().await.state(),
        State::Paused,
        "what waits for a reviewer is not an operator's to let go"
    );
    run.clients.runs.pause_run(v1::PauseRunRequest { run_id: run.id().to_owned() }).await.unwrap();
    run.clients.approve(&asked.approval_id).await.unwrap();
    tokio::time::sleep(QUIET).await;
    assert_eq!(std::fs::read_to_string(workspace.join("a.txt")).unwrap(), "one\n");
    let kinds: Vec<_> = run.show().await.holds.iter().map(v1::RunHold::kind).collect();
    assert_eq!(kinds, [Kind::Approval, Kind::Operator], "the call that was approved has not been executed");
    run.clients.runs.resume_run(resume).await.unwrap();
    assert_eq!(run.outcome(&asked.call_id).await.status(), Status::Succeeded);
    assert_eq!(std::fs::read_to_string(workspace.join("a.txt")).unwrap(), "two\n");
}
