//! The audit log's file system is full, and has room again: nothing is admitted, nothing is lost, and it comes back.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use harness::{Daemon, Setup, calls, reason, record, requests};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// A small file system of its own for the log, which ends with the value.
struct Small(PathBuf);

impl Small {
    fn mount(at: &Path) -> Self {
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs"])
            .arg(at)
            .status()
            .unwrap();
        assert!(status.success());
        Self(at.to_owned())
    }

    fn fill(&self) {
        let _ = std::fs::write(self.0.join("ballast"), vec![0; 4 << 20]);
    }

    fn free(&self) {
        std::fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

async fn health(daemon: &Daemon) -> ServingStatus {
    let mut health = HealthClient::new(daemon.connect().await.channel);
    let request = HealthCheckRequest { service: String::new() };
    health.check(request).await.unwrap().into_inner().status()
}

async fn wait_for(daemon: &Daemon, wanted: ServingStatus) {
    for _ in 0..300 {
        if health(daemon).await == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("health never was {wanted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_stops_every_call_and_costs_no_record() {
    let mut daemon = Daemon::start_with(Setup::default()).await;
    daemon.stop().await;
    let log = daemon.state_dir().join("audit");
    let aside = tempfile::tempdir().unwrap();
    assert!(Command::new("cp").arg("-r").arg(&log).arg(aside.path()).status().unwrap().success());
    let small = Small::mount(&log);
    let copied = Command::new("cp").arg("-r").arg(aside.path().join("audit/.")).arg(&log).status().unwrap();
    assert!(copied.success());
    daemon.launch().await;
    let mut run = daemon.run_on(requests::managed("open")).await;
    run.ok(calls::write("a.txt", "before")).await;

    small.fill();
    let mut refused = 0;
    for _ in 0..2_000 {
        // What is left of the last page of the file system may still do for a call.
        if let Err(status) = run.call(calls::write("a.txt", "full")).await {
            assert_eq!(reason(&status), "AUDIT_UNAVAILABLE", "{status}");
            refused += 1;
            break;
        }
    }
    assert_eq!(refused, 1);
    wait_for(&daemon, ServingStatus::NotServing).await;
    for operation in [calls::read("a.txt"), calls::write("b.txt", "never")] {
        assert_eq!(reason(&run.call(operation).await.unwrap_err()), "AUDIT_UNAVAILABLE");
    }

    small.free();
    wait_for(&daemon, ServingStatus::Serving).await;
    run.ok(calls::write("c.txt", "after")).await;
    let verified = run.clients.verify().await;
    assert!(verified.intact, "{}", verified.damage);
    let events = run.clients.events("", "").await;
    let of = |kind: &str| -> Vec<String> {
        let mut calls: Vec<_> =
            events.iter().filter(|event| event.kind == kind).map(|event| event.call_id.clone()).collect();
        calls.sort();
        calls
    };
    assert_eq!(of("call_intent"), of("call_receipt"), "each intent has its one receipt");
    assert!(
        !events.iter().any(|event| record(event).to_string().contains("b.txt")),
        "what was refused was not begun"
    );

    // Full at an orderly stop: what is owed is written when there is room again, within the stop's patience.
    small.fill();
    while run.call(calls::write("a.txt", "full")).await.is_ok() {}
    let freed = std::thread::spawn({
        let ballast = small.0.join("ballast");
        move || {
            std::thread::sleep(Duration::from_secs(3));
            std::fs::remove_file(ballast).unwrap();
        }
    });
    daemon.stop().await;
    freed.join().unwrap();
    let text: String = std::fs::read_dir(&log)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    assert_eq!(text.matches("\"kind\":\"daemon_stopped\"").count(), 2, "the second stop, too");
    assert!(audit::verify(&log, &mut |_| ()).unwrap().is_intact());
}
