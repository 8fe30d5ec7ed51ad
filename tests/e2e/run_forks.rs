//! Forks: runs that go on from the state of a run or of a checkpoint.

use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::forks::{delete, fork as ask, list, of_checkpoint, of_run};
use harness::process::script;
use harness::v1::run::State;
use harness::v1::workspace::Source;
use harness::{Clients, Daemon, RunHandle, Setup, as_user, calls, reason, record, requests, v1};

/// Makes forks, all of which must succeed. Returns them and the checkpoint.
async fn fork(daemon: &Daemon, request: v1::ForkRunRequest) -> (Vec<RunHandle>, v1::RunCheckpoint) {
    let mut clients = daemon.connect().await;
    let count = request.count as usize;
    let made = ask(&mut clients, request).await.unwrap_or_else(|status| panic!("{status}\n{}", daemon.log()));
    assert_eq!((made.forks.len(), made.failures.len()), (count, 0), "{:?}", made.failures);
    (handles(&clients, made.forks), made.checkpoint.unwrap())
}

fn handles(clients: &Clients, forks: Vec<v1::Fork>) -> Vec<RunHandle> {
    let handle = |fork: v1::Fork| RunHandle { run: Box::new(fork.run.unwrap()), clients: clients.clone() };
    forks.into_iter().map(handle).collect()
}

async fn checkpoints(clients: &mut Clients) -> usize {
    list(clients).await.len()
}

