//! Helpers that the tests of this crate share.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::canonical::Header;
use crate::event::{Decision, Event, Kind, Outcome, Status, Usage, Verdict};
use crate::hash::{Hash, LogId};

pub(crate) fn log_id() -> LogId {
    "000102030405060708090a0b0c0d0e0f".parse().unwrap()
}

pub(crate) fn header(sequence: u64) -> Header {
    Header {
        log: log_id(),
        sequence,
        time: "2026-11-21T12:00:00.000000001Z".parse().unwrap(),
        previous: if sequence == 1 { log_id().genesis() } else { Hash::of(b"previous") },
    }
}

/// Returns a typical call that is identified by `n`.
pub(crate) fn call(n: usize) -> Event {
    Event::new(Kind::CallReceipt)
        .run("0192f0c1-0000-7000-8000-000000000001")
        .call(format!("0192f0c1-0000-7000-8000-{n:012}"))
        .principal("uid:1000")
        .agent("alice")
        .operation("read")
        .input(json!({"path": format!("src/file-{n}.rs")}))
        .decision(Decision::new(Verdict::Allow).rule("review.read"))
        .outcome(Outcome::new(Status::Succeeded).facts(json!({"size_bytes": n})))
        .duration_us(n as u64)
}

pub(crate) fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,20}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("\\PC{0,8}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Returns any event that is written unchanged. (A value that is JSON's null is the only one that reads back as absent.)
pub(crate) fn any_event() -> impl Strategy<Value = Event> {
    let kind =
        prop_oneof![Just(Kind::CallIntent), Just(Kind::CallReceipt), Just(Kind::Alert), Just(Kind::RunState)];
    let name = || proptest::option::of("\\PC{0,30}");
    let value = || proptest::option::of(any_value().prop_filter("null is absence", |v| !v.is_null()));
    (kind, name(), name(), value(), value(), proptest::option::of(any::<u64>()), any::<(bool, i32, u64)>())
        .prop_map(|(kind, run, principal, input, details, duration, (ended, exit_code, bytes_in))| {
            let mut event = Event::new(kind);
            event.run_id = run;
            event.principal = principal;
            event.input = input;
            event.details = details;
            event.duration_us = duration;
            if ended {
                event.outcome =
                    Some(Outcome::new(Status::Failed).exit_code(exit_code).message("it \"failed\"\n"));
                event.usage = Some(Usage { bytes_in, ..Usage::default() });
            }
            event
        })
}
