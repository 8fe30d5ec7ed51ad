//! Tests the verifier that the book shows, `docs/verify_log.py`, on the log of a run.

use std::path::Path;
use std::process::{Command, Output};

use harness::{Daemon, calls, requests};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/verify_log.py");
const SEGMENT: &str = "00000000000000000001.jsonl";

fn verify(log: &Path) -> Output {
    Command::new("python3").arg(SCRIPT).arg(log).output().expect("python3 is part of the set-up")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_verifier_of_the_book_accepts_a_log_and_names_a_changed_record() {
    assert!(std::fs::read_to_string(SCRIPT).unwrap().lines().count() <= 60);
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("open")).await;
    run.ok(calls::write("a.txt", "one")).await;
    run.ok(calls::read("a.txt")).await;

    let mut text = std::fs::read_to_string(daemon.state_dir().join("audit").join(SEGMENT)).unwrap();
    // The daemon may be writing the next record.
    text.truncate(text.rfind('\n').unwrap() + 1);
    let log = daemon.outside().join("log");
    std::fs::create_dir(&log).unwrap();
    std::fs::write(log.join(SEGMENT), &text).unwrap();
    let output = verify(&log);
    assert!(output.status.success(), "{output:?}");
    let expected = format!("intact: {} records, head ", text.lines().count());
    assert!(String::from_utf8_lossy(&output.stdout).starts_with(&expected), "{output:?}");

    let place = text.find("\"call_intent\"").expect("the run has calls");
    let record = text[..place].lines().count();
    let mut changed = text.into_bytes();
    changed[place + 1] ^= 1;
    std::fs::write(log.join(SEGMENT), changed).unwrap();
    let output = verify(&log);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let expected = format!("broken: record {record}: the content does not have its hash");
    assert!(String::from_utf8_lossy(&output.stderr).starts_with(&expected), "{output:?}");
}
