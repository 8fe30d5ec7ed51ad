//! Tests living runs: their mounts, the number of calls at once, and their end by time.

use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use harness::v1::result::Kind as Answer;
use harness::v1::{self, CreateRunRequest, run::State};
use harness::{Daemon, Setup, calls, reason, requests};

#[tokio::test(flavor = "multi_thread")]
async fn many_calls_at_once_are_all_answered() {
    let config = "limits: { calls: 8 }\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("open", &workspace).await;
    let calls = (0..32).map(|i| {
        let mut run = run.clone();
        tokio::spawn(async move {
            let (text, file) = (format!("call {i}"), format!("out/{i}.txt"));
            let exec = run.exec(&["sh", "-c", &format!("sleep 0.05; echo {text}")]).await;
            assert_eq!(exec.stdout, format!("{text}\n"));
            assert_eq!(exec.kill.unwrap().left, 0);
            run.ok(calls::write(&file, &text)).await;
            let Answer::Read(read) = run.ok(calls::read(&file)).await else { panic!("not a read") };
            assert_eq!(read.content, text);
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    let id = run.id().to_owned();
    let events = run.clients.events(&id, "").await;
    for kind in ["call_intent", "call_receipt"] {
        assert_eq!(events.iter().filter(|event| event.kind == kind).count(), 96, "{kind}");
    }
    assert!(run.clients.verify().await.intact);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_review_sees_its_workspace_read_only_from_inside_the_container() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("review", &workspace).await;
    let waiting = run.waits(calls::exec(&["sh", "-c", "echo two > a.txt"]));
    let id = run.id().to_owned();
    let approval = run.clients.pending_approval(&id).await;
    run.clients.approve(&approval.approval_id).await.unwrap();
    let Some(Answer::Exec(exec)) = waiting.await.unwrap().unwrap().into_kind() else { panic!("not an exec") };
    assert_ne!(exec.exit_code, Some(0));
    assert!(exec.stderr.to_lowercase().contains("read-only file system"), "{}", exec.stderr);
    assert_eq!(std::fs::read_to_string(workspace.join("a.txt")).unwrap(), "one\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_are_shown_and_cannot_be_changed() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let pkg = daemon.workspace("pkg", &[("lib.txt", "library\n")]);
    let request =
        CreateRunRequest { pkg_path: pkg.display().to_string(), ..requests::bind("open", &workspace) };
    let mut run = daemon.run_on(request).await;
    for path in ["@pkg/lib.txt", "/pkg/lib.txt"] {
        let Answer::Read(read) = run.ok(calls::read(path)).await else { panic!("not a read") };
        assert_eq!((read.path.as_str(), read.content.as_str()), ("@pkg/lib.txt", "library\n"));
    }
    let refused = run.call(calls::write("@pkg/lib.txt", "x")).await;
    let refused = refused.map_or_else(|status| reason(&status), |response| response.error.unwrap().reason);
    assert_eq!(refused, "SANDBOX_VIOLATION");
    let Answer::Exec(exec) = run.ok(calls::exec(&["sh", "-c", "echo x > /pkg/lib.txt"])).await else {
        panic!("not an exec")
    };
    assert_ne!(exec.exit_code, Some(0));
    assert_eq!(std::fs::read_to_string(pkg.join("lib.txt")).unwrap(), "library\n");

    run.ok(calls::write("@state/notes.txt", "x")).await;
    assert_eq!(run.exec(&["cat", "/state/notes.txt"]).await.stdout, "x");
    assert_eq!(std::fs::read_dir(&workspace).unwrap().count(), 0, "state is not the workspace");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_run_belong_to_the_owner_of_its_workspace() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("open", &workspace).await;
    run.ok(calls::write("hand.txt", "x")).await;
    run.exec(&["sh", "-c", "echo x > agent.txt"]).await;
    for name in ["hand.txt", "agent.txt"] {
        let metadata = std::fs::metadata(workspace.join(name)).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (4321, 4321), "{name}");
    }
    let mut managed = daemon.run_on(requests::managed("open")).await;
    let path = std::path::PathBuf::from(&managed.run.workspace_path);
    managed.ok(calls::write("a.txt", "x")).await;
    assert_eq!(std::fs::metadata(path.join("a.txt")).unwrap().uid(), 1001);
    managed.stop().await;
    assert!(path.join("a.txt").exists());
    managed.delete().await;
    assert!(!path.exists());
    let Answer::Read(_) = run.ok(calls::read("hand.txt")).await else { panic!("not a read") };
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_when_it_is_old_or_idle() {
    let daemon = Daemon::start().await;
    let seconds = |seconds| Some(wire::duration(Duration::from_secs(seconds)));
    let old = CreateRunRequest { ttl: seconds(1), ..requests::managed("open") };
    let idle = CreateRunRequest { idle_timeout: seconds(5), ..requests::managed("open") };
    let (mut old, mut idle) = (daemon.run_on(old).await, daemon.run_on(idle).await);
    let began = Instant::now();
    // A run that works is not idle, however long its call takes.
    let works = async {
        idle.exec(&["sleep", "7"]).await;
        assert_eq!(idle.show().await.state(), State::Ready);
    };
    let (old, ()) = tokio::join!(old.ended(), works);
    assert_eq!(old.state(), State::Stopped);
    assert_eq!(idle.ended().await.state(), State::Stopped);
    assert!(began.elapsed() >= Duration::from_secs(11), "{:?}", began.elapsed());
    assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_have_ended_are_bounded_until_they_are_deleted() {
    let config = "limits: { ended_runs: 2 }\n".to_owned();
    let mut daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let mut runs = Vec::new();
    for _ in 0..2 {
        let mut run = daemon.run_on(requests::managed("open")).await;
        run.stop().await;
        runs.push(run);
    }
    // The next daemon counts those of this one.
    daemon.stop().await;
    daemon.launch().await;
    let status = daemon.run_with(requests::managed("open")).await.map(|_| ()).unwrap_err();
    assert_eq!(reason(&status), "OVERLOADED");
    assert!(status.message().contains("2 of them are of the tenant"), "{status}");
    runs[0].clients = daemon.connect().await;
    // Its workspace would still be there.
    let request = v1::DeleteRunRequest { run_id: runs[0].id().to_owned(), delete_workspace: false };
    runs[0].clients.runs.delete_run(request).await.unwrap();
    assert!(daemon.run_with(requests::managed("open")).await.is_err());
    runs[1].clients = daemon.connect().await;
    runs[1].delete().await;
    daemon.run_on(requests::managed("open")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_a_daemon_are_bounded_and_paged() {
    let config = "limits: { runs: 3 }\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(daemon.run_on(requests::managed("open")).await);
    }
    let status = daemon.run_with(requests::managed("open")).await.map(|_| ()).unwrap_err();
    assert_eq!(reason(&status), "OVERLOADED");
    runs[0].stop().await;
    let one_more = daemon.run_on(requests::managed("open")).await;

    let mut clients = daemon.connect().await;
    let (mut seen, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListRunsRequest { page_size: 3, page_token, ..Default::default() };
        let page = clients.runs.list_runs(request).await.unwrap().into_inner();
        seen.extend(page.runs.into_iter().map(|run| run.run_id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    let mut expected: Vec<_> = runs.iter().chain([&one_more]).map(|run| run.id().to_owned()).collect();
    expected.reverse();
    assert_eq!(seen, expected);
    let request = v1::ListRunsRequest { state: State::Stopped.into(), ..Default::default() };
    let stopped = clients.runs.list_runs(request).await.unwrap().into_inner().runs;
    assert_eq!(stopped.iter().map(|run| run.run_id.as_str()).collect::<Vec<_>>(), [runs[0].id()]);
}

/// Several clients at once end a run that is ending anyway, at each moment of its end, and none of them is refused.
#[tokio::test(flavor = "multi_thread")]
async fn many_clients_end_and_delete_a_run_at_once() {
    let daemon = Daemon::start().await;
    let clients = daemon.connect().await;
    let cases = ["ready", "expires", "fails", "fails", "fails", "fails", "stops"];
    for case in cases {
        let request = CreateRunRequest {
            // Long enough for a call on a busy machine.
            ttl: (case == "expires").then(|| wire::duration(Duration::from_secs(5))),
            ..requests::managed("open")
        };
        let mut run = daemon.run_on(request).await;
        run.ok(calls::write("a.txt", "a")).await;
        let workspace = daemon.state_dir().join("workspaces").join(run.id());
        assert!(workspace.exists());
        if case == "fails" {
            let first = harness::pid_of(&run.run.container_id, "/.cofferdam/guest hold").unwrap();
            let first = rustix::process::Pid::from_raw(i32::try_from(first).unwrap()).unwrap();
            rustix::process::kill_process(first, rustix::process::Signal::KILL).unwrap();
        }
        if case != "ready" && case != "stops" {
            // Seen as over as soon as it can be.
            while !matches!(run.show().await.state(), State::Stopping | State::Stopped | State::Failed) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        let stops = (case == "stops").then(|| {
            let (mut clients, run_id) = (clients.clone(), run.id().to_owned());
            // It may be deleted by the time that it is to be told of.
            tokio::spawn(async move { clients.runs.stop_run(v1::StopRunRequest { run_id }).await.map(drop) })
        });
        let ends = (0..4).map(|_| {
            let (mut clients, run_id) = (clients.clone(), run.id().to_owned());
            tokio::spawn(async move {
                let stop = v1::StopRunRequest { run_id: run_id.clone() };
                match clients.runs.stop_run(stop).await {
                    Ok(stopped) => {
                        let state = stopped.into_inner().run.unwrap().state();
                        assert!(matches!(state, State::Stopped | State::Failed), "{case}: {state:?}");
                    }
                    Err(status) => assert_eq!(reason(&status), "NOT_FOUND", "{case}"),
                }
                let delete = v1::DeleteRunRequest { run_id, delete_workspace: true };
                clients.runs.delete_run(delete).await.map(drop)
            })
        });
        let mut deleted = 0;
        for end in ends.collect::<Vec<_>>() {
            match end.await.unwrap() {
                Ok(()) => deleted += 1,
                Err(status) => assert_eq!(reason(&status), "NOT_FOUND", "{case}: {}", status.message()),
            }
        }
        if let Some(stops) = stops {
            let _ = stops.await.unwrap();
        }
        assert_eq!(deleted, 1, "{case}");
        assert!(!workspace.exists(), "{case}: its workspace stays");
        let listed = run.clients.runs.list_runs(v1::ListRunsRequest::default()).await.unwrap().into_inner();
        assert!(listed.runs.is_empty(), "{case}: it comes back: {listed:?}");
    }
}
