//! `tests/clients/ocsf.rs` holds events against the framework's own schema.

use serde_json::{Value, json};

use super::event;
use crate::event::{Decision, Event, Kind, Outcome, Status, Usage, Verdict};
use crate::hash::Hash;
use crate::record::Record;
use crate::testing::log_id;

fn record(event: Event) -> Record {
    Record {
        log: log_id(),
        sequence: 7,
        time: "2026-11-21T12:00:01.500734210Z".parse().unwrap(),
        previous: Hash::of(b"before"),
        hash: Hash::of(b"this"),
        event,
    }
}

fn receipt() -> Event {
    Event::new(Kind::CallReceipt)
        .run("run")
        .call("call")
        .principal("uid:1000")
        .agent("alice")
        .operation("write")
        .input(json!({"path": "a.txt"}))
        .decision(Decision::new(Verdict::Allow).rule("r"))
        .outcome(Outcome::new(Status::Failed).reason("WRITE_LIMIT").message("too large").exit_code(3))
        .duration_us(2_500_u64)
        .image("sha256:00")
        .usage(Usage::default())
}

#[test]
fn a_receipt_maps_all_fields_to_the_framework() {
    let made = event(&record(receipt()));
    let picked: Vec<_> = [
        "/class_uid",
        "/activity_id",
        "/type_uid",
        "/time",
        "/duration",
        "/status_id",
        "/status_code",
        "/severity_id",
        "/actor/user/name",
        "/actor/app_name",
        "/api/operation",
        "/api/request/uid",
        "/api/response/code",
        "/metadata/correlation_uid",
        "/resources/2/name",
        "/unmapped/decision/rule",
    ]
    .map(|path| made.pointer(path).unwrap().clone())
    .into();
    let expected = json!([
        6003,
        3,
        600_303,
        1_795_262_401_500_i64,
        2,
        2,
        "WRITE_LIMIT",
        2,
        "uid:1000",
        "alice",
        "write",
        "call",
        3,
        "run",
        "a.txt",
        "r"
    ]);
    assert_eq!(Value::from(picked), expected);
}
