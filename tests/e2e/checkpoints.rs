//! Checkpoints and old segments, through the API, the command line and the files.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use audit::{Against, Checkpoint, VerifierKey, verify_with};
use harness::{Daemon, Setup, binary, calls, requests};

use crate::receiver::{answer, header, receiver, secret, signature};

fn coffer(daemon: &Daemon, arguments: &[&str]) -> (bool, String) {
    let endpoint = format!("unix://{}", daemon.socket().display());
    let output = Command::new(binary("coffer"))
        .args(["--endpoint", &endpoint, "audit"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success() || output.status.code() == Some(1), "{output:?}");
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

fn offline(log: &Path, arguments: &[&str]) -> (bool, String) {
    let output =
        Command::new(binary("coffer")).args(["audit", "verify"]).arg(log).args(arguments).output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_are_signed_sent_rotated_and_tell_a_rollback() {
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("checkpoints");
    let setup = Setup {
        config: format!("audit: {{ checkpoint: {{ interval: 1h, file: {} }} }}\n", file.display()),
        ..Default::default()
    };
    let mut daemon = Daemon::start_with(setup).await;
    let log = daemon.state_dir().join("audit");
    let mode = |path: &Path| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(mode(&daemon.state_dir().join("keys/audit.key")), 0o600);
    let key = coffer(&daemon, &["key"]).1.trim().to_owned();
    let first: VerifierKey = key.parse().unwrap();
    assert!(daemon.log().contains(&key), "the key is said at the start");

    let mut run = daemon.run_on(requests::managed("open")).await;
    run.ok(calls::write("a.txt", "x")).await;
    let early = elsewhere.path().join("early");
    assert!(Command::new("cp").arg("-r").arg(&log).arg(&early).status().unwrap().success());
    run.ok(calls::write("b.txt", "x")).await;
    let note = coffer(&daemon, &["checkpoint"]).1;
    let checkpoint = Checkpoint::parse(&note).unwrap();
    assert!(checkpoint.is_signed_by(&first));
    let second = coffer(&daemon, &["rotate-key"]).1.trim().to_owned();
    assert_ne!(second, key);
    run.ok(calls::write("c.txt", "x")).await;
    let verified = run.clients.verify().await;
    assert!(verified.intact, "{}", verified.damage);
    assert_eq!(verified.verifier_keys, [key.clone(), second.clone()]);
    assert!(verified.covered_records >= checkpoint.size);
    daemon.stop().await;

    // The stop is signed and was sent: whoever kept that finds everything in it, and whatever is missing.
    let kept = Checkpoint::parse_all(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let report = verify_with(&log, Against { keys: vec![first], ..Default::default() }, &mut |_| ()).unwrap();
    assert!(report.is_intact(), "{:?}", report.integrity);
    assert_eq!(kept.last().unwrap().size, report.covered);
    assert_eq!(report.covered + 1, report.head.unwrap().sequence, "all but its own record");
    let file = file.to_str().unwrap();
    assert!(offline(&log, &["--key", &key, "--checkpoint", file]).0);
    let (intact, said) = offline(&early, &["--key", &key, "--checkpoint", file]);
    assert!(!intact && said.contains("rolled back"), "{said}");
    assert!(!offline(&log, &["--key", &second[..second.len() - 1]]).0, "no key");

    // The key that was rotated to is still there.
    daemon.launch().await;
    assert_eq!(coffer(&daemon, &["key"]).1.trim(), second);
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_are_posted_until_they_are_accepted_and_the_last_one_at_the_stop() {
    let elsewhere = tempfile::tempdir().unwrap();
    let (port, mut posts) = receiver().await;
    let webhook = format!(
        "{{ url: 'http://127.0.0.1:{port}/witness', secret_file: {}, first_retry: 1s }}",
        secret(elsewhere.path()).display()
    );
    let config = format!("audit: {{ checkpoint: {{ interval: 1h, webhook: {webhook} }} }}\n");
    let mut daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let log = daemon.state_dir().join("audit");
    let key: VerifierKey = coffer(&daemon, &["key"]).1.trim().parse().unwrap();
    let taken = |request: &str| {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /witness HTTP/1.1\r\n"), "{head}");
        assert_eq!(header(head, "webhook-signature"), signature(&[1; 24], request));
        let message: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(message["type"], "audit.checkpoint");
        let checkpoint = Checkpoint::parse(message["data"]["note"].as_str().unwrap()).unwrap();
        assert!(checkpoint.is_signed_by(&key));
        assert_eq!(message["data"]["size"], checkpoint.size);
        (header(head, "webhook-id").to_owned(), checkpoint)
    };

    // What is refused is posted again, or a newer one in its place.
    let (stream, request) = posts.recv().await.unwrap();
    answer(stream, "503 Later").await;
    let refused = taken(&request);
    let (stream, request) = posts.recv().await.unwrap();
    answer(stream, "204 No Content").await;
    let again = taken(&request);
    assert!(again.1.size > refused.1.size || again.0 == refused.0, "{again:?} after {refused:?}");

    let mut run = daemon.run_on(requests::managed("open")).await;
    run.ok(calls::write("a.txt", "x")).await;
    let asked = Checkpoint::parse(&coffer(&daemon, &["checkpoint"]).1).unwrap();
    let posted = loop {
        let (stream, request) = posts.recv().await.unwrap();
        answer(stream, "200 OK").await;
        let (_, posted) = taken(&request);
        if posted.size >= asked.size {
            break posted;
        }
    };
    assert_eq!((posted.size, posted.root), (asked.size, asked.root));

    // The stop signs once more, and does not end before that is taken.
    let ((), last) = tokio::join!(daemon.stop(), async {
        let (stream, request) = posts.recv().await.unwrap();
        answer(stream, "200 OK").await;
        taken(&request).1
    });
    let kept = elsewhere.path().join("kept");
    std::fs::write(&kept, &last.note).unwrap();
    let report =
        verify_with(&log, Against { keys: vec![key.clone()], ..Default::default() }, &mut |_| ()).unwrap();
    assert!(report.is_intact() && report.covered == last.size, "{:?}", report.integrity);
    assert!(offline(&log, &["--checkpoint", kept.to_str().unwrap()]).0);
    assert!(!daemon.log().contains("AQEB"), "the secret stays one");
}

#[tokio::test(flavor = "multi_thread")]
async fn old_segments_are_compressed_and_removed_while_the_daemon_serves() {
    let config = "audit: { segment_size: 64KiB, segment_age: 1s, compress_after: 1s, remove_after: 5s, \
                  checkpoint: { records: 10, interval: 1s } }\n";
    let setup = Setup { config: config.to_owned(), ..Default::default() };
    let mut daemon = Daemon::start_with(setup).await;
    let log = daemon.state_dir().join("audit");
    let mut run = daemon.run_on(requests::managed("open")).await;
    let mut compressed = 0;
    let mut n = 0;
    loop {
        run.ok(calls::write("a.txt", &format!("{n}"))).await;
        n += 1;
        let names = std::fs::read_dir(&log).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        compressed = compressed.max(names.filter(|name| name.contains(".jsonl.gz")).count());
        if log.join("removed").exists() {
            break;
        }
        assert!(n < 2_000, "nothing was removed; compressed: {compressed}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(compressed > 0);
    let verified = run.clients.verify().await;
    assert!(verified.intact && verified.removed_records > 0, "{verified:?}");
    let events = run.clients.events("", "").await;
    assert!(events[0].sequence > verified.removed_records, "a stream begins with what is there");
    assert!(events.windows(2).all(|pair| pair[0].sequence + 1 == pair[1].sequence));
    assert!(events.iter().any(|event| event.kind == "segments_removed"));
    daemon.relaunch().await;
    let mut clients = daemon.connect().await;
    let between_removals = async {
        loop {
            let verified = clients.verify().await;
            let events = clients.events("", "").await;
            if clients.verify().await.removed_records == verified.removed_records {
                return (verified, events);
            }
        }
    };
    let (verified, events) = tokio::time::timeout(Duration::from_secs(30), between_removals).await.unwrap();
    assert!(verified.intact);
    assert_eq!(events[0].sequence, verified.removed_records + 1, "and after a restart with that alone");
}
