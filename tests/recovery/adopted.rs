//! Tests runs that outlive their daemon: the next daemon reattaches them unchanged.

use harness::v1::call_response::Status;
use harness::v1::run::State;
use harness::{Daemon, RunHandle, calls, inspect, outlives, processes, reason, record, requests, until, v1};

/// What is in a container that nobody uses: what holds it, and the agent.
pub(crate) const IDLE: [&str; 2] = ["/.cofferdam/guest hold", "/.cofferdam/guest serve"];

/// Both lanes work.
pub(crate) async fn works(run: &mut RunHandle, workspace: &std::path::Path, name: &str) {
    run.ok(calls::write(name, "written\n")).await;
    assert_eq!(std::fs::read_to_string(workspace.join(name)).unwrap(), "written\n");
    assert_eq!(run.exec(&["cat", name]).await.stdout, "written\n");
    assert_eq!(run.exec(&["cat", name]).await.stdout, "written\n", "also in a process that waited for it");
    run.ok(calls::read(name)).await;
}

async fn last_state(run: &mut RunHandle) -> serde_json::Value {
    let id = run.id().to_owned();
    record(run.clients.events(&id, "run_state").await.last().unwrap())["details"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_run_continues_in_both_lanes() {
    let mut daemon = Daemon::start().await;
    let workspace = daemon.repository("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("open", &workspace).await;
    run.ok(calls::write("a.txt", "two\n")).await;
    assert_eq!(run.exec(&["sh", "-c", "echo kept > /state/note"]).await.exit_code, Some(0));
    let before = (inspect(&run.run.container_id), run.show().await);
    let mounts = daemon.mounts();

    let mut run = outlives(&mut daemon, run).await;
    let after = run.show().await;
    assert_eq!((after.state(), after.restarts), (State::Ready, 1));
    assert!(after.adopted_at.is_some());
    // What it has on the disk is measured now and then.
    let same = v1::Run { restarts: 0, adopted_at: None, disk: before.1.disk, ..after.clone() };
    assert_eq!(same, before.1, "nothing else of it has changed");
    let now = inspect(&run.run.container_id);
    for part in ["Id", "Created", "Image", "HostConfig", "Config", "State"] {
        assert_eq!(now[part], before.0[part], "{part}");
    }
    assert_eq!((daemon.containers(), daemon.mounts()), (vec![after.container_id.clone()], mounts));
    assert_eq!(processes(&after.container_id), IDLE);
    let told = last_state(&mut run).await;
    assert_eq!(
        (&told["state"], &told["adopted"], &told["restarts"]),
        (&"READY".into(), &true.into(), &1.into())
    );
    assert_eq!(told["ended"]["left"], 0, "{told}");

    works(&mut run, &workspace, "b.txt").await;
    assert_eq!(run.exec(&["cat", "/state/note"]).await.stdout, "kept\n");
    run.ok(calls::git(v1::git_request::Command::Status(v1::GitStatus {}))).await;
    run.ok(calls::git_add(&["."])).await;
    run.ok(calls::git_commit("second")).await;
    assert_eq!(harness::git(&workspace, &["log", "--format=%s"]), "second\nfirst\n");
    assert!(run.clients.verify().await.intact);
    run.stop().await;
    assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
    run.delete().await;
    assert_eq!(daemon.leftovers(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_a_dead_daemon_end_and_their_run_continues() {
    let mut daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let run = daemon.run("open", &workspace).await;
    let working = run.works(&workspace).await;
    // More than the process that waits: commands in cgroups of their own, and processes that are hard to end.
    let kinds = ["setsid", "double-fork", "deaf", "stopped"];
    std::fs::copy(harness::probe(), workspace.join("probe")).unwrap();
    let others: Vec<_> = kinds
        .iter()
        .map(|kind| run.waits(calls::exec(&["/workspace/probe", "tree", kind, "3", "stay"])))
        .collect();
    // The tree itself and its branches; of the first call a shell and what it waits for.
    while processes(&run.run.container_id).len() < IDLE.len() + 2 + 4 * kinds.len() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }

    let mut run = outlives(&mut daemon, run).await;
    for call in others.into_iter().chain([working]) {
        assert!(call.await.unwrap().is_err(), "the daemon died before it could answer");
    }
    assert_eq!(run.show().await.state(), State::Ready);
    assert_eq!(processes(&run.run.container_id), IDLE, "nothing runs on unseen");
    assert!(!workspace.join("ended").exists());
    let id = run.id().to_owned();
    let receipts = run.clients.events(&id, "call_receipt").await;
    assert_eq!(receipts.len(), 1 + kinds.len());
    for receipt in &receipts {
        let outcome = &record(receipt)["outcome"];
        assert_eq!(
            (&outcome["status"], &outcome["facts"]["kill"]["left"]),
            (&"interrupted".into(), &0.into())
        );
    }
    works(&mut run, &workspace, "b.txt").await;
    assert!(run.clients.verify().await.intact);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_was_interrupted_is_not_made_again() {
    let mut daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let run = daemon.run("open", &workspace).await;
    let request = v1::CallRequest {
        request_id: "once".to_owned(),
        request: Some(calls::shell("echo x >> times; sleep 60").into()),
        ..Default::default()
    };
    let (mut first, sent) = (run.clone(), request.clone());
    let calling = tokio::spawn(async move { first.call_with(sent).await });
    while !workspace.join("times").exists() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let mut run = outlives(&mut daemon, run).await;
    assert!(calling.await.unwrap().is_err());
    let again = run.call_with(request.clone()).await.unwrap();
    assert_eq!(again.status(), Status::Failed, "{again:?}");
    let failure = again.error.clone().unwrap();
    assert!(failure.message.contains("may have taken effect"), "{failure:?}");
    assert_eq!(run.get(&again.call_id).await, again);
    let id = run.id().to_owned();
    let intents = run.clients.events(&id, "call_intent").await;
    assert_eq!((intents.len(), intents[0].call_id.as_str()), (1, again.call_id.as_str()));
    assert_eq!(std::fs::read_to_string(workspace.join("times")).unwrap(), "x\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_outlives_ten_daemons() {
    let mut daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("open", &workspace).await;
    for round in 1..=10 {
        // Some of them die in the middle of work.
        let work: Vec<_> = (0..round % 4)
            .map(|i| run.waits(calls::shell(&format!("echo > {round}-{i}; sleep 1000"))))
            .chain((0..round % 3).map(|i| run.waits(calls::write(&format!("w{round}-{i}"), "x"))))
            .collect();
        run = outlives(&mut daemon, run).await;
        for call in work {
            let _ = call.await.unwrap();
        }
        assert_eq!(processes(&run.run.container_id), IDLE, "in round {round}");
        let shown = run.show().await;
        assert_eq!((shown.state(), shown.restarts), (State::Ready, round));
        works(&mut run, &workspace, &format!("r{round}")).await;
    }
    assert!(run.clients.verify().await.intact);
    let events = run.clients.events("", "").await;
    let count = |kind: &str| events.iter().filter(|event| event.kind == kind).count();
    assert_eq!(count("call_intent"), count("call_receipt"));
    run.stop().await;
    run.delete().await;
    assert_eq!(daemon.leftovers(), [""; 0]);
    let left: Vec<_> =
        std::fs::read_dir(&workspace).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with(".cofferdam")), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_workspace_is_reattached() {
    let mut daemon = Daemon::start().await;
    let pkg = daemon.workspace("pkg", &[("shown.txt", "shown\n")]);
    let repository = daemon.repository("r", &[("a.txt", "one\n")]);
    let beneath = daemon.workspace("w", &[("a.txt", "one\n")]);
    let bound = daemon.workspace("b", &[]);
    let requests = [
        requests::managed("open"),
        requests::clone("open", &repository),
        requests::overlay("open", &beneath),
        v1::CreateRunRequest { pkg_path: pkg.display().to_string(), ..requests::bind("open", &bound) },
        requests::managed("review"),
    ];
    let mut runs = Vec::new();
    for request in requests {
        runs.push(daemon.run_on(request).await);
    }
    runs[2].ok(calls::write("layer.txt", "before\n")).await;
    let (containers, mut mounts) = (daemon.containers(), daemon.mounts());
    daemon.relaunch().await;
    let mut now = daemon.mounts();
    now.sort();
    mounts.sort();
    assert_eq!((daemon.containers(), now), (containers, mounts));
    let clients = daemon.connect().await;
    let mut runs: Vec<_> =
        runs.into_iter().map(|run| RunHandle { clients: clients.clone(), ..run }).collect();
    for run in &mut runs[..4] {
        run.ok(calls::write("after.txt", "after\n")).await;
        assert_eq!(run.exec(&["cat", "after.txt"]).await.stdout, "after\n");
    }
    assert_eq!(runs[3].exec(&["cat", "/pkg/shown.txt"]).await.stdout, "shown\n");
    // The review profile shows its workspace read-only, and still does.
    assert_eq!(runs[4].show().await.state(), State::Ready);
    // Both lanes see the overlay, and what is beneath it is as it was.
    assert_eq!(runs[2].exec(&["cat", "layer.txt"]).await.stdout, "before\n");
    assert!(!beneath.join("layer.txt").exists());
    let kept = runs[0].run.run_id.clone();
    let mut listed = clients.clone();
    let listed =
        listed.runs.list_workspaces(v1::ListWorkspacesRequest::default()).await.unwrap().into_inner();
    let managed = listed.workspaces.iter().find(|workspace| workspace.workspace_id == kept).unwrap();
    assert_eq!(managed.used_by, kept);
    runs[2].stop().await;
    assert_eq!(runs[2].diff().await.total, 2);
    runs[2].accept(false).await.unwrap();
    assert_eq!(std::fs::read_to_string(beneath.join("layer.txt")).unwrap(), "before\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_stop_may_leave_the_runs() {
    let setup = harness::Setup { config: "runs: { on_stop: leave }\n".to_owned(), ..Default::default() };
    let mut daemon = Daemon::start_with(setup).await;
    let workspace = daemon.workspace("w", &[]);
    let run = daemon.run("open", &workspace).await;
    let ended = daemon.run_on(requests::managed("open")).await;
    ended.clone().stop().await;
    let working = run.works(&workspace).await;
    let mounts = daemon.mounts();
    daemon.stop().await;
    assert!(!daemon.socket().exists());
    assert_eq!((daemon.containers(), daemon.mounts()), (vec![run.run.container_id.clone()], mounts));
    // The agent ends when it sees that its daemon is gone.
    let is_alone = async || processes(&run.run.container_id) == IDLE[..1];
    until("somebody works in it without a daemon", is_alone).await;
    let told = working.await.unwrap();
    assert!(told.is_err() || told.is_ok_and(|call| call.error.is_some()));

    daemon.launch().await;
    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    let shown = run.show().await;
    assert_eq!((shown.state(), shown.restarts), (State::Ready, 1));
    works(&mut run, &workspace, "b.txt").await;
    let id = run.id().to_owned();
    let receipts = run.clients.events(&id, "call_receipt").await;
    assert_ne!(record(&receipts[0])["outcome"]["status"], "interrupted", "the daemon closed it itself");
    let states = run.clients.events(&id, "run_state").await;
    let left: Vec<_> = states.iter().filter(|event| record(event)["details"]["left"] == true).collect();
    assert_eq!(left.len(), 1, "that it was left is on record");
    assert!(run.clients.verify().await.intact);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_ttl_passes_without_a_daemon_ends() {
    let mut daemon = Daemon::start().await;
    let short = |ttl: bool| {
        let time = Some(wire::Duration { seconds: 6, nanos: 0 });
        let (ttl, idle_timeout) = if ttl { (time, None) } else { (None, time) };
        v1::CreateRunRequest { ttl, idle_timeout, ..requests::managed("open") }
    };
    let kept = daemon.run_on(requests::managed("open")).await;
    // Together, for the time of the first runs while the other is made.
    let (old, idle) = tokio::join!(daemon.run_on(short(true)), daemon.run_on(short(false)));
    daemon.kill().await;
    // The clock is what is tested.
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    daemon.launch().await;
    assert_eq!(daemon.containers(), [kept.run.container_id.as_str()]);
    for run in [old, idle] {
        let mut run = RunHandle { clients: daemon.connect().await, ..run };
        let ended = run.show().await;
        assert_eq!((ended.state(), ended.failure.as_str()), (State::Stopped, ""));
        assert_eq!(reason(&run.call(calls::read("a")).await.unwrap_err()), "RUN_NOT_READY");
        assert_eq!(last_state(&mut run).await["state"], "STOPPED");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_runs_are_reattached_before_clients_connect() {
    const RUNS: usize = 20;
    let mut daemon = Daemon::start().await;
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(daemon.run_on(requests::managed("open")).await);
    }
    daemon.relaunch().await;
    // Whoever gets an answer finds them all as they are.
    let mut clients = daemon.connect().await;
    let listed = clients.runs.list_runs(v1::ListRunsRequest::default()).await.unwrap().into_inner().runs;
    assert_eq!(listed.len(), RUNS);
    assert!(listed.iter().all(|run| run.state() == State::Ready && run.restarts == 1));
    assert!(daemon.log().contains("adopted=20"), "the log says how many");
    for run in runs {
        let mut run = RunHandle { clients: clients.clone(), ..run };
        run.ok(calls::write("a.txt", "x")).await;
        assert_eq!(run.exec(&["cat", "a.txt"]).await.stdout, "x");
    }
}
