//! Daemons that die with a pool.

use harness::v1::run::{StartKind, State};
use harness::{Daemon, RunHandle, Setup, calls, outlives, processes, requests, v1};

use crate::adopted::{IDLE, works};

async fn pooled(pool: &str) -> Daemon {
    Daemon::start_with(Setup { config: format!("pool: {pool}\n"), ..Setup::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn h10_a_warm_run_outlives_its_daemon_and_waiting_containers_do_not() {
    let mut daemon = pooled("[{ profile: open, min: 1, max: 2 }]").await;
    let workspace = daemon.repository("w", &[("a.txt", "one\n")]);
    let beneath = daemon.workspace("o", &[("a.txt", "one\n")]);
    daemon.pool_is_full(1).await;
    let mut run = daemon.run("open", &workspace).await;
    daemon.pool_is_full(2).await;
    let variables = |name: &str, value: &str| [(name.to_owned(), value.to_owned())].into();
    let request = v1::CreateRunRequest {
        env: variables("MODE", "kept"),
        secret_env: variables("KEY", "open sesame"),
        ..requests::overlay("open", &beneath)
    };
    let overlay = daemon.run_on(request).await;
    assert_eq!([run.run.start_kind(), overlay.run.start_kind()], [StartKind::Warm; 2]);
    assert_eq!(run.exec(&["sh", "-c", "echo kept > /state/note"]).await.exit_code, Some(0));
    daemon.pool_is_full(3).await;
    let waited: Vec<_> = daemon
        .containers()
        .into_iter()
        .filter(|id| ![&run, &overlay].iter().any(|run| run.run.container_id == *id))
        .collect();
    let before = run.show().await;

    let mut run = outlives(&mut daemon, run).await;
    let after = run.show().await;
    assert_eq!((after.state(), after.restarts, after.start_kind()), (State::Ready, 1, StartKind::Warm));
    assert_eq!((&after.container_id, &after.hardening), (&before.container_id, &before.hardening));
    assert_eq!(processes(&after.container_id), IDLE);
    assert!(!daemon.containers().iter().any(|container| waited.contains(container)));
    works(&mut run, &workspace, "b.txt").await;
    assert_eq!(run.exec(&["cat", "/state/note"]).await.stdout, "kept\n");
    assert_ne!(run.exec(&["touch", "/state/logs/x"]).await.exit_code, Some(0));
    let mut overlay = RunHandle { clients: daemon.connect().await, ..overlay };
    overlay.ok(calls::write("b.txt", "two\n")).await;
    assert_eq!(overlay.exec(&["cat", "b.txt"]).await.stdout, "two\n");
    assert_eq!(overlay.exec(&["sh", "-c", "echo $MODE $KEY"]).await.stdout, "kept open sesame\n");
    for run in [&mut run, &mut overlay] {
        run.stop().await;
        assert_eq!(run.show().await.state(), State::Stopped);
    }
    overlay.accept(false).await.unwrap();
    for run in [&mut run, &mut overlay] {
        run.delete().await;
    }
    daemon.stop().await;
    assert_eq!(daemon.leftovers(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn h10_a_warm_run_whose_mounts_were_changed_is_not_reattached() {
    let mut daemon = pooled("[{ profile: open, min: 1, max: 1 }]").await;
    daemon.pool_is_full(1).await;
    let run = daemon.run_on(requests::managed("open")).await;
    assert_eq!(run.run.start_kind(), StartKind::Warm);
    daemon.kill().await;
    let at = daemon.mounts().into_iter().find(|at| at.ends_with("/state/logs")).expect("its log is mounted");
    assert!(std::process::Command::new("umount").arg(&at).status().unwrap().success());
    daemon.launch().await;
    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    let ended = run.show().await;
    assert_eq!(ended.state(), State::Failed);
    assert!(ended.failure.contains("@state/logs is no longer mounted"), "{}", ended.failure);
    assert!(!daemon.containers().contains(&run.run.container_id));
    run.delete().await;
    daemon.stop().await;
    assert_eq!(daemon.leftovers(), [""; 0]);
}

/// Names of the layers of writable roots.
fn layers(daemon: &Daemon) -> Vec<String> {
    let entries = std::fs::read_dir(daemon.state_dir().join("roots")).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn h13_a_claimed_root_outlives_its_daemon_and_layers_that_wait_do_not() {
    let mut daemon = pooled("[{ profile: harness, min: 1, max: 2 }]").await;
    daemon.pool_is_full(1).await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    assert_eq!(run.run.start_kind(), StartKind::Warm, "{}", daemon.log());
    assert_eq!(run.ran(calls::shell("echo one >/etc/kept; mkdir ~/d")).await.exit_code, Some(0));
    daemon.pool_is_full(2).await;
    let waited: Vec<_> = layers(&daemon).into_iter().filter(|name| name != run.id()).collect();
    assert!(!waited.is_empty());
    let mut run = outlives(&mut daemon, run).await;
    let after = run.show().await;
    assert_eq!((after.state(), after.start_kind()), (State::Ready, StartKind::Warm), "{}", after.failure);
    assert_eq!(run.ran(calls::shell("cat /etc/kept; cd && ls")).await.stdout, "one\nd\n");
    let left = layers(&daemon);
    assert!(
        left.contains(&run.id().to_owned()) && !left.iter().any(|name| waited.contains(name)),
        "{left:?}"
    );
    run.stop().await;
    assert!(daemon.root_is_gone(run.id()));
    run.delete().await;
    daemon.stop().await;
    let kept: Vec<_> = daemon.leftovers().into_iter().filter(|left| !left.contains("/workspaces/")).collect();
    assert_eq!(kept, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn h13_a_daemon_killed_around_claims_of_roots_leaves_no_layer() {
    let mut daemon = pooled("[{ profile: harness, min: 2, max: 3 }]").await;
    for round in 0..effort::cases(6, 60) {
        let mut creating = Vec::new();
        for _ in 0..2 {
            let mut clients = daemon.connect().await;
            creating.push(tokio::spawn(async move {
                let created = clients.runs.create_run(requests::managed("harness")).await.ok()?;
                created.into_inner().run
            }));
        }
        // Containers of roots take longer to be made.
        tokio::time::sleep(std::time::Duration::from_millis(u64::from(round % 12) * 100)).await;
        daemon.kill().await;
        for create in creating {
            create.await.unwrap();
        }
        daemon.launch().await;
        let mut clients = daemon.connect().await;
        let living = clients.runs.list_runs(v1::ListRunsRequest::default()).await.unwrap().into_inner().runs;
        for run in living {
            if [State::Ready, State::Paused].contains(&run.state()) {
                let mut handle = RunHandle { run: Box::new(run), clients: daemon.connect().await };
                assert_eq!(
                    handle.ran(calls::shell("test ! -e /etc/mine && echo x >/etc/mine")).await.exit_code,
                    Some(0)
                );
                handle.stop().await;
            }
        }
        daemon.stop().await;
        assert!(daemon.roots_are_gone(), "round {round}: {:?}\n{}", layers(&daemon), daemon.log());
        assert_eq!((daemon.containers(), daemon.mounts()), (vec![], vec![]), "round {round}");
        daemon.launch().await;
    }
}

/// Cgroups on this host that belong to a container.
fn cgroups(container: &str) -> Vec<String> {
    let found = std::process::Command::new("find")
        .args(["/sys/fs/cgroup", "-maxdepth", "5", "-type", "d", "-name", &format!("*{container}*")])
        .output()
        .unwrap();
    String::from_utf8_lossy(&found.stdout).lines().map(str::to_owned).collect()
}

/// Whether a process of this host is in a cgroup of the container.
fn has_processes(container: &str) -> bool {
    let in_it = |entry: std::fs::DirEntry| {
        std::fs::read_to_string(entry.path().join("cgroup")).is_ok_and(|cgroup| cgroup.contains(container))
    };
    std::fs::read_dir("/proc").unwrap().flatten().any(in_it)
}

#[tokio::test(flavor = "multi_thread")]
async fn h10_a_daemon_killed_at_any_moment_leaves_nothing_of_its_pool() {
    let mut daemon = pooled("[{ profile: open, min: 2, max: 4 }]").await;
    let workspaces: Vec<_> =
        (0..3).map(|i| daemon.workspace(&format!("w{i}"), &[("a.txt", "one\n")])).collect();
    let rounds = effort::cases(10, 200);
    let mut known: Vec<String> = Vec::new();
    // So often the pools of daemons that died were.
    let mut full = 0;
    for round in 0..rounds {
        // Claims and refills at once, a stop among them; killed at moments that are spread over half a second.
        if round % 2 == 0 {
            daemon.pool_is_full(full + 1).await;
        }
        let mut creating = Vec::new();
        for workspace in &workspaces {
            let (request, mut clients) = (requests::bind("open", workspace), daemon.connect().await);
            creating.push(tokio::spawn(async move {
                let run = clients.runs.create_run(request).await.ok()?.into_inner().run?;
                if round % 3 == 0 {
                    let _ = clients.runs.stop_run(v1::StopRunRequest { run_id: run.run_id.clone() }).await;
                }
                Some(run)
            }));
        }
        tokio::time::sleep(std::time::Duration::from_millis(u64::from(round % 10) * 50)).await;
        known.extend(daemon.containers());
        daemon.kill().await;
        for create in creating {
            known.extend(create.await.unwrap().map(|run| run.container_id));
        }
        daemon.launch().await;

        // No workspace is in two containers.
        let mut seen = Vec::new();
        for container in daemon.containers() {
            let Ok(found) = std::process::Command::new("docker")
                .args(["inspect", "-f", "{{.State.Pid}}", &container])
                .output()
            else {
                continue;
            };
            let pid = String::from_utf8_lossy(&found.stdout).trim().to_owned();
            let Ok(table) = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")) else { continue };
            seen.extend(table.lines().filter_map(|line| {
                let fields: Vec<_> = line.split(' ').collect();
                (fields[4] == "/workspace" && fields[3].contains("/roots/")).then(|| fields[3].to_owned())
            }));
        }
        let distinct: std::collections::BTreeSet<_> = seen.iter().collect();
        assert_eq!(distinct.len(), seen.len(), "{seen:?}");

        let mut clients = daemon.connect().await;
        let living = clients.runs.list_runs(v1::ListRunsRequest::default()).await.unwrap().into_inner().runs;
        for run in living {
            if [State::Ready, State::Paused].contains(&run.state()) {
                let mut handle = RunHandle { run: Box::new(run), clients: daemon.connect().await };
                assert_eq!(handle.exec(&["cat", "a.txt"]).await.stdout, "one\n");
                handle.stop().await;
            }
        }
        known.extend(daemon.containers());
        daemon.stop().await;
        assert_eq!(
            (daemon.containers(), daemon.mounts()),
            (vec![], vec![]),
            "round {round}\n{}",
            daemon.log()
        );
        let slots: Vec<_> =
            std::fs::read_dir(daemon.state_dir().join("mounts")).into_iter().flatten().collect();
        assert!(slots.is_empty(), "round {round}: {slots:?}");
        known.sort();
        known.dedup();
        for container in known.drain(..) {
            assert!(
                !has_processes(&container) && cgroups(&container).is_empty(),
                "round {round}: {container}"
            );
        }
        full = daemon.log().matches("warm containers wait").count();
        daemon.launch().await;
    }
    assert!(daemon.connect().await.verify().await.intact);
}
