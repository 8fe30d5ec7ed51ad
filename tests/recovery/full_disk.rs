//! Fills the file system of the audit log, or of the whole state directory, and frees space again. Meanwhile no call is
//! admitted and nothing is lost. Operations that free space work, and the daemon recovers.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use harness::v1::call_response::Status;
use harness::v1::run::State;
use harness::v1::{self, CallRequest};
use harness::{Daemon, RunHandle, Setup, calls, reason, record, requests};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::host_worker_lost::{names, notes};

/// A small file system of its own for the log, which ends with the value.
pub(crate) struct Small(PathBuf);

impl Small {
    fn mount(at: &Path) -> Self {
        Self::mount_with("size=2m,mode=0700", at)
    }

    fn mount_with(options: &str, at: &Path) -> Self {
        let status =
            Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at).status().unwrap();
        assert!(status.success());
        Self(at.to_owned())
    }

    /// Fills it to the last byte.
    fn fill_up(&self) {
        let mut ballast =
            std::fs::File::options().append(true).create(true).open(self.0.join("ballast")).unwrap();
        for piece in [1 << 20, 4_096, 1] {
            while ballast.write_all(&vec![0; piece]).is_ok() {}
        }
    }

    fn fill(&self) {
        let _ = std::fs::write(self.0.join("ballast"), vec![0; 4 << 20]);
    }

    /// Fills it until this space is left, bytes.
    pub(crate) fn leave(&self, bytes: u64) {
        let found = rustix::fs::statvfs(&self.0).unwrap();
        let ballast = (found.f_bavail * found.f_frsize).saturating_sub(bytes);
        let _ = std::fs::write(self.0.join("ballast"), vec![0; usize::try_from(ballast).unwrap()]);
    }

    pub(crate) fn free(&self) {
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

pub(crate) async fn wait_for(daemon: &Daemon, wanted: ServingStatus) {
    for _ in 0..300 {
        if health(daemon).await == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("health never was {wanted:?}");
}

/// A daemon whose log is on a small file system of its own.
async fn on_a_small_log() -> (Daemon, Small) {
    let mut daemon = Daemon::start_with(Setup::default()).await;
    daemon.stop().await;
    let log = daemon.state_dir().join("audit");
    let aside = tempfile::tempdir().unwrap();
    assert!(Command::new("cp").arg("-r").arg(&log).arg(aside.path()).status().unwrap().success());
    let small = Small::mount(&log);
    let copied = Command::new("cp").arg("-r").arg(aside.path().join("audit/.")).arg(&log).status().unwrap();
    assert!(copied.success());
    daemon.launch().await;
    (daemon, small)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_stops_every_call_and_costs_no_record() {
    let (mut daemon, small) = on_a_small_log().await;
    let log = daemon.state_dir().join("audit");
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

    // Full at an orderly stop: what is owed is written when there is space again, within the stop's patience.
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

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_intent_reaches_no_disk_has_no_effect_and_leaves_nothing() {
    let (daemon, small) = on_a_small_log().await;
    let workspace = daemon.workspace("w", &[("a.txt", "0")]);
    let mut run = daemon.run("open", &workspace).await;
    run.ok(calls::write("first", "starts the host worker")).await;
    for round in 0..6 {
        small.fill_up();
        let mut last = std::fs::read_to_string(workspace.join("a.txt")).unwrap();
        let refused = loop {
            // The log may have space for a call in the last page of its file system.
            let content = format!("{last} {round}");
            match run.call(calls::write("a.txt", &content)).await {
                Ok(_) => last = content,
                Err(refused) => break refused,
            }
        };
        assert_eq!(reason(&refused), "AUDIT_UNAVAILABLE", "{refused}");
        if refused.message().contains("no call is admitted") {
            assert_eq!(std::fs::read_to_string(workspace.join("a.txt")).unwrap(), last);
        }
        assert!(names(&workspace).iter().all(|name| !name.starts_with(".cofferdam")));
        assert_eq!(notes(&daemon), [""; 0]);
        small.free();
        wait_for(&daemon, ServingStatus::Serving).await;
    }
    // What could not be written was kept: a call that was refused at its intent has a receipt that says so.
    let id = run.id().to_owned();
    let receipts = run.clients.events(&id, "call_receipt").await;
    let denied = receipts.iter().filter(|event| record(event).to_string().contains("AUDIT_UNAVAILABLE"));
    assert!(denied.count() > 0, "no intent failed");
}

const MIB: u64 = 1 << 20;

/// A daemon whose state directory is on a file system of its own, of `mib` MiB more than the daemon's programs take.
pub(crate) async fn on_a_small_disk(mib: u64) -> (Daemon, Small) {
    let mut daemon = Daemon::start().await;
    daemon.stop().await;
    let state = daemon.state_dir();
    // As large as on a disk that has space: it is made anew.
    std::fs::remove_file(state.join("reserve")).unwrap();
    let aside = tempfile::tempdir().unwrap();
    assert!(Command::new("cp").arg("-a").arg(&state).arg(aside.path()).status().unwrap().success());
    let output = Command::new("du").args(["-sm"]).arg(aside.path()).output().unwrap();
    let used: u64 = String::from_utf8(output.stdout).unwrap().split('\t').next().unwrap().parse().unwrap();
    let small = Small::mount_with(&format!("size={}m,mode=0711", used + mib), &state);
    let copied = Command::new("cp").arg("-a").arg(aside.path().join("state/.")).arg(&state).status().unwrap();
    assert!(copied.success());
    daemon.launch().await;
    (daemon, small)
}

/// Bytes of the store's files.
fn store(daemon: &Daemon) -> u64 {
    let files = ["store.db", "store.db-wal"].map(|name| daemon.state_dir().join(name));
    files.iter().filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_fill_no_disk_and_a_repeated_request_is_not_executed_again() {
    let (daemon, _small) = on_a_small_disk(64).await;
    let mut run = daemon.run_on(requests::managed("open")).await;
    run.ok(calls::write("big.txt", &"x".repeat(200_000))).await;
    let request = |number: u32, operation: v1::operation::Kind| CallRequest {
        request_id: format!("r{number}"),
        request: Some(operation.into()),
        ..Default::default()
    };
    let first = request(0, calls::write("once.txt", "once"));
    let made = run.call_with(first.clone()).await.unwrap();
    for number in 1..400 {
        let read = run.call_with(request(number, calls::read("big.txt"))).await.unwrap();
        assert_eq!(read.status(), Status::Succeeded);
    }
    // 80 MB of answers were to be kept.
    assert!(store(&daemon) < 32 * MIB, "{} bytes", store(&daemon));
    assert_eq!(health(&daemon).await, ServingStatus::Serving);
    // Another daemon has none of it in its memory.
    let mut daemon = daemon;
    daemon.relaunch().await;
    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    run.ok(calls::write("once.txt", "changed meanwhile")).await;
    let again = run.call_with(first).await.unwrap();
    assert_eq!((&again.call_id, again.status()), (&made.call_id, Status::Succeeded));
    let old = run.call_with(request(1, calls::read("big.txt"))).await.unwrap();
    assert!(old.result_dropped && old.result.is_none(), "the oldest long result was dropped");
    let Ok(read) = run.call_with(request(399, calls::read("big.txt"))).await else { panic!("forgotten") };
    assert!(!read.result_dropped, "the newest did not");
    let content = match run.ok(calls::read("once.txt")).await {
        v1::result::Kind::Read(read) => read.content,
        other => panic!("{other:?}"),
    };
    assert_eq!(content, "changed meanwhile", "it was not made again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_on_a_full_disk_can_free_space_and_resumes_normal_operation() {
    let (mut daemon, small) = on_a_small_disk(64).await;
    let mut run = daemon.run_on(requests::managed("open")).await;
    run.ok(calls::write("a.txt", "before")).await;
    let output = run.exec(&["head", "-c", "16000000", "/dev/zero"]).await;
    assert_eq!(output.exit_code, Some(0));
    run.ok(calls::shell("head -c 16000000 /dev/zero > ballast")).await;

    for round in 0..2 {
        small.fill_up();
        wait_for(&daemon, ServingStatus::NotServing).await;
        let refused = run.call(calls::read("a.txt")).await.unwrap_err();
        assert_eq!(reason(&refused), "AUDIT_UNAVAILABLE");
        daemon.kill().await;
        // The second time with what the first start left of the reserve, if somebody took the rest.
        daemon.launch().await;
        assert_eq!(health(&daemon).await, ServingStatus::NotServing, "in round {round}");
        run.clients = daemon.connect().await;
        let refused = run.call(calls::write("b.txt", "never")).await.unwrap_err();
        assert_eq!(reason(&refused), "AUDIT_UNAVAILABLE");
        assert!(refused.message().contains("disk is full"), "{}", refused.message());
        let refused = run.clients.runs.create_run(requests::managed("open")).await.unwrap_err();
        assert_eq!(reason(&refused), "AUDIT_UNAVAILABLE");
    }

    let request = v1::ListRunsRequest::default();
    let listed = run.clients.runs.list_runs(request).await.unwrap().into_inner().runs;
    assert_eq!((listed.len(), listed[0].state()), (1, State::Ready));
    run.stop().await;
    run.delete().await;
    assert_eq!(daemon.left_by_runs().0, [""; 0]);

    wait_for(&daemon, ServingStatus::Serving).await;
    let mut next = daemon.run_on(requests::managed("open")).await;
    next.ok(calls::write("c.txt", "after")).await;
    let verified = next.clients.verify().await;
    assert!(verified.intact, "{}", verified.damage);
    let events = next.clients.events(run.id(), "").await;
    let said: Vec<_> = events.iter().map(|event| record(event)["details"].to_string()).collect();
    for word in ["\"state\":\"STOPPED\"", "\"action\":\"delete\",\"phase\":\"done\""] {
        assert!(said.iter().any(|said| said.contains(word)), "{word} is on record: {said:?}");
    }
    assert!(!events.iter().any(|event| record(event).to_string().contains("b.txt")), "nothing was begun");
}
