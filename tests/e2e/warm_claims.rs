//! H: what a run brings to the container that waited for it.

use std::collections::BTreeMap;

use harness::v1::run::{ColdBecause, StartKind};
use harness::v1::{self, CallResponse, CreateRunRequest};
use harness::{Daemon, binary, calls, debian, inspect, pid_of, requests, script, until};

use crate::warm::pooled;

fn map(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn h12_a_warm_run_has_its_variables_and_no_other_run_has_them() {
    let daemon = pooled("[{ profile: open, min: 1, max: 2 }]").await;
    daemon.pool_is_full(1).await;
    let env = map(&[("MODE", "a b=c\nd")]);
    let secret_env = map(&[("KEY", "open sesame")]);
    let with = CreateRunRequest { env, secret_env, ..requests::managed("open") };
    let mut run = daemon.run_on(with).await;
    assert_eq!(run.run.start_kind(), StartKind::Warm, "{}", daemon.log());
    let show = r#"printf '%s\n' "$MODE" "$KEY""#;
    // More than the processes that waited.
    for _ in 0..3 {
        assert_eq!(run.exec(&["sh", "-c", show]).await.stdout, "a b=c\nd\nopen sesame\n");
    }
    assert_eq!(run.ran(calls::shell(show)).await.stdout, "a b=c\nd\nopen sesame\n");
    let shown = run.show().await;
    assert_eq!((shown.env, shown.secret_env), (map(&[("MODE", "a b=c\nd")]), vec!["KEY".to_owned()]));
    // A lost guest is replaced by one that has them.
    let guest = pid_of(&run.run.container_id, "/.cofferdam/guest serve").unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(guest).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    until("the next guest does not serve", async || {
        let answer = run.call(calls::exec(&["sh", "-c", show])).await;
        let kind = answer.ok().and_then(CallResponse::into_kind);
        matches!(kind, Some(v1::result::Kind::Exec(ran)) if ran.stdout == "a b=c\nd\nopen sesame\n")
    })
    .await;
    run.stop().await;

    daemon.pool_is_full(2).await;
    let mut other = daemon.run_on(requests::managed("open")).await;
    assert_eq!(other.run.start_kind(), StartKind::Warm);
    let seen = other
        .ran(calls::shell("env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"));
    let seen = seen.await.stdout;
    assert!(!seen.contains("sesame") && !seen.contains("MODE="), "{seen}");
    // No value is in the log or in what the engine knows.
    let told = format!("{}{}", daemon.log(), inspect(&other.run.container_id));
    assert!(!told.contains("sesame"), "a secret value is told");
    other.stop().await;
}

/// Names of the layers of writable roots.
fn layers(daemon: &Daemon) -> Vec<String> {
    let entries = std::fs::read_dir(daemon.state_dir().join("roots")).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn h13_the_layer_of_a_waiting_container_is_the_run_s_from_the_claim_on() {
    let daemon = pooled("[{ profile: harness, min: 1, max: 2 }]").await;
    daemon.pool_is_full(1).await;
    let waits = layers(&daemon);
    assert_eq!(waits.len(), 1, "{waits:?}");
    let request = CreateRunRequest { env: map(&[("MODE", "x")]), ..requests::managed("harness") };
    let mut run = daemon.run_on(request).await;
    assert_eq!(run.run.start_kind(), StartKind::Warm, "{}", daemon.log());
    assert_eq!(run.run.cold_because(), ColdBecause::Unspecified);
    let now = layers(&daemon);
    assert!(now.contains(&run.id().to_owned()) && !now.contains(&waits[0]), "{waits:?} {now:?}");
    let seen = "echo mine >/etc/mine; cp /bin/busybox /usr/mine; rm /etc/mtab; cd; pwd; stat -c %u /etc /etc/mine; echo $MODE";
    assert_eq!(script(&mut run, seen).await, "/home/agent\n1001\n1001\nx\n");
    let layer = daemon.state_dir().join("roots").join(run.id());
    assert_eq!(std::fs::read_to_string(layer.join("upper/etc/mine")).unwrap(), "mine\n");
    // It is measured as the run's.
    script(&mut run, "dd if=/dev/zero of=/usr/large bs=1M count=8 2>/dev/null").await;
    until("the layer does not count", async || {
        run.show().await.disk.is_some_and(|disk| disk.used_bytes >= 8 << 20)
    })
    .await;
    run.stop().await;
    assert!(daemon.root_is_gone(run.id()), "the layer is removed when its run ends");

    daemon.pool_is_full(2).await;
    let mut other = daemon.run_on(requests::managed("harness")).await;
    assert_eq!(other.run.start_kind(), StartKind::Warm, "{}", daemon.log());
    let left = "ls /etc/mine /usr/mine /usr/large 2>/dev/null; readlink /etc/mtab; echo $MODE";
    assert_eq!(script(&mut other, left).await, "/proc/mounts\n\n");
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h14_the_second_run_of_an_image_with_its_limits_and_paths_is_warm() {
    let daemon = pooled("[{ profile: harness, min: 1, max: 3 }]").await;
    daemon.pool_is_full(1).await;
    let request = CreateRunRequest {
        image: debian(),
        writable_paths: vec!["/logs/agent".to_owned()],
        limits: Some(v1::Limits { pids: 100, ..Default::default() }),
        env: map(&[("MODE", "x")]),
        ..requests::managed("harness")
    };
    let mut first = daemon.run_on(request.clone()).await;
    assert_eq!(
        (first.run.start_kind(), first.run.cold_because()),
        (StartKind::Cold, ColdBecause::FirstOfItsKind)
    );
    script(&mut first, "echo mine >/logs/agent/mine").await;
    daemon.pool_is_full(2).await;
    let mut second = daemon.run_on(request.clone()).await;
    assert_eq!(second.run.start_kind(), StartKind::Warm, "{}", daemon.log());
    assert_eq!(second.run.image_id, first.run.image_id);
    assert_eq!(inspect(&second.run.container_id)["HostConfig"]["PidsLimit"], 100);
    let seen = "ls -A /logs/agent; touch /logs/agent/own; cat /etc/debian_version | wc -l; echo $MODE";
    assert_eq!(script(&mut second, seen).await, "1\nx\n");
    // Another limit is another container.
    let other = CreateRunRequest { limits: None, ..request };
    let mut other = daemon.run_on(other).await;
    assert_eq!(
        (other.run.start_kind(), other.run.cold_because()),
        (StartKind::Cold, ColdBecause::FirstOfItsKind)
    );
    // The command line says why.
    let mut command = std::process::Command::new(binary("coffer"));
    command
        .args(["run", "show", other.id()])
        .env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display()));
    let shown = String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned();
    assert!(shown.contains("cold: the first of its image"), "{shown}");
    for run in [&mut first, &mut second, &mut other] {
        run.stop().await;
    }
}
