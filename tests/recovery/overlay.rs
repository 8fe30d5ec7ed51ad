//! Kills the daemon while an overlay has changes that are neither accepted nor discarded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use harness::v1::run::Changes;
use harness::{Daemon, RunHandle, calls, requests, v1};

use crate::host_worker_lost::{host_workers, kill, names, notes};

#[tokio::test(flavor = "multi_thread")]
async fn unsettled_changes_survive_the_daemon() {
    let mut daemon = Daemon::start().await;
    let beneath = daemon.workspace("w", &[("a.txt", "one\n")]);
    let living = daemon.run_on(requests::overlay("open", &beneath)).await;
    let mut runs = [living.clone(), daemon.run_on(requests::overlay("open", &beneath)).await];
    for (run, name) in runs.iter_mut().zip(["kept.txt", "unwanted.txt"]) {
        run.ok(calls::write(name, "x\n")).await;
    }
    let idle = daemon.run_on(requests::overlay("open", &beneath)).await;
    daemon.kill().await;
    // Their containers are gone, so that no run can be taken over.
    for container in daemon.containers() {
        let removed = std::process::Command::new("docker").args(["rm", "--force", &container]).output();
        assert!(removed.unwrap().status.success());
    }
    daemon.launch().await;
    assert_eq!((daemon.containers(), daemon.mounts()), (vec![], vec![]));

    let clients = daemon.connect().await;
    let [mut kept, mut unwanted] = runs.map(|run| RunHandle { clients: clients.clone(), ..run });
    let mut idle = RunHandle { clients: clients.clone(), ..idle };
    let request = v1::ListWorkspacesRequest::default();
    let mut listed = clients.clone().runs.list_workspaces(request).await.unwrap().into_inner().workspaces;
    listed.sort_by(|a, b| a.workspace_id.cmp(&b.workspace_id));
    let ids: Vec<_> = listed.iter().map(|workspace| workspace.workspace_id.as_str()).collect();
    assert_eq!(ids, [kept.id(), unwanted.id(), idle.id()]);
    assert_eq!(kept.show().await.changes(), Changes::Pending);
    assert_eq!(kept.diff().await.changes[0].path, "kept.txt");
    kept.accept(false).await.unwrap();
    unwanted.discard().await.unwrap();
    assert!(idle.diff().await.changes.is_empty());
    assert_eq!(idle.accept(false).await.unwrap().applied, 0);
    assert_eq!(std::fs::read_to_string(beneath.join("kept.txt")).unwrap(), "x\n");
    assert!(!beneath.join("unwanted.txt").exists());
    assert_eq!(std::fs::read_dir(daemon.state_dir().join("overlays")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accept_that_was_killed_leaves_whole_files_and_is_made_again() {
    const FILES: usize = 400;
    let mut daemon = Daemon::start().await;
    let beneath = daemon.workspace("w", &[("gone.txt", "bye\n")]);
    let mut run = daemon.run_on(requests::overlay("open", &beneath)).await;
    let content = "0123456789abcdef".repeat(256);
    let script = format!("i=0; while [ $i -lt {FILES} ]; do echo {content} > f$i; i=$((i+1)); done");
    assert_eq!(run.exec(&["sh", "-c", &script]).await.exit_code, Some(0));
    run.stop().await;
    let whole = |path: &std::path::Path| std::fs::read_to_string(path).unwrap() == format!("{content}\n");
    let count = || {
        let mut count = 0;
        for entry in std::fs::read_dir(&beneath).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name().to_string_lossy().starts_with('f') {
                assert!(whole(&entry.path()), "{entry:?}");
                count += 1;
            }
        }
        count
    };
    let mut accepting = run.clone();
    let accepted = tokio::spawn(async move { accepting.accept(false).await });
    // A directory has no event for this.
    while count() < 20 {
        tokio::task::yield_now().await;
    }
    daemon.kill().await;
    assert!(accepted.await.unwrap().is_err());
    daemon.launch().await;
    let partly = count();
    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    assert_eq!(run.show().await.changes(), Changes::Pending);
    let again = run.accept(false).await.unwrap();
    assert_eq!((count(), again.left_out.len()), (FILES, 0));
    assert!(usize::try_from(again.applied).unwrap() <= FILES - 20, "{partly} {}", again.applied);
    let left = std::fs::read_dir(&beneath)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".cofferdam"));
    assert_eq!(left.count(), 0, "nothing is left behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_host_worker_is_repaired_in_the_overlay_only() {
    const WRITERS: usize = 8;
    let mut daemon = Daemon::start().await;
    let beneath = daemon.workspace("w", &[]);
    let mut found = 0;
    // A kill in the middle of a write takes a few tries.
    for _ in 0..30 {
        let run = daemon.run_on(requests::overlay("open", &beneath)).await;
        let written = Arc::new(AtomicU32::new(0));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (mut run, written) = (run.clone(), written.clone());
                tokio::spawn(async move {
                    let (path, content) = (format!("f{writer}"), "x".repeat(50_000));
                    while run.call(calls::write(&path, &content)).await.is_ok() {
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        while written.load(Ordering::Relaxed) < 30 {
            tokio::task::yield_now().await;
        }
        // Nobody is left who could put anything right but the next daemon.
        kill(&host_workers(daemon.pid()));
        daemon.kill().await;
        for writer in writers {
            writer.await.unwrap();
        }
        found += notes(&daemon).len();
        daemon.launch().await;
        assert_eq!(notes(&daemon), [""; 0]);
        assert_eq!(names(&beneath), [""; 0], "nothing beneath");
        let changes = names(&daemon.state_dir().join("overlays").join(run.id()).join("upper"));
        assert!(changes.iter().all(|name| name.starts_with('f')), "{changes:?}");
        let mut run = RunHandle { clients: daemon.connect().await, ..run };
        // The run goes on in it.
        run.ok(calls::read("f0")).await;
        run.stop().await;
        assert_eq!(daemon.mounts(), [""; 0]);
        assert_eq!(run.diff().await.total, changes.len() as u64);
        run.discard().await.unwrap();
        if found > 0 {
            return;
        }
    }
    panic!("no kill hit a write in the middle");
}
