//! A writable root and a daemon that is killed.

use std::process::Command;

use harness::v1::run::State;
use harness::{Daemon, RunHandle, calls, outlives, reason, requests, script, v1};

async fn run_in(daemon: &Daemon) -> RunHandle {
    let request =
        v1::CreateRunRequest { writable_paths: vec!["/logs".to_owned()], ..requests::managed("harness") };
    daemon.run_on(request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_with_a_writable_root_outlives_its_daemon_and_leaves_nothing() {
    let mut daemon = Daemon::start().await;
    let mut run = run_in(&daemon).await;
    script(
        &mut run,
        "echo one >/etc/kept; echo one >/logs/kept; cp /bin/busybox /usr/busybox-kept; mkdir -p $HOME/d",
    )
    .await;
    let before = (daemon.containers(), daemon.mounts());
    let mut run = outlives(&mut daemon, run).await;
    assert_eq!(run.show().await.state(), State::Ready, "{}", daemon.log());
    assert_eq!((daemon.containers(), daemon.mounts()), before);
    assert_eq!(
        script(&mut run, "cat /etc/kept /logs/kept; /usr/busybox-kept echo ran; cd && pwd && ls").await,
        { "one\none\nran\n/home/agent\nd\n" }
    );
    script(&mut run, "echo two >>/etc/kept").await;
    let layer = daemon.state_dir().join("roots").join(run.id());
    assert_eq!(std::fs::read_to_string(layer.join("upper/etc/kept")).unwrap(), "one\ntwo\n");
    run.stop().await;
    assert_eq!((daemon.left_by_runs(), daemon.root_is_gone(run.id())), ((vec![], vec![]), true));
}

/// The end of a run is told before its layer is removed. Whatever the daemon dies in, the next one sees to the rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_layer_whose_removal_was_interrupted_is_removed_by_the_next_daemon() {
    let mut daemon = Daemon::start().await;
    for pause_ms in [0, 30, 100] {
        let mut run = run_in(&daemon).await;
        let many =
            "mkdir /usr/many && cd /usr/many && i=0; while [ $i -lt 4000 ]; do : >$i; i=$((i+1)); done";
        script(&mut run, many).await;
        assert_eq!(run.stop().await.state(), State::Stopped);
        // The moment is what is tried: any is right.
        tokio::time::sleep(std::time::Duration::from_millis(pause_ms)).await;
        daemon.relaunch().await;
        let mut run = RunHandle { clients: daemon.connect().await, ..run };
        assert_eq!(run.show().await.state(), State::Stopped, "its end was told");
        assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
        assert_eq!(std::fs::read_dir(daemon.state_dir().join("roots")).unwrap().count(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_layer_of_a_run_that_is_not_reattached_is_removed() {
    let mut daemon = Daemon::start().await;
    let mut run = run_in(&daemon).await;
    script(&mut run, "echo one >/etc/kept").await;
    daemon.kill().await;
    let removed = Command::new("docker").args(["rm", "-f", &run.run.container_id]).output().unwrap();
    assert!(removed.status.success(), "{removed:?}");
    daemon.launch().await;
    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    assert_eq!(run.show().await.state(), State::Failed);
    assert_eq!(reason(&run.call(calls::exec(&["true"])).await.unwrap_err()), "RUN_LOST");
    assert_eq!((daemon.containers(), daemon.mounts()), (vec![], vec![]));
    assert_eq!(std::fs::read_dir(daemon.state_dir().join("roots")).unwrap().count(), 0);
}

/// A root that is no longer what it was belongs to no run.
#[tokio::test(flavor = "multi_thread")]
async fn a_root_that_was_unmounted_meanwhile_ends_its_run() {
    let mut daemon = Daemon::start().await;
    let run = run_in(&daemon).await;
    daemon.kill().await;
    let slot = daemon.state_dir().join("mounts").join(run.id()).join("root");
    let unmounted = Command::new("umount").arg("-l").arg(&slot).output().unwrap();
    assert!(unmounted.status.success(), "{unmounted:?}");
    daemon.launch().await;
    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    let shown = run.show().await;
    assert_eq!(shown.state(), State::Failed);
    assert!(shown.failure.contains("its root is no longer mounted"), "{}", shown.failure);
    assert_eq!((daemon.containers(), daemon.mounts()), (vec![], vec![]));
    assert_eq!(std::fs::read_dir(daemon.state_dir().join("roots")).unwrap().count(), 0);
}
