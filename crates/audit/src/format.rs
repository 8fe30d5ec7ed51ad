//! Tests that the vectors in `docs/src/audit-format.md` verify, and that the encoding of the same events gives the same bytes.

use serde_json::json;

use crate::canonical::{self, Header};
use crate::event::{Decision, Event, Kind, Outcome, Status, Usage, Verdict};
use crate::ledger::Ledger;
use crate::signer::Signer;
use crate::testing::log_id;
use crate::verify::verify;

const DOCUMENT: &str = include_str!("../../../docs/src/audit-format.md");
const VECTORS: &str = include_str!("../tests/vectors/plain.jsonl");
const SIGNED_VECTORS: &str = include_str!("../tests/vectors/signed.jsonl");

/// Returns a log with two keys and two checkpoints, and its last checkpoint.
fn signed() -> (String, String) {
    let (one, two) = (Signer::fixed(log_id(), 1), Signer::fixed(log_id(), 2));
    let mut ledger = Ledger::genesis();
    let mut text = Vec::new();
    let mut last = String::new();
    let vouched = one.vouch(two.verifier_key());
    for second in 0..6 {
        let event = match second {
            0 => Event::new(Kind::AuditKey).details(json!({"key": one.verifier_key().to_string()})),
            2 | 4 => {
                let checkpoint = if second == 2 { &one } else { &two }.checkpoint(ledger.tree());
                last.clone_from(&checkpoint.note);
                Event::new(Kind::Checkpoint)
                    .details(json!({"size": checkpoint.size, "note": checkpoint.note}))
            }
            3 => Event::new(Kind::AuditKey)
                .details(json!({"key": two.verifier_key().to_string(), "note": vouched})),
            _ => Event::new(Kind::DaemonStarted).principal("uid:0"),
        };
        let head = ledger.chain.head();
        let header = Header {
            log: log_id(),
            sequence: ledger.chain.next(),
            time: format!("2026-11-22T12:00:0{second}.000000000Z").parse().unwrap(),
            previous: head.map_or_else(|| log_id().genesis(), |head| head.hash),
        };
        let start = text.len();
        canonical::encode(&mut text, &header, &event).unwrap();
        ledger.accept(&text[start..text.len() - 1]).unwrap();
    }
    (String::from_utf8(text).unwrap(), last)
}

#[test]
fn the_signed_vectors_equal_the_written_log_and_verify() {
    let (text, last) = signed();
    assert_eq!(text, SIGNED_VECTORS, "{text}\n{last}");
    assert!(DOCUMENT.contains(&format!("```text\n{last}```")), "{last}");
    for seed in [1, 2] {
        assert!(DOCUMENT.contains(&Signer::fixed(log_id(), seed).verifier_key().to_string()));
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("00000000000000000001.jsonl"), SIGNED_VECTORS).unwrap();
    let report = verify(dir.path(), &mut |_| ()).unwrap();
    assert!(report.is_intact());
    assert_eq!((report.records, report.checkpoints, report.covered, report.keys.len()), (6, 2, 4, 2));
}

fn events() -> [(&'static str, Event); 3] {
    let run = "0192f0c1-0000-7000-8000-000000000001";
    let call = "0192f0c1-0000-7000-8000-000000000002";
    let mut receipt = Event::new(Kind::CallReceipt)
        .run(run)
        .call(call)
        .operation("read")
        .outcome(Outcome::new(Status::Failed).reason("NOT_FOUND").message("no such file: \"grüße.txt\""))
        .duration_us(734_u64)
        .usage(Usage {
            cpu_us: Some(120),
            peak_memory_bytes: Some(0),
            wall_us: None,
            bytes_in: 58,
            bytes_out: 24,
        });
    receipt.redactions = Some(1);
    let intent = Event::new(Kind::CallIntent)
        .run(run)
        .call(call)
        .principal("uid:1000")
        .agent("alice")
        .role("worker")
        .operation("read")
        .input(json!({"path": "grüße.txt", "start_line": 1}))
        .decision(Decision::new(Verdict::Allow).rule("review.read"));
    [
        ("2026-11-21T12:00:00.000000001Z", Event::new(Kind::DaemonStarted).principal("uid:0")),
        ("2026-11-21T12:00:01.500000000Z", intent),
        ("2026-11-21T12:00:01.500734210Z", receipt),
    ]
}

#[test]
fn the_vectors_equal_the_written_log() {
    let mut text = Vec::new();
    let mut previous = log_id().genesis();
    assert!(DOCUMENT.contains(&format!("`previous` of the first is `{previous}`")));
    for (sequence, (time, event)) in (1..).zip(events()) {
        let header = Header { log: log_id(), sequence, time: time.parse().unwrap(), previous };
        previous = canonical::encode(&mut text, &header, &event).unwrap();
    }
    assert_eq!(String::from_utf8(text).unwrap(), VECTORS);
}

#[test]
fn the_vectors_are_an_intact_log() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("00000000000000000001.jsonl"), VECTORS).unwrap();
    let report = verify(dir.path(), &mut |_| ()).unwrap();
    assert!(report.is_intact());
    assert_eq!(report.records, 3);
    assert!(DOCUMENT.contains(&format!("\n`{}`.", report.head.unwrap().hash)));
}

#[test]
fn every_key_is_documented_in_its_order() {
    let full = json!({"kind": "alert", "run_id": "", "call_id": "", "request_id": "", "principal": "", "agent_id": "",
        "role": "", "dialect": "", "operation": "", "input": 1, "decision": {"outcome": "ask"}, "approval_id": "",
        "outcome": {"status": "failed"}, "duration_us": 1, "usage": {}, "image": "", "redactions": 1, "details": 1,
        "traceparent": ""});
    let event: Event = serde_json::from_value(full.clone()).unwrap();
    let written = serde_json::to_string(&event).unwrap();
    let listed = DOCUMENT.split_once("those of these keys").unwrap().1.split_once("Their order").unwrap().0;
    let keys: Vec<_> = listed.split('`').filter(|word| full.get(word).is_some()).collect();
    assert_eq!(keys.len(), full.as_object().unwrap().len() - 1);
    let places: Vec<_> = keys.iter().map(|key| written.find(&format!(",\"{key}\":")).unwrap()).collect();
    assert!(places.is_sorted(), "{keys:?} {written}");
}
