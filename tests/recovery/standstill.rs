//! Tests runs that were frozen when their daemon ended, for a reviewer or by an operator: they stay frozen.

use std::path::Path;
use std::time::Duration;

use harness::v1::call_response::Status;
use harness::v1::run::State;
use harness::v1::run_hold::Kind;
use harness::{Daemon, RunHandle, Setup, calls, outlives, reason, record, v1};

use crate::adopted::works;
use crate::approvals::asking;

/// Commands that nobody asks about, but `sh job.sh`, which asks and has the run stand still.
fn freezing(config: &str) -> Setup {
    let profile = "profiles:\n  p:\n    workspace: read-write\n    operations: {read: allow, write: allow, exec: allow, delete: ask}\n    exec:\n      default: allow\n      rules: [{prefix: [sh, job.sh], decision: ask, justification: It is a script., match: [sh job.sh]}]\n    approvals: {freeze: true}\n    rate_limits: {operations: {default: {minute: unlimited, hour: unlimited, day: unlimited}}, run: {minute: unlimited, hour: unlimited, day: unlimited}, principal: {minute: unlimited, hour: unlimited, day: unlimited}}\n";
    let roles = "roles: {director: {allow: '*'}}\n".to_owned();
    let policy = vec![("profile.yaml", profile.to_owned()), ("roles.yaml", roles)];
    Setup { config: config.to_owned(), policy, ..Default::default() }
}

fn size(workspace: &Path, name: &str) -> usize {
    std::fs::read(workspace.join(name)).map_or(0, |bytes| bytes.len())
}

/// A command that counts until its daemon ends.
async fn counts(run: &RunHandle, workspace: &Path) {
    drop(run.waits(calls::exec(&["sh", "-c", "while :; do printf x >> ticks; sleep 0.01; done"])));
    let counted = async {
        // A command has no other way to tell.
        while size(workspace, "ticks") < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), counted).await.expect("the command does not count");
}

fn holds(run: &v1::Run) -> Vec<(Kind, &str)> {
    run.holds.iter().map(|hold| (hold.kind(), hold.cause_id.as_str())).collect()
}

/// The script was executed so many times.
fn executed(workspace: &Path) -> usize {
    size(workspace, "times")
}

