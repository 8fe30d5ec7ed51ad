//! Restores: a live run gets the files of a checkpoint again.

use std::time::Duration;

use harness::forks::{checkpoint, restore};
use harness::process::script;
use harness::v1::run::State;
use harness::{Clients, Daemon, RunHandle, calls, reason, record, requests, until, v1};

use crate::cli::out;

async fn make(clients: &mut Clients, run: &str) -> v1::RunCheckpoint {
    checkpoint(clients, run).await.unwrap()
}

/// Returns all names in the workspace and in `/state`, with modes and contents.
async fn walk(run: &mut RunHandle) -> String {
    let look = "cd /workspace; find . | sort | while read -r name; do stat -c '%n %a %F' \"$name\"; \
                [ -L \"$name\" ] && readlink \"$name\"; [ -f \"$name\" ] && cat \"$name\"; done; \
                cat /state/s.txt; ls /state";
    run.exec(&["sh", "-c", look]).await.stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_gets_the_files_of_a_checkpoint_and_of_the_state_before_again() {
    let daemon = Daemon::start().await;
    let files = [("a.txt", "one\n"), ("gone.txt", "bye\n"), ("d/x.txt", "x\n"), ("e/y.txt", "y\n")];
    let source = daemon.workspace("w", &files);
    let base = daemon.base(&source).await;
    let mut clients = daemon.connect().await;
    for request in [
        requests::managed("harness"),
        requests::overlay("harness", &source),
        requests::base("harness", &base),
    ] {
        let mut run = daemon.run_on(request).await;
        let change = "echo two >a.txt; rm -f gone.txt; rm -rf d; mkdir d; echo z >d/z.txt; chmod 750 d; \
                      ln -s a.txt link; echo s >/state/s.txt";
        assert_eq!(run.exec(&["sh", "-c", change]).await.exit_code, Some(0));
        let (made, then) = (make(&mut clients, run.id()).await, walk(&mut run).await);
        let change = "echo three >a.txt; echo back >gone.txt; rm -rf d e; echo f >d; mkdir -p new/deep; \
                      echo n >new/deep/n; ln -sf /etc/passwd link; echo later >/state/s.txt; echo >/state/new; \
                      mkfifo fifo; mkdir -m 500 closed";
        assert_eq!(run.exec(&["sh", "-c", change]).await.exit_code, Some(0));
        let later = walk(&mut run).await.lines().filter(|line| !line.contains("fifo")).collect::<String>();

        let done = restore(&mut clients, run.id(), &made.checkpoint_id).await.unwrap();
        let before = done.before.unwrap();
        assert_eq!((before.label.as_str(), done.run.unwrap().state()), ("before restore", State::Ready));
        assert_eq!(walk(&mut run).await, then, "{:?}", run.run.workspace);
        run.ok(calls::write("w.txt", "written\n")).await;
        restore(&mut clients, run.id(), &before.checkpoint_id).await.unwrap();
        assert_eq!(walk(&mut run).await.lines().collect::<String>(), later, "{:?}", run.run.workspace);

        let events = clients.events(run.id(), "workspace_change").await;
        let details = events.iter().map(|event| record(event)["details"].clone());
        let own: Vec<_> = details.filter(|details| details["action"] == "restore").collect();
        let phases: Vec<_> = own.iter().map(|details| details["phase"].as_str().unwrap()).collect();
        assert_eq!(phases, ["begun", "done", "begun", "done"]);
        assert_eq!(own[1]["digest"].as_str(), Some(&*made.digest));
        assert_eq!(own[1]["before_digest"].as_str(), Some(&*before.digest));
        run.stop().await;
    }
    assert_eq!(std::fs::read_to_string(source.join("a.txt")).unwrap(), "one\n");
    assert!(daemon.mounts().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_changes_after_a_restore_are_those_at_the_checkpoint() {
    let daemon = Daemon::start().await;
    let source = daemon.workspace("w", &[("a.txt", "one\n"), ("d/x.txt", "x\n"), ("e.txt", "e\n")]);
    let mut run = daemon.run_on(requests::overlay("harness", &source)).await;
    run.exec(&["sh", "-c", "echo two >a.txt; rm e.txt"]).await;
    let mut clients = daemon.connect().await;
    let made = make(&mut clients, run.id()).await;
    let then = out(&daemon, &["run", "diff", run.id()]).await;
    run.exec(&["sh", "-c", "rm -r a.txt d; echo e >e.txt; echo >new; mkdir d; echo >d/own"]).await;
    assert_ne!(out(&daemon, &["run", "diff", run.id()]).await, then);
    // The end of the id, as `coffer checkpoint list` prints it.
    let end = &made.checkpoint_id[made.checkpoint_id.len() - 8..];
    let printed = out(&daemon, &["run", "restore", run.id(), end]).await;
    assert_eq!(printed.trim().len(), 36);
    assert_eq!(out(&daemon, &["run", "diff", run.id()]).await, then);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_ends_20_writers_and_no_write_of_theirs_is_left() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    run.ok(calls::write("a.txt", "one\n")).await;
    let mut clients = daemon.connect().await;
    let made = make(&mut clients, run.id()).await;
    let writers = "for i in $(seq 20); do (while :; do echo $i >f$i; mv f$i g$i; done) & done; wait";
    let process = run.start(script(writers)).await;
    until("the writers have not begun", async || {
        run.exec(&["sh", "-c", "ls | grep -c '^[fg]'"]).await.stdout.trim() != "0"
    })
    .await;
    let done = restore(&mut clients, run.id(), &made.checkpoint_id).await.unwrap();
    assert_eq!((done.ended_processes, done.before.unwrap().processes), (1, vec![process.process_id]));
    for _ in 0..3 {
        assert_eq!(run.exec(&["ls"]).await.stdout, "a.txt\n");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_is_refused_with_its_reason_and_changes_nothing() {
    let daemon = Daemon::start().await;
    let mut clients = daemon.connect().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let mut other = daemon.run_on(requests::managed("harness")).await;
    run.ok(calls::write("a.txt", "one\n")).await;
    let (made, of_other) = (make(&mut clients, run.id()).await, make(&mut clients, other.id()).await);
    let refused = restore(&mut clients, run.id(), &of_other.checkpoint_id).await.unwrap_err();
    assert!(
        reason(&refused) == "PRECONDITION_FAILED" && refused.message().contains("another run"),
        "{refused}"
    );
    let none = "0190b0c0-0000-7000-8000-000000000001";
    assert_eq!(reason(&restore(&mut clients, run.id(), none).await.unwrap_err()), "NOT_FOUND");
    // A state that cannot be kept is not replaced.
    run.exec(&["sh", "-c", "echo two >a.txt; mkdir -p deep/$(seq -s / 140)"]).await;
    let refused = restore(&mut clients, run.id(), &made.checkpoint_id).await.unwrap_err();
    assert!(refused.message().contains("deep/1/2"), "{refused}");
    assert_eq!(run.exec(&["cat", "a.txt"]).await.stdout, "two\n");
    assert_eq!((run.show().await.state(), run.show().await.holds.len()), (State::Ready, 0));
    // A run may go back to what it began with.
    let mut fork = daemon.run_on(requests::checkpoint("harness", &made.checkpoint_id)).await;
    fork.ok(calls::write("a.txt", "of the fork\n")).await;
    restore(&mut clients, fork.id(), &made.checkpoint_id).await.unwrap();
    assert_eq!(fork.exec(&["cat", "a.txt"]).await.stdout, "one\n");
    run.stop().await;
    let refused = restore(&mut clients, run.id(), &made.checkpoint_id).await.unwrap_err();
    assert_eq!(reason(&refused), "RUN_NOT_READY");
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_whose_daemon_is_killed_is_completed_or_has_changed_nothing() {
    const FILES: usize = 3_000;
    let mut daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let fill = |word: &str| format!("for i in $(seq {FILES}); do echo {word} >f$i; done");
    assert_eq!(run.exec(&["sh", "-c", &fill("one")]).await.exit_code, Some(0));
    let made = make(&mut daemon.connect().await, run.id()).await;
    for wait in [0, 20, 60, 120, 200, 300, 450, 700] {
        assert_eq!(run.exec(&["sh", "-c", &fill("two")]).await.exit_code, Some(0));
        let (mut clients, id, to) = (daemon.connect().await, run.id().to_owned(), made.checkpoint_id.clone());
        let restoring = tokio::spawn(async move { restore(&mut clients, &id, &to).await });
        tokio::time::sleep(Duration::from_millis(wait)).await;
        daemon.kill().await;
        let was_done = restoring.await.unwrap().is_ok();
        daemon.launch().await;
        run = RunHandle { clients: daemon.connect().await, ..run };
        let shown = run.show().await;
        assert_eq!((shown.state(), shown.holds.len()), (State::Ready, 0), "{wait}: {}", shown.failure);
        let seen = run.exec(&["sh", "-c", "cat f* | sort | uniq -c"]).await.stdout;
        let seen: Vec<&str> = seen.split_whitespace().collect();
        let files = FILES.to_string();
        assert!(seen == [&*files, "one"] || (!was_done && seen == [&*files, "two"]), "{wait}: {seen:?}");
    }
}
