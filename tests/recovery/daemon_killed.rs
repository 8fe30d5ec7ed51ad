//! `kill -9` of the daemon in the middle of its work.

use std::path::PathBuf;

use harness::v1::call_response::Status;
use harness::v1::{self, run::State};
use harness::{Daemon, RunHandle, calls, processes, record, requests};

use crate::adopted::IDLE;

#[tokio::test(flavor = "multi_thread")]
async fn killed_daemon_leaves_no_processes_and_keeps_acknowledged_writes() {
    let mut daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("open", &workspace).await;
    let write = v1::CallRequest {
        request_id: "once".to_owned(),
        request: Some(calls::create("b.txt", "two\n").into()),
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
        assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
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

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_create_completes_after_a_kill() {
    let mut daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut tries = 0;
    // Its id chosen by the client or not; killed at once or when there is a container.
    for (chosen, late) in [(false, false), (true, false), (false, true), (true, true)] {
        let request = loop {
            tries += 1;
            assert!(tries < 40, "it is made before it can be killed, again and again");
            let mut request =
                if chosen { requests::bind("open", &workspace) } else { requests::managed("open") };
            request.request_id = format!("{chosen}-{late}-{tries}");
            if chosen {
                request.run_id = node_id::new_id().to_string();
            }
            let mut creating = daemon.connect().await;
            let create = tokio::spawn({
                let request = request.clone();
                async move { creating.runs.create_run(request).await }
            });
            let mut clients = daemon.connect().await;
            let creating = v1::ListRunsRequest { state: State::Creating.into(), ..Default::default() };
            let mut begun = false;
            // No event tells that a run is being made.
            while !begun && !create.is_finished() {
                let listed = clients.runs.list_runs(creating.clone()).await.unwrap().into_inner();
                begun = !listed.runs.is_empty() && (!late || !daemon.containers().is_empty());
            }
            let answered = create.is_finished();
            daemon.kill().await;
            let created = create.await.unwrap();
            daemon.launch().await;
            let Ok(created) = created else {
                assert!(!answered, "it was refused");
                break request;
            };
            // The answer came before the kill: the same once more, with another request.
            let run = created.into_inner().run.unwrap();
            let mut run = RunHandle { run: Box::new(run), clients: daemon.connect().await };
            run.stop().await;
            run.delete().await;
            assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
        };

        let mut clients = daemon.connect().await;
        let all = v1::ListRunsRequest::default();
        match clients.runs.list_runs(all.clone()).await.unwrap().into_inner().runs.as_slice() {
            [] => assert_eq!(daemon.leftovers(), [""; 0], "{chosen} {late}"),
            // It was ready, and nobody had been told: the repeated request finds it.
            [made] => assert_eq!((made.state(), made.restarts), (State::Ready, 1)),
            more => panic!("{more:?}"),
        }
        let mut run = daemon.run_with(request.clone()).await.unwrap();
        run.ok(calls::write("b.txt", "two\n")).await;
        let again = daemon.run_with(request).await.unwrap();
        // What a run has on the disk is measured now and then.
        let unmeasured = |run: v1::Run| v1::Run { disk: None, ..run };
        assert_eq!(unmeasured(*again.run), unmeasured((*run.run).clone()));
        let listed = clients.runs.list_runs(all).await.unwrap().into_inner().runs;
        assert_eq!(listed.into_iter().map(unmeasured).collect::<Vec<_>>(), [unmeasured((*run.run).clone())]);
        assert_eq!(daemon.containers(), [run.run.container_id.clone()]);
        run.stop().await;
        run.delete().await;
    }
    assert!(daemon.connect().await.verify().await.intact);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_over_when_stop_answers_and_a_crash_leaves_no_container() {
    let mut daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    for _ in 0..5 {
        let mut run = daemon.run("open", &workspace).await;
        let working = run.works(&workspace).await;
        let namespace = harness::pid_namespace(&run.run.container_id);
        assert!(
            harness::in_pid_namespace(&namespace).len() >= 3,
            "the first process, the guest, and the command"
        );
        assert_eq!(run.stop().await.state(), State::Stopped);
        assert_eq!(harness::in_pid_namespace(&namespace), [""; 0].map(PathBuf::from));
        assert_eq!(daemon.mounts(), [""; 0]);
        daemon.kill().await;
        drop(working);
        daemon.launch().await;
        assert_eq!(daemon.containers(), [""; 0]);
        std::fs::remove_file(workspace.join("begun")).unwrap();
    }
}
