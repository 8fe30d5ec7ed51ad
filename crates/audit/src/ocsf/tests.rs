use proptest::prelude::*;
use serde_json::{Value, json};

use super::event;
use crate::event::{Decision, Event, Kind, Outcome, Status, Usage, Verdict};
use crate::hash::Hash;
use crate::record::Record;
use crate::testing::{any_event, log_id};

fn schema() -> Value {
    serde_json::from_str(include_str!("api_activity-1.3.0.json")).unwrap()
}

/// What of JSON Schema the framework's schemas use; anything else would be an oversight, and fails.
fn check(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    for (keyword, says) in schema.as_object().unwrap() {
        match keyword.as_str() {
            "$schema" | "$id" | "$defs" | "title" | "description" | "deprecated" | "format" => {}
            "$ref" => {
                let path = says.as_str().unwrap().strip_prefix('#').unwrap();
                check(root, root.pointer(path).unwrap(), value, at)?;
            }
            "type" => {
                let fits = match says.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "integer" => value.is_i64() || value.is_u64(),
                    "number" => value.is_number(),
                    "boolean" => value.is_boolean(),
                    other => panic!("unknown type {other}"),
                };
                if !fits {
                    return Err(format!("{at}: {value} is no {says}"));
                }
            }
            "enum" | "const" => {
                let allowed = says.as_array().cloned().unwrap_or_else(|| vec![says.clone()]);
                if !allowed.contains(value) {
                    return Err(format!("{at}: {value} is none of {says}"));
                }
            }
            "required" => {
                if let Some(missing) =
                    says.as_array().unwrap().iter().find(|name| value.get(name.as_str().unwrap()).is_none())
                {
                    return Err(format!("{at}: {missing} is missing"));
                }
            }
            "properties" => {
                for (name, member) in value.as_object().into_iter().flatten() {
                    if let Some(schema) = says.get(name) {
                        check(root, schema, member, &format!("{at}/{name}"))?;
                    }
                }
            }
            "additionalProperties" => {
                let known = &schema["properties"];
                for name in value.as_object().into_iter().flatten().map(|(name, _)| name) {
                    if says == &json!(false) && known.get(name).is_none() {
                        return Err(format!("{at}: {name} is not in the schema"));
                    }
                }
            }
            "items" => {
                for item in value.as_array().unwrap() {
                    check(root, says, item, &format!("{at}[]"))?;
                }
            }
            "anyOf" => {
                if !says.as_array().unwrap().iter().any(|one| check(root, one, value, at).is_ok()) {
                    return Err(format!("{at}: none of {says}"));
                }
            }
            "pattern" => {
                let pattern = regex::Regex::new(says.as_str().unwrap()).unwrap();
                if !pattern.is_match(value.as_str().unwrap()) {
                    return Err(format!("{at}: {value} does not match {says}"));
                }
            }
            "maxLength" => {
                if value.as_str().unwrap().chars().count() as u64 > says.as_u64().unwrap() {
                    return Err(format!("{at}: too long"));
                }
            }
            other => panic!("unknown keyword {other}: {says}"),
        }
    }
    Ok(())
}

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
fn a_receipt_says_all_of_it_in_the_frameworks_words() {
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

#[test]
fn the_schema_is_really_held_against_it() {
    let schema = schema();
    let good = event(&record(receipt()));
    check(&schema, &schema, &good, "").unwrap();
    for spoil in [
        |event: &mut Value| drop(event.as_object_mut().unwrap().remove("src_endpoint")),
        |event: &mut Value| event["activity_id"] = 5.into(),
        |event: &mut Value| event["time"] = "now".into(),
        |event: &mut Value| event["nonsense"] = 1.into(),
        |event: &mut Value| event["actor"] = json!({}),
        |event: &mut Value| event["resources"][0] = json!({ "type": "run" }),
    ] {
        let mut bad = good.clone();
        spoil(&mut bad);
        assert!(check(&schema, &schema, &bad, "").is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn every_record_is_an_event_of_the_schema(any in any_event()) {
        let schema = schema();
        prop_assert_eq!(check(&schema, &schema, &event(&record(any)), ""), Ok(()));
    }
}
