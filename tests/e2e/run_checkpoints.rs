//! Checkpoints: what a run has changed, from one moment.

use std::path::{Path, PathBuf};

use harness::forks::{checkpoint as make, delete, list, trees};
use harness::process::script;
use harness::v1::checkpoint_part::Kind;
use harness::v1::run::{Changes, State};
use harness::{
    Clients, Daemon, RunHandle, Setup, as_user, calls, debian, reason, record, requests, until, v1,
};

use crate::cli::{json, out};

fn at(daemon: &Daemon, checkpoint: &v1::RunCheckpoint, name: &str) -> PathBuf {
    daemon.state_dir().join("checkpoints").join(&checkpoint.checkpoint_id).join(name)
}

fn read(path: &Path) -> String {
    String::from_utf8(std::fs::read(path).unwrap()).unwrap()
}

fn kinds(checkpoint: &v1::RunCheckpoint) -> Vec<Kind> {
    checkpoint.parts.iter().map(v1::CheckpointPart::kind).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_has_the_changes_of_workspace_and_state_and_the_run_goes_on() {
    let daemon = Daemon::start().await;
    let source = daemon.workspace("w", &[("a.txt", "one\n"), ("gone.txt", "bye\n"), ("d/x.txt", "x\n")]);
    let base = daemon.base(&source).await;
    let mut run = daemon.run_on(requests::base("harness", &base)).await;
    let change = "echo two >a.txt; rm gone.txt; rm -r d; mkdir d; echo y >d/y.txt; echo s >/state/s.txt";
    assert_eq!(run.exec(&["sh", "-c", change]).await.exit_code, Some(0));
    let process = run.start(script("sleep 1000")).await;
    let mut clients = daemon.connect().await;
    let made = make(&mut clients, run.id()).await.unwrap();

    assert_eq!((made.run_id.as_str(), made.principal.as_str()), (run.id(), "uid:0"));
    assert_eq!((&kinds(&made)[..2], made.processes.len()), (&[Kind::Workspace, Kind::State][..], 1));
    assert_eq!(made.processes, std::slice::from_ref(&process.process_id));
    assert!(made.frozen_us > 0 && made.digest.len() == 64, "{made:?}");
    let workspace = |name: &str| at(&daemon, &made, "workspace").join(name);
    assert_eq!(
        (read(&workspace("files/a.txt")), read(&workspace("files/d/y.txt"))),
        ("two\n".into(), "y\n".into())
    );
    assert_eq!(read(&workspace("marks")), "od\0wgone.txt\0");
    assert!(!workspace("files/gone.txt").exists() && !workspace("files/d/x.txt").exists());
    assert_eq!(read(&at(&daemon, &made, "state/files/s.txt")), "s\n");

    // The run goes on, and the checkpoint does not change with it.
    assert_eq!((run.show().await.state(), run.show().await.holds.len()), (State::Ready, 0));
    run.ok(calls::write("a.txt", "three\n")).await;
    assert_eq!(read(&workspace("files/a.txt")), "two\n");
    let second = make(&mut clients, run.id()).await.unwrap();
    assert_ne!(second.digest, made.digest);
    let ids: Vec<_> = list(&mut clients).await.into_iter().map(|found| found.checkpoint_id).collect();
    assert_eq!(ids, [second.checkpoint_id.clone(), made.checkpoint_id.clone()]);

    let events = clients.events(run.id(), "workspace_change").await;
    let phases: Vec<String> = events
        .iter()
        .map(|event| record(event)["details"].clone())
        .filter(|details| details["checkpoint"] == made.checkpoint_id.as_str())
        .map(|details| details["phase"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(phases, ["begun", "done"]);
    assert_eq!(record(&events[1])["details"]["digest"].as_str(), Some(&*made.digest));

    // They keep the base of their run, and go with the run at the latest.
    run.stop().await;
    run.discard().await.unwrap();
    let request = v1::DeleteBaseRequest { base_id: base };
    let refused = clients.bases.delete_base(request.clone()).await.unwrap_err();
    assert!(
        reason(&refused) == "PRECONDITION_FAILED" && refused.message().contains("checkpoints"),
        "{refused}"
    );
    for id in ids {
        delete(&mut clients, &id).await.unwrap();
        assert_eq!(reason(&delete(&mut clients, &id).await.unwrap_err()), "NOT_FOUND");
    }
    clients.bases.delete_base(request).await.unwrap();
    assert!(trees(&daemon).is_empty() && list(&mut clients).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_beside_20_writers_is_one_moment_of_the_run() {
    const WRITERS: usize = 20;
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    // Each writer counts in its first file before its last one, and the many names between them take time to copy.
    let prepared = "for i in $(seq 1500); do echo x >m$i; done";
    assert_eq!(run.exec(&["sh", "-c", prepared]).await.exit_code, Some(0));
    let writer = |name: usize| {
        format!(
            "n=0; while :; do n=$((n+1)); echo $n >.t{name}; mv .t{name} a{name}; echo $n >.t{name}; mv .t{name} z{name}; done"
        )
    };
    let all: Vec<String> = (0..WRITERS).map(|name| format!("({}) &", writer(name))).collect();
    run.start(script(&format!("{} wait", all.join(" ")))).await;
    let mut clients = daemon.connect().await;
    until("the writers have not begun", async || {
        run.exec(&["sh", "-c", "ls | grep -c '^z'"]).await.stdout.trim() == WRITERS.to_string()
    })
    .await;
    for _ in 0..5 {
        let made = make(&mut clients, run.id()).await.unwrap();
        for name in 0..WRITERS {
            let count = |kind: &str| {
                let text = read(&at(&daemon, &made, "workspace/files").join(format!("{kind}{name}")));
                text.trim().parse::<u64>().unwrap_or_else(|_| panic!("half of a file: {text:?}"))
            };
            let (first, last) = (count("a"), count("z"));
            assert!(first == last || first == last + 1, "writer {name}: {first} and {last}");
        }
    }
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_wait_for_a_checkpoint_and_none_is_refused() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let filled = "for i in $(seq 3000); do echo x >f$i; done";
    assert_eq!(run.exec(&["sh", "-c", filled]).await.exit_code, Some(0));
    let (mut clients, id) = (daemon.connect().await, run.id().to_owned());
    let making = tokio::spawn(async move {
        for _ in 0..5 {
            make(&mut clients, &id).await.unwrap();
        }
    });
    let mut number = 0;
    while !making.is_finished() {
        number += 1;
        run.ok(calls::write("w.txt", &format!("{number}\n"))).await;
        assert_eq!(run.exec(&["cat", "w.txt"]).await.stdout, format!("{number}\n"));
    }
    making.await.unwrap();
    assert!(number > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_is_refused_with_its_reason_and_leaves_nothing() {
    let bounds = "checkpoints: { max_per_run: 1, max_bytes: 2MiB, max_bytes_per_principal: 1MiB }\n\
                  harness_on_bind: allow\n";
    let daemon = Daemon::start_with(Setup { config: bounds.to_owned(), ..Setup::default() }).await;
    let mut clients = daemon.connect().await;
    let source = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut bind = daemon.run("open", &source).await;
    let refused = make(&mut clients, bind.id()).await.unwrap_err();
    assert!(reason(&refused) == "PRECONDITION_FAILED" && refused.message().contains("bind"), "{refused}");
    assert!(!refused.message().contains(&*daemon.roots().to_string_lossy()), "{refused}");
    bind.stop().await;
    assert_eq!(reason(&make(&mut clients, bind.id()).await.unwrap_err()), "RUN_NOT_READY");
    let none = "0190b0c0-0000-7000-8000-000000000001";
    assert_eq!(reason(&make(&mut clients, none).await.unwrap_err()), "NOT_FOUND");

    let mut run = daemon.run_on(requests::managed("harness")).await;
    let id = run.id().to_owned();
    for label in ["a\nb".to_owned(), "x".repeat(201)] {
        let request = v1::CheckpointRunRequest { run_id: id.clone(), label };
        let refused = clients.checkpoints.checkpoint_run(request).await.unwrap_err();
        assert_eq!(reason(&refused), "INVALID_ARGUMENT", "{refused}");
    }
    run.exec(&["sh", "-c", "mkdir -p deep/$(seq -s / 140)"]).await;
    let refused = make(&mut clients, &id).await.unwrap_err();
    assert!(reason(&refused) == "PRECONDITION_FAILED" && refused.message().contains("deep/1/2"), "{refused}");
    run.exec(&["sh", "-c", "rm -r deep; head -c 2000000 /dev/zero >large"]).await;
    let refused = make(&mut clients, &id).await.unwrap_err();
    assert!(refused.message().contains("larger than 1 MiB"), "{refused}");
    assert!(trees(&daemon).is_empty() && list(&mut clients).await.is_empty());
    assert_eq!((run.show().await.state(), run.show().await.holds.len()), (State::Ready, 0));

    run.exec(&["rm", "large"]).await;
    let made = make(&mut clients, &id).await.unwrap();
    let refused = make(&mut clients, &id).await.unwrap_err();
    assert!(reason(&refused) == "WRITE_LIMIT" && refused.message().contains("max_per_run"), "{refused}");
    delete(&mut clients, &made.checkpoint_id).await.unwrap();
    make(&mut clients, &id).await.unwrap();
}

/// Makes a run with a file of so many bytes. Returns its id.
async fn filled(clients: &mut Clients, bytes: u64) -> String {
    let made = clients.runs.create_run(requests::managed("harness")).await.unwrap().into_inner();
    let mut run = RunHandle { run: Box::new(made.run.unwrap()), clients: clients.clone() };
    let fill = format!("head -c {bytes} /dev/zero >f");
    assert_eq!(run.exec(&["sh", "-c", &fill]).await.exit_code, Some(0));
    run.id().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_checkpoints_of_a_principal_are_bounded_and_leave_room_for_those_of_others() {
    const MOST: u64 = 2 << 20;
    const FIRST: u64 = 1_500_000;
    let config = "access: [{ uid: 4321, roles: [orchestrator] }, { uid: 4322, roles: [orchestrator] }]\n\
                  checkpoints: { max_bytes: 4MiB, max_bytes_per_principal: 2MiB }\n";
    let daemon = Daemon::start_with(Setup { config: config.to_owned(), ..Setup::default() }).await;
    daemon.expose();
    as_user(4321, &daemon.socket(), async move |mut clients| {
        let one = filled(&mut clients, FIRST).await;
        let made = make(&mut clients, &one).await.unwrap();
        let refused = make(&mut clients, &one).await.unwrap_err();
        assert!(refused.message().contains("larger than 0 MiB"), "no more than is left is copied: {refused}");
        // Runs count together.
        let other_files = made.size_bytes - FIRST;
        let two = filled(&mut clients, MOST - made.size_bytes - other_files).await;
        let second = make(&mut clients, &two).await.unwrap();
        assert_eq!(made.size_bytes + second.size_bytes, MOST);
        let refused = make(&mut clients, &two).await.unwrap_err();
        assert_eq!(reason(&refused), "WRITE_LIMIT", "{refused}");
        assert!(refused.message().contains("checkpoints.max_bytes_per_principal"), "{refused}");
        delete(&mut clients, &made.checkpoint_id).await.unwrap();
        make(&mut clients, &one).await.unwrap();
    })
    .await;
    as_user(4322, &daemon.socket(), async move |mut clients| {
        let run = filled(&mut clients, FIRST).await;
        make(&mut clients, &run).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_exists_for_the_owner_of_its_run_and_for_operators_alone() {
    let access = "access: [{ uid: 4321, roles: [orchestrator] }, { uid: 4322, roles: [orchestrator] }]\n";
    let daemon = Daemon::start_with(Setup { config: access.to_owned(), ..Setup::default() }).await;
    daemon.expose();
    let (run, made) = as_user(4321, &daemon.socket(), async move |mut clients| {
        let run = clients.runs.create_run(requests::managed("harness")).await.unwrap();
        let run = run.into_inner().run.unwrap().run_id;
        let made = make(&mut clients, &run).await.unwrap();
        (run, made)
    })
    .await;
    let (id, of) = (made.checkpoint_id.clone(), run.clone());
    as_user(4322, &daemon.socket(), async move |mut clients| {
        assert!(list(&mut clients).await.is_empty());
        let get = v1::GetRunCheckpointRequest { checkpoint_id: id.clone() };
        for refused in [
            make(&mut clients, &of).await.unwrap_err(),
            clients.checkpoints.get_run_checkpoint(get).await.unwrap_err(),
            delete(&mut clients, &id).await.unwrap_err(),
        ] {
            assert_eq!(reason(&refused), "NOT_FOUND", "{refused}");
        }
    })
    .await;
    let shown = json(&daemon, &["checkpoint", "show", &made.checkpoint_id[28..]]).await;
    assert_eq!(shown["checkpoint"]["digest"].as_str(), Some(&*made.digest));
    let second = out(&daemon, &["checkpoint", "create", &run, "--label", "by an operator"]).await;
    let listed = json(&daemon, &["checkpoint", "list", "--run", &run]).await;
    let listed = listed["checkpoints"].as_array().unwrap();
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0]["checkpointId"].as_str(), Some(second.trim()));
    assert_eq!(
        (listed[0]["label"].as_str(), listed[0]["madeBy"].as_str()),
        (Some("by an operator"), Some("uid:0"))
    );
    assert_eq!(listed[0]["principal"].as_str(), Some("uid:4321"));
    out(&daemon, &["checkpoint", "delete", second.trim(), &made.checkpoint_id]).await;
    assert!(trees(&daemon).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_whose_daemon_is_killed_meanwhile_leaves_nothing_and_the_run_continues() {
    let mut daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let filled = "for i in $(seq 10000); do echo x >f$i; done";
    assert_eq!(run.exec(&["sh", "-c", filled]).await.exit_code, Some(0));
    for reached in [0, 1, 500, 5_000, 9_000] {
        let (mut clients, id) = (daemon.connect().await, run.id().to_owned());
        let making = tokio::spawn(async move { make(&mut clients, &id).await });
        let checkpoints = daemon.state_dir().join("checkpoints");
        until("the copy does not begin", async || {
            let part = trees(&daemon).into_iter().find(|name| name.contains(".part"));
            let count = |name: String| {
                std::fs::read_dir(checkpoints.join(name).join("workspace/files")).map_or(0, Iterator::count)
            };
            making.is_finished() || part.is_some_and(|name| count(name) >= reached)
        })
        .await;
        daemon.kill().await;
        let was_made = making.await.unwrap().is_ok();
        daemon.launch().await;
        let mut clients = daemon.connect().await;
        run = RunHandle { clients: clients.clone(), ..run };
        let shown = run.show().await;
        assert_eq!((shown.state(), shown.holds.len()), (State::Ready, 0), "{reached}: {}", shown.failure);
        assert_eq!(run.exec(&["cat", "f1"]).await.stdout, "x\n");
        let listed = list(&mut clients).await;
        // An answer may be lost with the daemon, and a checkpoint that was answered may not.
        assert!(listed.len() <= 1 && listed.len() >= usize::from(was_made), "{reached}: {listed:?}");
        until("a part of a checkpoint is left", async || trees(&daemon).len() == listed.len()).await;
        for checkpoint in listed {
            assert_eq!(checkpoint.parts[0].files, 10_001, "{reached}");
            delete(&mut clients, &checkpoint.checkpoint_id).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_on_one_checkpoint_begin_with_its_files_and_each_has_its_own_changes() {
    let daemon = Daemon::start().await;
    let source = daemon.workspace("w", &[("a.txt", "one\n"), ("gone.txt", "bye\n"), ("d/x.txt", "x\n")]);
    let base = daemon.base(&source).await;
    let mut clients = daemon.connect().await;
    for request in [
        requests::base("harness", &base),
        requests::overlay("harness", &source),
        requests::managed("harness"),
    ] {
        let mut run = daemon.run_on(request).await;
        let change = "echo two >a.txt; rm -f gone.txt; rm -rf d; mkdir d; echo y >d/y.txt; chmod 750 d/y.txt; \
                      ln -s a.txt link; echo s >/state/s.txt";
        assert_eq!(run.exec(&["sh", "-c", change]).await.exit_code, Some(0));
        let made = make(&mut clients, run.id()).await.unwrap();
        run.exec(&["sh", "-c", "echo later >a.txt; echo later >/state/s.txt"]).await;
        let mut one = daemon.run_on(requests::checkpoint("harness", &made.checkpoint_id)).await;
        let mut other = daemon.run_on(requests::checkpoint("harness", &made.checkpoint_id)).await;
        let look = ["sh", "-c", "ls; cat a.txt d/y.txt link /state/s.txt; stat -c %a d/y.txt; ls d"];
        let seen = one.exec(&look).await.stdout;
        assert_eq!(seen, "a.txt\nd\nlink\ntwo\ny\ntwo\ns\n750\ny.txt\n", "{:?}", one.run.workspace);
        one.ok(calls::write("a.txt", "of one\n")).await;
        assert_eq!(other.exec(&look).await.stdout, seen);
        assert_eq!(run.exec(&["cat", "a.txt"]).await.stdout, "later\n");
        let from = other.show().await.forked_from.unwrap();
        assert_eq!((from.checkpoint_id.as_str(), from.run_id.as_str()), (&*made.checkpoint_id, run.id()));
        let created = &clients.events(other.id(), "run_created").await[0];
        assert_eq!(
            record(created)["details"]["forked_from"]["checkpoint"].as_str(),
            Some(&*made.checkpoint_id)
        );
        // A run on a checkpoint of a fork has what came with both.
        other.ok(calls::write("b.txt", "of other\n")).await;
        let again = make(&mut clients, other.id()).await.unwrap();
        let mut third = daemon.run_on(requests::checkpoint("harness", &again.checkpoint_id)).await;
        assert_eq!(third.exec(&["cat", "a.txt", "d/y.txt", "b.txt"]).await.stdout, "two\ny\nof other\n");
        for mut ended in [run, one, other, third] {
            ended.stop().await;
            if ended.show().await.changes() == Changes::Pending {
                ended.discard().await.unwrap();
            }
        }
        for checkpoint in [again, made] {
            delete(&mut clients, &checkpoint.checkpoint_id).await.unwrap();
        }
    }
    let none = requests::checkpoint("harness", "0190b0c0-0000-7000-8000-000000000001");
    assert_eq!(reason(&daemon.run_with(none).await.err().unwrap()), "NOT_FOUND");
    let bad = requests::checkpoint("harness", "x");
    assert_eq!(reason(&daemon.run_with(bad).await.err().unwrap()), "INVALID_ARGUMENT");
    // What came from the host has not changed.
    assert_eq!(read(&source.join("a.txt")), "one\n");
    assert!(source.join("gone.txt").exists() && daemon.mounts().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_on_a_checkpoint_has_the_changes_of_a_writable_root_and_needs_its_image() {
    let daemon = Daemon::start().await;
    let with_image = |request| v1::CreateRunRequest { image: debian(), ..request };
    let mut run = daemon.run_on(with_image(requests::managed("harness"))).await;
    let change = "echo '#!/bin/sh' >/usr/local/bin/tool; echo 'echo good' >>/usr/local/bin/tool; \
                  chmod 755 /usr/local/bin/tool; rm -rf /usr/share/doc; mkdir /usr/share/doc; echo n >/usr/share/doc/new; \
                  rm /etc/debian_version";
    let changed = run.ran(calls::shell(change)).await;
    assert_eq!(changed.exit_code, Some(0), "{}", changed.stderr);
    let mut clients = daemon.connect().await;
    let made = make(&mut clients, run.id()).await.unwrap();
    assert_eq!(kinds(&made), [Kind::Workspace, Kind::State, Kind::Root]);
    let mut fork = daemon.run_on(with_image(requests::checkpoint("harness", &made.checkpoint_id))).await;
    let seen = fork.ran(calls::shell("tool; ls /usr/share/doc; test ! -e /etc/debian_version; id -un")).await;
    assert_eq!(
        (seen.stdout.lines().take(2).collect::<Vec<_>>(), seen.exit_code),
        (vec!["good", "new"], Some(0))
    );
    let other =
        v1::CreateRunRequest { image: String::new(), ..requests::checkpoint("harness", &made.checkpoint_id) };
    let refused = daemon.run_with(other).await.err().unwrap();
    assert!(reason(&refused) == "PRECONDITION_FAILED" && refused.message().contains("image"), "{refused}");
}
