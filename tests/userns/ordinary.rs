//! Tests all other profiles on such an engine: commands are the same user, who is unprivileged on the host.

use std::os::unix::fs::MetadataExt as _;

use harness::v1::run::StartKind;
use harness::{Daemon, RunHandle, Setup, calls, pid_of, requests, script, use_mapped_engine};

use crate::setup;

async fn is_mapped(run: &mut RunHandle, workspace: &std::path::Path) {
    assert_eq!(script(run, "id -u; echo made >made; stat -c %u:%g made").await, "1001\n1001:1001\n");
    run.ok(calls::replace("made", "made", "changed")).await;
    assert_eq!(script(run, "cat made").await, "changed\n");
    assert_eq!(std::fs::metadata(workspace.join("made")).unwrap().uid(), 4321);
    let pid = pid_of(&run.run.container_id, "/.cofferdam/guest serve").unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:\t")?.split('\t').next()).unwrap();
    assert!(uid.parse::<u32>().unwrap() > 65_536, "{uid}");
    assert!(status.contains("CapBnd:\t0000000000000000\n"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn u6_cold_and_warm_runs_with_and_without_a_writable_root() {
    use_mapped_engine();
    let setup = setup();
    let config = format!("{}pool: [{{ profile: open, min: 1, max: 1 }}]\n", setup.config);
    let daemon = Daemon::start_with(Setup { config, ..setup }).await;
    let workspace = |name| daemon.workspace(name, &[]);
    let (harness, warm) = (workspace("harness"), workspace("warm"));
    let mut run = daemon.run("harness", &harness).await;
    is_mapped(&mut run, &harness).await;
    let root = "echo x >/etc/mine && rm /bin/vi && cd && pwd && stat -c %u /etc /etc/mine /bin/sh";
    assert_eq!(script(&mut run, root).await, "/home/agent\n1001\n1001\n1001\n");
    let offers =
        "grep cofferdam /etc/hosts && echo shared >/dev/shm/x && cat /dev/shm/x && test -e /etc/mtab";
    assert_eq!(script(&mut run, offers).await, "127.0.0.1\tcofferdam\nshared\n");
    run.stop().await;

    daemon.pool_is_full(1).await;
    let mut run = daemon.run("open", &warm).await;
    assert_eq!(run.run.start_kind(), StartKind::Warm);
    is_mapped(&mut run, &warm).await;
    run.stop().await;

    let mut run = daemon.run_on(requests::overlay("harness", &warm)).await;
    script(&mut run, "echo more >>made && ! chown 42 made 2>/dev/null").await;
    run.stop().await;
    run.accept(false).await.unwrap();
    assert_eq!(std::fs::read_to_string(warm.join("made")).unwrap(), "changed\nmore\n");
    assert_eq!(std::fs::metadata(warm.join("made")).unwrap().uid(), 4321);
}
