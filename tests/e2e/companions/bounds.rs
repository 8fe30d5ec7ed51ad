//! Bounds of companions: their hardening, their disk, and what the engine knows of them.

use std::path::Path;

use harness::v1::disk_use::State as Disk;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn co10_a_companion_is_hardened_as_a_run_is_and_set_id_files_are_harmless() {
    let (daemon, image) = (daemon().await, image("co10"));
    let script = format!(
        "/bin/busybox-set-id id -u >/www/id; cat /proc/self/status >/www/status; ls /proc/sys/net/ipv4/conf >/www/links; {SERVE}"
    );
    let script = script.replace("ls /proc", "/bin/busybox ls /proc");
    let mut run = daemon.run_on(request(vec![companion("db", &image, &script)])).await;
    assert_eq!(page(&mut run, "id").await, "1001\n");
    let status = page(&mut run, "status").await;
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000"] {
        assert!(status.contains(line), "{line}: {status}");
    }
    assert_eq!(page(&mut run, "links").await, "all\ndefault\nlo\n");
    let container = &beside(&daemon)[0];
    let host = &container["HostConfig"];
    assert_eq!((&host["NetworkMode"], &host["ReadonlyRootfs"]), (&"none".into(), &true.into()));
    assert_eq!(host["Memory"], serde_json::json!(256u64 << 20));
    let kinds: Vec<&str> =
        container["Mounts"].as_array().unwrap().iter().map(|mount| mount["Type"].as_str().unwrap()).collect();
    assert!(kinds.iter().all(|kind| *kind == "bind"), "no volume of the engine: {kinds:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn co11_what_a_companion_writes_is_within_the_quota_of_its_run() {
    let (daemon, image) = (daemon().await, image("co11"));
    // No single file can be larger than the quota.
    let fill = "for i in 1 2 3 4; do dd if=/dev/zero of=/data/fill$i bs=1M count=4096; done";
    let script = format!("(sleep 2; {fill}) & {SERVE}");
    let mut run = daemon.run_on(request(vec![companion("db", &image, &script)])).await;
    let over = async {
        loop {
            let disk = run.show().await.disk;
            if let Some(disk) = disk.filter(|disk| matches!(disk.state(), Disk::Over | Disk::Locked)) {
                return disk;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let disk =
        tokio::time::timeout(Duration::from_secs(120), over).await.expect("it is never over its quota");
    assert!(disk.used_bytes < 3 << 30, "{disk:?}");
    if !disk.kernel {
        let ended = details(&mut run, "worker_event", |details| details["worker"] == "companion:db").await;
        assert!(ended["why"].as_str().unwrap().contains("the disk"), "{ended}");
    }
    run.stop().await;
    assert!(daemon.roots_are_gone());
}

/// Returns the files beneath a directory that have these bytes.
fn having(directory: &Path, bytes: &[u8], found: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => having(&path, bytes, found),
            Ok(kind) if kind.is_file() => {
                let content = std::fs::read(&path).unwrap_or_default();
                if content.windows(bytes.len()).any(|window| window == bytes) {
                    found.push(path.display().to_string());
                }
            }
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn co12_secret_variables_are_in_the_companion_and_nowhere_else() {
    const SECRET: &str = "open-sesame-4711-door";
    let (mut daemon, image) = (daemon().await, image("co12"));
    let mut db = companion("db", &image, SERVE);
    db.secret_env = map(&[("KEY", SECRET)]);
    db.env = map(&[("PLAIN_WORD", "quite-plain-4711")]);
    let check = format!("[ \"$KEY\" = {SECRET} ] && [ \"$MODE\" = image ]");
    // The check has to have the secret, and is not shown either.
    let check = ["sh", "-c", &check].map(str::to_owned).to_vec();
    db.ready.as_mut().unwrap().check = Some(Check::Command(v1::readiness::Command { args: check }));
    let mut run = daemon.run_on(request(vec![db])).await;
    let id = run.id().to_owned();
    let mut found = Vec::new();
    for secret in [SECRET, "quite-plain-4711"] {
        having(&daemon.state_dir(), secret.as_bytes(), &mut found);
        assert!(!format!("{:?}", beside(&daemon)).contains(secret));
        assert!(!daemon.log().contains(secret));
        assert!(!format!("{:?} {:?}", run.show().await, run.run).contains(secret));
    }
    assert_eq!(found, [""; 0]);
    // A call that has it does not put it on record.
    shell(&mut run, &format!("echo {SECRET}")).await;
    let events = run.clients.events_when(&id, "call_intent", |events| !events.is_empty()).await;
    assert!(!events.iter().any(|event| format!("{:?}", record(event)).contains(SECRET)));
    // Nor under the next daemon.
    daemon.kill().await;
    daemon.launch().await;
    run.clients = daemon.connect().await;
    shell(&mut run, &format!("echo {SECRET}")).await;
    let events = run.clients.events_when(&id, "call_intent", |events| events.len() == 2).await;
    assert!(!events.iter().any(|event| format!("{:?}", record(event)).contains(SECRET)));
    having(&daemon.state_dir(), SECRET.as_bytes(), &mut found);
    assert_eq!(found, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn co13_companions_count_against_the_number_of_runs() {
    let (daemon, image) = (daemon_with("limits: { runs: 2 }\n", "", "").await, image("co13"));
    let two = vec![companion("db", &image, SERVE), companion("cache", &image, SERVE)];
    let status = refused(&daemon, two).await;
    assert_eq!(harness::reason(&status), "OVERLOADED", "{status}");
    let one = daemon.run_on(request(vec![companion("db", &image, SERVE)])).await;
    assert_eq!(harness::reason(&refused(&daemon, Vec::new()).await), "OVERLOADED");
    drop(one);
}
