//! A log whose last record was cut by a crash, and one that was changed.

use std::io::Write as _;
use std::path::PathBuf;

use harness::{Daemon, calls, record, requests};

fn last_segment(daemon: &Daemon) -> PathBuf {
    let entries = std::fs::read_dir(daemon.state_dir().join("audit")).unwrap();
    let mut segments: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect();
    segments.sort();
    segments.pop().expect("a log has a segment")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_tail_is_cut_and_the_cut_is_on_record() {
    let mut daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("open")).await;
    run.ok(calls::write("a.txt", "x")).await;
    let before = run.clients.events("", "").await;
    daemon.kill().await;
    let segment = last_segment(&daemon);
    let torn = b"{\"v\":1,\"sequence\":99,\"ti";
    std::fs::File::options().append(true).open(&segment).unwrap().write_all(torn).unwrap();

    daemon.launch().await;
    assert!(daemon.log().contains("torn tail"), "it is said aloud");
    let mut clients = daemon.connect().await;
    assert!(clients.verify().await.intact);
    let after = clients.events("", "").await;
    assert_eq!(after[..before.len()], before);
    let repair = &after[before.len()];
    assert_eq!(repair.kind, "log_repaired");
    assert!(record(repair).to_string().contains(&torn.len().to_string()), "{}", repair.record_json);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_record_is_found_and_reported_with_its_position() {
    let mut daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("open")).await;
    run.ok(calls::write("a.txt", "x")).await;
    let segment = last_segment(&daemon);
    let text = std::fs::read_to_string(&segment).unwrap();
    std::fs::write(&segment, text.replacen("\"tester\"", "\"nobody\"", 1)).unwrap();
    let verified = run.clients.verify().await;
    assert!(!verified.intact && !verified.damage.is_empty(), "{verified:?}");
    // Mended, so that the daemon can end in good order.
    std::fs::write(&segment, text).unwrap();
    daemon.stop().await;
}