#[tokio::test(flavor = "multi_thread")]
async fn run_waiting_for_a_reviewer_stays_frozen_under_the_next_daemon() {
    let mut daemon = Daemon::start_with(freezing("")).await;
    let workspace = daemon.workspace("w", &[("job.sh", "printf x >> times\n")]);
    let mut run = daemon.run("p", &workspace).await;
    counts(&run, &workspace).await;
    let asked = run.asks(calls::exec(&["sh", "job.sh"])).await;
    let before = size(&workspace, "ticks");
    // A call that waits beside it when the daemon is killed is closed, and had no effect.
    let beside = v1::CallRequest {
        request_id: "beside".to_owned(),
        request: Some(calls::exec(&["touch", "beside"]).into()),
        ..Default::default()
    };
    let mut other = run.clone();
    let request = beside.clone();
    drop(tokio::spawn(async move { other.call_with(request).await }));
    let id = run.id().to_owned();
    let intents = run.clients.events_when(&id, "call_intent", |events| events.len() == 3).await;

    for restarts in 1..=2 {
        run = outlives(&mut daemon, run).await;
        let shown = run.show().await;
        assert_eq!((shown.state(), shown.restarts), (State::Paused, restarts));
        assert_eq!(holds(&shown), [(Kind::Approval, asked.approval_id.as_str())]);
        let refusing = v1::CallRequest {
            request: Some(calls::exec(&["true"]).into()),
            refuse_awaiting_approval: true,
            ..Default::default()
        };
        let refused = run.call_with(refusing).await.unwrap_err();
        assert_eq!(reason(&refused), "AWAITING_APPROVAL");
        assert!(refused.message().contains(&asked.approval_id), "{}", refused.message());
        let closed = run.call_with(beside.clone()).await.unwrap();
        assert_eq!(closed.call_id, intents[2].call_id);
        assert_eq!(closed.error.unwrap().details["interrupted"], "true");
    }
    let waiting = run.waits(calls::exec(&["touch", "after"]));
    assert_eq!(size(&workspace, "ticks"), before, "nothing went on while there was no daemon");
    assert_eq!(executed(&workspace), 0);

    run.clients.approve(&asked.approval_id).await.unwrap();
    let done = run.outcome(&asked.call_id).await;
    assert_eq!(done.status(), Status::Succeeded, "{:?}", done.error);
    assert_eq!((run.show().await.state(), executed(&workspace)), (State::Ready, 1));
    assert_eq!(waiting.await.unwrap().unwrap().status(), Status::Succeeded);
    assert!(workspace.join("after").exists() && !workspace.join("beside").exists());
    works(&mut run, &workspace, "b.txt").await;

    let mut run = outlives(&mut daemon, run).await;
    assert_eq!((run.show().await.state(), executed(&workspace)), (State::Ready, 1), "once");
    let receipts = run.clients.of_call(&asked.call_id).await;
    let receipts: Vec<_> = receipts.iter().filter(|event| event.kind == "call_receipt").collect();
    assert_eq!(receipts.len(), 1);
    assert_eq!(record(receipts[0])["outcome"]["status"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_stop_leaves_a_run_standing_still() {
    let mut daemon = Daemon::start_with(freezing("runs: { on_stop: leave }\n")).await;
    let workspace = daemon.workspace("w", &[("job.sh", "printf x >> times\n")]);
    let mut run = daemon.run("p", &workspace).await;
    counts(&run, &workspace).await;
    let asked = run.asks(calls::exec(&["sh", "job.sh"])).await;
    daemon.stop().await;
    let before = size(&workspace, "ticks");
    daemon.launch().await;
    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    assert_eq!(holds(&run.show().await), [(Kind::Approval, asked.approval_id.as_str())]);
    run.clients.approve(&asked.approval_id).await.unwrap();
    assert_eq!(run.outcome(&asked.call_id).await.status(), Status::Succeeded);
    assert_eq!((size(&workspace, "ticks"), executed(&workspace)), (before, 1));
    assert_eq!(run.show().await.state(), State::Ready);
}

/// What is left behind when a daemon dies between holding a run and asking, or between asking and letting it go.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_whose_approval_is_gone_ends_with_the_start() {
    let mut daemon = Daemon::start_with(freezing("")).await;
    let workspace = daemon.workspace("w", &[("job.sh", "printf x >> times\n")]);
    let mut run = daemon.run("p", &workspace).await;
    let asked = run.asks(calls::exec(&["sh", "job.sh"])).await;
    daemon.kill().await;
    let store = daemon.state_dir().join("store.db");
    let script = format!(
        "import sqlite3\nwith sqlite3.connect({store:?}) as db: db.execute('DELETE FROM approvals')\n"
    );
    let deleted = std::process::Command::new("python3").args(["-c", &script]).status().unwrap();
    assert!(deleted.success());
    daemon.launch().await;
    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    assert_eq!((run.show().await.state(), run.show().await.holds.len()), (State::Ready, 0));
    works(&mut run, &workspace, "b.txt").await;
    assert_eq!(executed(&workspace), 0);
    let call = run.get(&asked.call_id).await;
    assert_eq!(call.error.unwrap().details["interrupted"], "true");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_an_operator_paused_is_still_paused() {
    let mut daemon = Daemon::start_with(freezing("")).await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("p", &workspace).await;
    counts(&run, &workspace).await;
    run.clients.runs.pause_run(v1::PauseRunRequest { run_id: run.id().to_owned() }).await.unwrap();
    let before = size(&workspace, "ticks");
    for _ in 0..2 {
        run = outlives(&mut daemon, run).await;
        let shown = run.show().await;
        assert_eq!((shown.state(), holds(&shown)), (State::Paused, vec![(Kind::Operator, "")]));
        assert!(run.call(calls::exec(&["true"])).await.unwrap_err().message().contains("PAUSED"));
    }
    assert_eq!(size(&workspace, "ticks"), before);
    let resume = v1::ResumeRunRequest { run_id: run.id().to_owned(), lift_alerts: false };
    run.clients.runs.resume_run(resume).await.unwrap();
    works(&mut run, &workspace, "b.txt").await;
}

/// Decisions that come while the daemon stops are on record or refused; what is on record is executed, once.
#[tokio::test(flavor = "multi_thread")]
async fn approval_during_a_stop_is_executed_once_by_the_next_daemon() {
    const CALLS: usize = 8;
    let mut daemon = Daemon::start_with(Setup {
        policy: asking("{}"),
        config: "runs: { on_stop: leave }\n".to_owned(),
        ..Default::default()
    })
    .await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("p", &workspace).await;
    let mut carried = 0;
    for round in 0..4_u64 {
        let mut asked = Vec::new();
        for number in 0..CALLS {
            let name = format!("times-{round}-{number}");
            std::fs::write(workspace.join(&name), "x").unwrap();
            harness::own(&workspace, 4321);
            asked.push(run.asks(calls::replace(&name, "x", "xx")).await);
        }
        let decisions: Vec<_> = asked
            .iter()
            .map(|call| {
                let (mut clients, id) = (run.clients.clone(), call.approval_id.clone());
                tokio::spawn(async move { clients.approve(&id).await })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(round * 5)).await;
        daemon.stop().await;
        let executed: Vec<_> =
            (0..CALLS).map(|number| size(&workspace, &format!("times-{round}-{number}")) - 1).collect();
        daemon.launch().await;
        run.clients = daemon.connect().await;
        for (number, (call, decision)) in asked.iter().zip(decisions).enumerate() {
            // Those that the stop cut off have no answer that counts.
            let approved = decision.await.unwrap().is_ok();
            if run.clients.approvals_pending(&call.approval_id).await {
                assert!(!approved, "a decision that was answered is not lost");
                run.clients.approve(&call.approval_id).await.unwrap();
            }
            let outcome = run.outcome(&call.call_id).await;
            let times = size(&workspace, &format!("times-{round}-{number}")) - 1;
            match outcome.status() {
                Status::Succeeded => assert_eq!(times, 1, "round {round}, call {number}"),
                // It was being executed when its worker was ended. It is never done again.
                Status::Failed => {
                    let why = outcome.error.unwrap().message;
                    let cut = ["The worker was ", "the daemon was stopped during the call"];
                    assert!(
                        cut.iter().any(|cut| why.starts_with(cut)) && times <= 1,
                        "round {round}, {times} times: {why}"
                    );
                }
                other => panic!("round {round}, call {number}: {other:?}, {:?}", outcome.error),
            }
            carried += usize::from(approved && executed[number] == 0);
        }
    }
    println!("{carried} of {} calls were approved under one daemon and executed by the next", 4 * CALLS);
    assert!(run.clients.verify().await.intact);
}