/// Runs a script, which must succeed. Returns its output.
async fn sh(run: &mut RunHandle, script: &str) -> String {
    let done = run.exec(&["sh", "-c", script]).await;
    assert_eq!(done.exit_code, Some(0), "{script}: {}", done.stderr);
    done.stdout
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Directory of the managed or cloned workspace of a run.
fn kept(daemon: &Daemon, run: &str) -> PathBuf {
    daemon.state_dir().join("workspaces").join(run)
}

fn ids(runs: &[RunHandle]) -> Vec<String> {
    runs.iter().map(|run| run.id().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn forks_of_a_live_run_begin_with_its_state_and_nothing_is_copied() {
    let daemon = Daemon::start().await;
    let request = v1::CreateRunRequest {
        env: [("MODE".to_owned(), "origin".to_owned()), ("LANG".to_owned(), "de".to_owned())].into(),
        secret_env: [("KEY".to_owned(), "open sesame".to_owned())].into(),
        labels: [("team".to_owned(), "a".to_owned())].into(),
        lease: Some(wire::duration(Duration::from_secs(600))),
        ..requests::managed("harness")
    };
    let mut run = daemon.run_on(request).await;
    sh(&mut run, "mkdir d; echo one >d/a.txt; chmod 750 d/a.txt; echo s >/state/s.txt; echo t >/tmp/t").await;
    run.start(script("sleep 1000")).await;
    let asked = v1::ForkRunRequest {
        env: [("MODE".to_owned(), "fork".to_owned())].into(),
        labels: [("try".to_owned(), "1".to_owned())].into(),
        issue_tokens: true,
        ..of_run(run.id(), 8)
    };
    let mut clients = daemon.connect().await;
    let made = ask(&mut clients, asked).await.unwrap();
    assert!(made.failures.is_empty() && made.forks.iter().all(|fork| !fork.token.is_empty()));
    let checkpoint = made.checkpoint.unwrap();
    assert_eq!((checkpoint.label.as_str(), checkpoint.run_id.as_str()), ("fork", run.id()));
    let mut forks = handles(&clients, made.forks);
    assert_eq!(forks.len(), 8);
    for (number, fork) in forks.iter_mut().enumerate() {
        let look =
            "cat d/a.txt /state/s.txt; stat -c %a d/a.txt; echo \"$MODE $LANG $KEY.\"; test ! -e /tmp/t; ls";
        assert_eq!(sh(fork, look).await, "one\ns\n750\nfork de .\nd\n", "{number}");
        let shown = fork.show().await;
        assert_eq!(
            (shown.state(), &shown.agent_id, &shown.role),
            (State::Ready, &run.run.agent_id, &run.run.role)
        );
        assert_eq!((shown.labels["team"].as_str(), shown.labels["try"].as_str()), ("a", "1"));
        assert_eq!((shown.lease, shown.secret_env.len()), (run.run.lease, 0));
        let on = v1::CheckpointWorkspace { checkpoint_id: checkpoint.checkpoint_id.clone() };
        assert_eq!(shown.workspace.unwrap().source, Some(Source::Checkpoint(on)));
        let from = shown.forked_from.unwrap();
        assert_eq!((from.checkpoint_id, from.run_id.as_str()), (checkpoint.checkpoint_id.clone(), run.id()));
        // The layer has no file of the origin.
        let layer = daemon.state_dir().join("overlays").join(fork.id()).join("upper");
        assert_eq!(std::fs::read_dir(layer).unwrap().count(), 0);
        assert!(!kept(&daemon, fork.id()).exists());
        let created = &clients.events(fork.id(), "run_created").await[0];
        let lineage = &record(created)["details"]["forked_from"];
        assert_eq!(lineage["checkpoint"].as_str(), Some(&*checkpoint.checkpoint_id));
    }

    // Each has its own changes.
    for (number, fork) in forks.iter_mut().enumerate() {
        fork.ok(calls::write("d/a.txt", &format!("fork {number}\n"))).await;
        sh(fork, &format!("echo {number} >own-{number}; echo {number} >/state/s.txt")).await;
    }
    for (number, fork) in forks.iter_mut().enumerate() {
        let seen = sh(fork, "cat d/a.txt /state/s.txt; ls | grep own").await;
        assert_eq!(seen, format!("fork {number}\n{number}\nown-{number}\n"));
        let changed: Vec<_> = fork.diff().await.changes.into_iter().map(|change| change.path).collect();
        assert_eq!(changed, ["d/a.txt".to_owned(), format!("own-{number}")]);
    }
    assert_eq!(sh(&mut run, "cat d/a.txt /state/s.txt").await, "one\ns\n", "the origin goes on");
    assert_eq!((run.show().await.state(), run.show().await.holds.len()), (State::Ready, 0));
    for mut ended in forks {
        ended.stop().await;
        ended.delete().await;
    }
    delete(&mut clients, &checkpoint.checkpoint_id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_finds_its_forks_and_makes_no_second_checkpoint() {
    let mut daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    sh(&mut run, "echo one >a.txt").await;
    let asked = v1::ForkRunRequest { request_id: "try".to_owned(), ..of_run(run.id(), 3) };
    let mut twice = daemon.connect().await;
    let (first, second) = tokio::join!(fork(&daemon, asked.clone()), ask(&mut twice, asked.clone()));
    let second = second.unwrap();
    let (forks, checkpoint) = first;
    assert_eq!(second.checkpoint.unwrap(), checkpoint);
    assert_eq!(ids(&handles(&twice, second.forks)), ids(&forks));
    assert_eq!(checkpoints(&mut twice).await, 1);
    let other = v1::ForkRunRequest { count: 4, ..asked.clone() };
    assert_eq!(reason(&ask(&mut twice, other).await.unwrap_err()), "ALREADY_EXISTS");

    // One of them is missing, as after the death of the daemon that made them.
    let mut missing = forks[1].clone();
    missing.stop().await;
    missing.delete().await;
    sh(&mut run, "echo later >a.txt").await;
    run.stop().await;
    daemon.relaunch().await;
    let (mut again, found) = fork(&daemon, asked).await;
    assert_eq!(found, checkpoint);
    let (before, after) = (ids(&forks), ids(&again));
    assert_eq!((&after[0], &after[2]), (&before[0], &before[2]));
    assert_ne!(after[1], before[1]);
    for fork in &mut again {
        assert_eq!(sh(fork, "cat a.txt").await, "one\n");
    }
    assert_eq!(checkpoints(&mut daemon.connect().await).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_changes_of_a_fork_go_into_the_workspace_of_its_origin() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    sh(&mut run, "mkdir d; for f in a b c d/gone d/kept; do echo one >$f; done").await;
    let (mut forks, _) = fork(&daemon, of_run(run.id(), 2)).await;
    sh(&mut run, "echo later >c; echo new >of-origin").await;
    let workspace = kept(&daemon, run.id());
    let [winner, other] = &mut forks[..] else { unreachable!() };
    sh(winner, "echo winner >a; rm d/gone; echo x >d/new; mkdir e; echo y >e/y").await;
    sh(other, "echo other >a; echo other >c").await;
    winner.stop().await;
    other.stop().await;

    // Not while a run may write there.
    let refused = winner.accept(false).await.unwrap_err();
    assert!(reason(&refused) == "PRECONDITION_FAILED" && refused.message().contains(run.id()), "{refused}");
    run.stop().await;
    let mut next = daemon.run_on(requests::kept("harness", run.id())).await;
    let refused = winner.accept(false).await.unwrap_err();
    assert!(refused.message().contains(next.id()), "{refused}");
    next.stop().await;

    let accepted = winner.accept(false).await.unwrap();
    assert_eq!(accepted.applied, 5);
    assert_eq!((read(workspace.join("a")), read(workspace.join("c"))), ("winner\n".into(), "later\n".into()));
    assert_eq!((read(workspace.join("d/new")), read(workspace.join("e/y"))), ("x\n".into(), "y\n".into()));
    assert!(!workspace.join("d/gone").exists() && workspace.join("d/kept").exists());
    assert_eq!(read(workspace.join("of-origin")), "new\n");
    let id = winner.id().to_owned();
    let events = winner.clients.events(&id, "workspace_change").await;
    let accepts: Vec<_> = events.iter().map(|event| record(event)["details"].clone()).collect();
    let done = accepts.iter().find(|details| details["phase"] == "done").unwrap();
    assert_eq!(done["into"].as_str(), Some(run.id()));
    assert_eq!(done["forked_from"]["run"].as_str(), Some(run.id()));
    assert_eq!(winner.accept(false).await.unwrap().applied, 0, "again is no error");

    // What the origin and the other fork have changed since is not overwritten.
    let refused = other.accept(false).await.unwrap_err();
    assert_eq!(reason(&refused), "PRECONDITION_FAILED");
    for name in ["a: ", "c: "] {
        assert!(refused.message().contains(name), "{refused}");
    }
    assert_eq!((read(workspace.join("a")), read(workspace.join("c"))), ("winner\n".into(), "later\n".into()));
    let request = v1::DeleteWorkspaceRequest { workspace_id: run.id().to_owned() };
    run.clients.runs.delete_workspace(request).await.unwrap();
    let refused = other.accept(true).await.unwrap_err();
    assert!(refused.message().contains("no longer exists"), "{refused}");
    assert_eq!(other.diff().await.total, 2, "they are shown beside the checkpoint");
    other.discard().await.unwrap();
    assert!(daemon.mounts().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_of_an_overlay_does_not_overwrite_what_the_host_changed_before_it() {
    let daemon = Daemon::start().await;
    let source = daemon.workspace("w", &[("a.txt", "one\n"), ("b.txt", "one\n")]);
    let mut run = daemon.run_on(requests::overlay("harness", &source)).await;
    sh(&mut run, "echo run >a.txt; echo run >b.txt").await;
    std::fs::write(source.join("a.txt"), "host\n").unwrap();
    let (mut forks, _) = fork(&daemon, of_run(run.id(), 1)).await;
    let mut child = forks.remove(0);
    // A fork of the fork is as old as the first run, too.
    let (mut forks, _) = fork(&daemon, of_run(child.id(), 1)).await;
    let mut grandchild = forks.remove(0);
    for run in [&mut child, &mut grandchild] {
        assert_eq!(sh(run, "cat a.txt b.txt").await, "run\nrun\n");
        run.stop().await;
        let refused = run.accept(false).await.unwrap_err();
        assert!(refused.message().contains("a.txt: ") && !refused.message().contains("b.txt"), "{refused}");
        assert_eq!(
            (read(source.join("a.txt")), read(source.join("b.txt"))),
            ("host\n".into(), "one\n".into())
        );
    }
    std::fs::remove_file(source.join("a.txt")).unwrap();
    grandchild.discard().await.unwrap();
    child.accept(true).await.unwrap();
    assert_eq!(read(source.join("b.txt")), "run\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_is_kept_while_forks_need_it_and_forks_of_forks_need_one_copy() {
    let daemon = Daemon::start().await;
    let mut clients = daemon.connect().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    sh(&mut run, "echo 1 >one; echo 1 >gone; mkdir d; echo 1 >d/hidden").await;
    let (mut forks, first) = fork(&daemon, of_run(run.id(), 1)).await;
    let mut child = forks.remove(0);
    sh(&mut child, "echo 2 >two; rm gone; rm -r d; mkdir d; echo 2 >d/new").await;
    let (mut forks, second) = fork(&daemon, of_run(child.id(), 1)).await;
    let mut grandchild = forks.remove(0);
    assert_eq!(sh(&mut grandchild, "cat one two; ls; ls d").await, "1\n2\nd\none\ntwo\nnew\n");
    let on = |run: &v1::Run| match run.workspace.as_ref().unwrap().source.as_ref().unwrap() {
        Source::Checkpoint(on) => on.checkpoint_id.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!([on(&child.run), on(&grandchild.run)], [&*first.checkpoint_id, &*first.checkpoint_id]);
    assert_eq!(grandchild.show().await.forked_from.unwrap().run_id, child.id());

    let mut refused = async |id: &str, why: &str| {
        let refused = delete(&mut clients, id).await.unwrap_err();
        assert!(reason(&refused) == "PRECONDITION_FAILED" && refused.message().contains(why), "{refused}");
    };
    let first = first.checkpoint_id;
    run.stop().await;
    run.delete().await;
    refused(&first, "is on the checkpoint").await;
    child.stop().await;
    child.discard().await.unwrap();
    grandchild.stop().await;
    // It has changes that came with its checkpoint.
    refused(&first, grandchild.id()).await;
    grandchild.discard().await.unwrap();
    // The second checkpoint has the changes on the first one.
    refused(&first, child.id()).await;
    delete(&mut clients, &second.checkpoint_id).await.unwrap();
    delete(&mut clients, &first).await.unwrap();
    assert_eq!(std::fs::read_dir(daemon.state_dir().join("checkpoints")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_outlives_the_daemon_on_its_checkpoint() {
    let mut daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    sh(&mut run, "echo one >a.txt").await;
    let (mut forks, checkpoint) = fork(&daemon, of_run(run.id(), 1)).await;
    sh(&mut forks[0], "echo two >b.txt").await;
    daemon.relaunch().await;
    let mut clients = daemon.connect().await;
    let mut forked = RunHandle { clients: clients.clone(), ..forks.remove(0) };
    let shown = forked.show().await;
    assert_eq!((shown.state(), shown.restarts), (State::Ready, 1), "{}", shown.failure);
    assert_eq!(sh(&mut forked, "cat a.txt b.txt").await, "one\ntwo\n");
    assert_eq!(forked.diff().await.total, 1);
    assert!(delete(&mut clients, &checkpoint.checkpoint_id).await.is_err());
    let listed = clients.runs.list_workspaces(v1::ListWorkspacesRequest::default()).await.unwrap();
    let listed = listed.into_inner().workspaces;
    let kinds: Vec<_> = listed.iter().map(|kept| (&*kept.workspace_id, &*kept.kind)).collect();
    assert_eq!(kinds, [(forked.id(), "checkpoint"), (run.id(), "managed")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_and_waiting_runs_can_be_forked_and_ended_ones_from_their_checkpoints() {
    let daemon = Daemon::start().await;
    let mut clients = daemon.connect().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    sh(&mut run, "echo one >a.txt").await;
    let pause = v1::PauseRunRequest { run_id: run.id().to_owned() };
    clients.runs.pause_run(pause).await.unwrap();
    let (mut forks, checkpoint) = fork(&daemon, of_run(run.id(), 2)).await;
    assert_eq!(sh(&mut forks[1], "cat a.txt").await, "one\n");
    assert_eq!(run.show().await.state(), State::Paused);
    run.stop().await;
    let refused = ask(&mut clients, of_run(run.id(), 1)).await.unwrap_err();
    assert!(reason(&refused) == "RUN_NOT_READY" && refused.message().contains("checkpoint_id"), "{refused}");
    // The settings of the run are in its checkpoint.
    run.delete().await;
    let (mut forks, _) = fork(&daemon, of_checkpoint(&checkpoint.checkpoint_id, 1)).await;
    assert_eq!(sh(&mut forks[0], "cat a.txt").await, "one\n");

    // Consents are not inherited, and neither are requests for them.
    let waiting = daemon.run_on(requests::managed("review")).await;
    let written = waiting.waits(calls::write("a.txt", "two\n"));
    let id = waiting.id().to_owned();
    let approval = clients.pending_approval(&id).await;
    let (mut forks, _) = fork(&daemon, of_run(&id, 1)).await;
    let asked = forks[0].asks(calls::write("a.txt", "two\n")).await;
    assert_ne!(asked.approval_id, approval.approval_id);
    clients.approve(&approval.approval_id).await.unwrap();
    written.await.unwrap().unwrap();
    assert!(clients.approvals_pending(&asked.approval_id).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_over_its_quota_can_be_forked() {
    let daemon = Daemon::start().await;
    let limits = Some(v1::Limits { disk_bytes: 2 << 20, ..Default::default() });
    let mut run = daemon.run_on(v1::CreateRunRequest { limits, ..requests::managed("harness") }).await;
    sh(&mut run, "echo one >a.txt").await;
    // It may be refused, or ended in the middle.
    let _ = run.call(calls::shell("head -c 4000000 /dev/zero >big; head -c 4000000 /dev/zero >more")).await;
    let (mut forks, _) = fork(&daemon, of_run(run.id(), 1)).await;
    // The copy beneath its layer is not in its quota.
    assert_eq!(sh(&mut forks[0], "cat a.txt; echo two >b.txt; cat b.txt").await, "one\ntwo\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_forks_are_made_as_there_is_room_for_and_bad_requests_are_refused() {
    let config = "limits: { runs: 4 }\naccess: [{ uid: 4321, roles: [orchestrator] }]\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Setup::default() }).await;
    daemon.expose();
    let mut clients = daemon.connect().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    sh(&mut run, "echo one >a.txt").await;
    let id = run.id().to_owned();
    let high = v1::Limits { pids: run.run.limits.unwrap().pids + 1, ..Default::default() };
    let token = format!("ghp_{}", "aB3dE6gH9jK2mN5pQ8sT1vW4xY7zA0cD3fG6");
    let none = "0190b0c0-0000-7000-8000-000000000001";
    for (request, why) in [
        (of_run(&id, 0), "INVALID_ARGUMENT"),
        (of_run(&id, 101), "INVALID_ARGUMENT"),
        (of_run(&id, 10_000), "INVALID_ARGUMENT"),
        (v1::ForkRunRequest { count: 1, ..Default::default() }, "INVALID_ARGUMENT"),
        (v1::ForkRunRequest { request_id: "x".repeat(121), ..of_run(&id, 1) }, "INVALID_ARGUMENT"),
        (v1::ForkRunRequest { limits: Some(high), ..of_run(&id, 2) }, "INVALID_ARGUMENT"),
        (v1::ForkRunRequest { env: [("A".to_owned(), token)].into(), ..of_run(&id, 2) }, "INVALID_ARGUMENT"),
        (of_run(none, 1), "NOT_FOUND"),
        (of_checkpoint(none, 1), "NOT_FOUND"),
        (of_run("", 1), "INVALID_ARGUMENT"),
    ] {
        let refused = ask(&mut clients, request).await.unwrap_err();
        assert_eq!(reason(&refused), why, "{refused}");
    }
    assert_eq!(checkpoints(&mut clients).await, 0, "nothing is left of a refused request");

    let asked = v1::ForkRunRequest { request_id: "many".to_owned(), ..of_run(&id, 8) };
    let made = ask(&mut clients, asked.clone()).await.unwrap();
    assert_eq!(made.forks.len(), 3, "{:?}", made.failures);
    let failures: Vec<_> =
        made.failures.iter().map(|failure| (failure.reason.as_str(), failure.count)).collect();
    assert_eq!(failures, [("OVERLOADED", 5)]);
    let refused = ask(&mut clients, of_run(&id, 2)).await.unwrap_err();
    assert_eq!(reason(&refused), "OVERLOADED");
    assert_eq!(checkpoints(&mut clients).await, 1);
    // Those that were made are found again.
    let again = ask(&mut clients, asked).await.unwrap();
    assert_eq!(again.checkpoint, made.checkpoint);
    let found = handles(&clients, again.forks);
    assert_eq!(ids(&found), ids(&handles(&clients, made.forks)));

    let checkpoint = made.checkpoint.unwrap().checkpoint_id;
    as_user(4321, &daemon.socket(), async move |mut clients| {
        for request in [of_run(&id, 1), of_checkpoint(&checkpoint, 1)] {
            assert_eq!(reason(&ask(&mut clients, request).await.unwrap_err()), "NOT_FOUND");
        }
    })
    .await;
}
