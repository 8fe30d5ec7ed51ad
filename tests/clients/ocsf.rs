//! Records as events of OCSF, held against the schema that the framework's own package makes; no network is used.

use std::io::Write as _;
use std::process::{Command, Stdio};

use audit::{Decision, Event, Hash, Kind, Outcome, Record, Status, Usage, Verdict, ocsf};
use serde_json::{Value, json};

use crate::tool_lists::python;

/// What the package says of each.
fn held(events: &[Value]) -> Vec<String> {
    let mut child = Command::new(python())
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/clients/python/ocsf.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for event in events {
        writeln!(stdin, "{event}").unwrap();
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn record(event: Event) -> Record {
    Record {
        log: "000102030405060708090a0b0c0d0e0f".parse().unwrap(),
        sequence: 7,
        time: "2026-11-21T12:00:01.500734210Z".parse().unwrap(),
        previous: Hash::of(b"before"),
        hash: Hash::of(b"this"),
        event,
    }
}

/// Every kind, with everything and with nothing; calls in every status, verdict and operation; texts that are odd.
fn events() -> Vec<Event> {
    const KINDS: [Kind; 28] = [
        Kind::DaemonStarted,
        Kind::LogRepaired,
        Kind::PolicyLoaded,
        Kind::ConfigurationChanged,
        Kind::RunCreated,
        Kind::RunState,
        Kind::RunRefused,
        Kind::CallIntent,
        Kind::CallReceipt,
        Kind::ApprovalDecided,
        Kind::SessionOpened,
        Kind::ProcessEnded,
        Kind::ImageImported,
        Kind::ImageBuilt,
        Kind::ImageExported,
        Kind::BaseExported,
        Kind::TokenCreated,
        Kind::TokenRevoked,
        Kind::PasskeyRegistered,
        Kind::PasskeyRemoved,
        Kind::BackupCreated,
        Kind::StateRestored,
        Kind::ConsoleSession,
        Kind::PushSubscription,
        Kind::RecordingRead,
        Kind::WorkspaceChange,
        Kind::Alert,
        Kind::Checkpoint,
    ];
    const STATUSES: [Status; 5] =
        [Status::Succeeded, Status::Failed, Status::Denied, Status::Interrupted, Status::PendingApproval];
    const OPERATIONS: [&str; 6] = ["read", "write", "delete", "exec", "git.commit", "mcp.a.b"];
    let full = |kind: Kind, text: &str| {
        Event::new(kind)
            .run(text)
            .call(text)
            .principal(text)
            .agent(text)
            .image(text)
            .operation("write")
            .input(json!({ "path": text, "deep": [null, { "a": text }] }))
            .duration_us(u64::MAX)
            .usage(Usage::default())
    };
    let mut events = Vec::new();
    for kind in KINDS {
        events.push(Event::new(kind));
        for text in ["", "x", "ä\u{0}\u{1f600}\n\"", &"long ".repeat(10_000)] {
            events.push(full(kind, text));
        }
    }
    for operation in OPERATIONS {
        for status in STATUSES {
            for verdict in [Verdict::Allow, Verdict::Ask, Verdict::Deny] {
                let outcome = Outcome::new(status).reason("WRITE_LIMIT").message("too large").exit_code(-1);
                let decided = full(Kind::CallReceipt, "x").operation(operation).outcome(outcome);
                events.push(decided.decision(Decision::new(verdict).rule("r")));
            }
        }
    }
    events
}

#[test]
fn every_record_is_an_event_of_the_schema() {
    let made: Vec<Value> = events().into_iter().map(|event| ocsf::event(&record(event))).collect();
    let said = held(&made);
    assert_eq!(said.len(), made.len());
    for (event, said) in made.iter().zip(said) {
        assert_eq!(said, "fits", "{event}");
    }
}

#[test]
fn the_schema_is_really_held_against_it() {
    let good = ocsf::event(&record(Event::new(Kind::CallReceipt).run("r").principal("p")));
    let spoiled = [
        |event: &mut Value| drop(event.as_object_mut().unwrap().remove("src_endpoint")),
        |event: &mut Value| event["activity_id"] = 5.into(),
        |event: &mut Value| event["time"] = "now".into(),
        |event: &mut Value| event["nonsense"] = 1.into(),
        |event: &mut Value| event["actor"] = json!({}),
        |event: &mut Value| event["resources"][0] = json!({ "type": "run" }),
    ]
    .map(|spoil| {
        let mut bad = good.clone();
        spoil(&mut bad);
        bad
    });
    for (event, said) in spoiled.iter().zip(held(&spoiled)) {
        assert_ne!(said, "fits", "{event}");
    }
}
