//! `kill -9` of the daemon in the middle of its work.

use harness::v1::call_response::Status;
use harness::v1::{self, run::State};
use harness::{Daemon, RunHandle, calls, processes, record};

use crate::adopted::IDLE;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_on_and_what_was_acknowledged_is_kept() {
    let mut daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("open", &workspace).await;
    let write = v1::CallRequest {
        request_id: "once".to_owned(),
        operation: Some(calls::create("b.txt", "two\n")),
        ..Default::default()
    };
    let written = run.call_with(write.clone()).await.unwrap();
    assert_eq!(written.status(), Status::Succeeded, "{:?}", written.error);
    let waiting = daemon.run("review", &workspace).await;
    let asked = waiting.waits(calls::write("c.txt", "three\n"));
    let approval = run.clients.pending_approval(waiting.id()).await;
    let working = run.works(&workspace).await;
    let before = run.clients.events("", "").await;

    daemon.kill().await;
    for call in [working, asked] {
        assert!(call.await.unwrap().is_err(), "the daemon died before it could answer");
    }
    assert_eq!(daemon.containers().len(), 2, "the engine knows nothing of it");
    daemon.launch().await;

    assert!(!workspace.join("ended").exists());
    let mut clients = daemon.connect().await;
    // One stands still for its reviewer.
    for (handle, state) in [(&run, State::Ready), (&waiting, State::Paused)] {
        assert_eq!(processes(&handle.run.container_id), IDLE);
        let request = v1::GetRunRequest { run_id: handle.id().to_owned() };
        let lives = clients.runs.get_run(request).await.unwrap().into_inner().run.unwrap();
        assert_eq!((lives.state(), lives.restarts), (state, 1));
    }

    // The log is whole, goes on where it was, and says of the call that was executed that it was interrupted. The one that
    // waits for a reviewer still does.
    let after = clients.events("", "").await;
    assert_eq!(after[..before.len()], before);
    let verified = clients.verify().await;
    assert!(verified.intact && verified.valid_records == after.len() as u64, "{verified:?}");
    let interrupted: Vec<_> = after
        .iter()
        .filter(|event| event.kind == "call_receipt" && record(event)["outcome"]["status"] == "interrupted")
        .map(|event| (event.run_id.as_str(), event.operation.as_str()))
        .collect();
    assert_eq!(interrupted, [(run.id(), "exec")]);
    for (kind, count) in [("call_intent", 3), ("call_receipt", 2)] {
        assert_eq!(after.iter().filter(|event| event.kind == kind).count(), count, "{kind}");
    }

    // Outcomes that were acknowledged are found by call and by request.
    let mut run = RunHandle { clients: clients.clone(), ..run };
    assert_eq!(run.get(&written.call_id).await, written);
    assert_eq!(run.call_with(write).await.unwrap(), written);
    assert!(!workspace.join("c.txt").exists());
    clients.approve(&approval.approval_id).await.unwrap();
    assert_eq!(run.outcome(&approval.call_id).await.status(), Status::Succeeded);
    assert_eq!(std::fs::read_to_string(workspace.join("c.txt")).unwrap(), "three\n");

    // And the daemon works as before.
    run.ok(calls::read("a.txt")).await;
    run.stop().await;
    run.delete().await;
    let mut next = daemon.run("open", &workspace).await;
    assert_eq!(next.exec(&["cat", "b.txt"]).await.stdout, "two\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_dies_again_and_again_starts_again_and_again() {
    let mut daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    // The log's writer alone is killed 200 times by a test of its own.
    let rounds = effort::cases(10, 200);
    let mut acknowledged = Vec::new();
    for round in 0..rounds {
        let mut run = daemon.run("open", &workspace).await;
        let calls = (0..8).map(|i| {
            let mut run = run.clone();
            tokio::spawn(async move { run.call(calls::write(&format!("{round}-{i}.txt"), "x")).await.ok() })
        });
        let calls: Vec<_> = calls.collect();
        run.ok(calls::read("a.txt")).await;
        daemon.kill().await;
        for (i, call) in calls.into_iter().enumerate() {
            if let Some(answer) = call.await.unwrap() {
                assert!(workspace.join(format!("{round}-{i}.txt")).exists(), "an answer was a lie");
                acknowledged.push(answer.call_id);
            }
        }
        daemon.launch().await;
        assert_eq!(daemon.containers(), [run.run.container_id.clone()]);
        RunHandle { clients: daemon.connect().await, ..run }.stop().await;
        assert_eq!((daemon.containers(), daemon.mounts()), (vec![], vec![]));
    }
    let mut clients = daemon.connect().await;
    assert!(clients.verify().await.intact);
    let events = clients.events("", "").await;
    let count = |kind: &str| events.iter().filter(|event| event.kind == kind).count();
    assert_eq!(count("call_intent"), count("call_receipt"));
    assert_eq!(count("daemon_started"), rounds as usize + 1);
    let ends = |call: &str| {
        let of_call = events.iter().filter(|event| event.call_id == call && event.kind == "call_receipt");
        of_call.map(|event| record(event)["outcome"]["status"].clone()).collect::<Vec<_>>()
    };
    for call in &acknowledged {
        assert_eq!(ends(call), ["succeeded"], "what was answered is on record, once");
    }
    assert_eq!(count("daemon_stopped"), 0);
}
