//! Checks that the requested settings are in force.
//!
//! The request and the settings read back have the same form. So the comparison is one loop over all fields and cannot forget one.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::engine::Inspection;
use crate::spec::ContainerSpec;

/// A setting that is not in force as requested. A run with such a setting never becomes ready.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: requested {wanted}, in force {in_force}")]
pub struct Mismatch {
    pub field: String,
    /// Requested value, shortened.
    pub wanted: String,
    /// Value that the engine reports, shortened.
    pub in_force: String,
}

/// One line of a run's hardening for people and for the API. It contains no host path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HardeningLine {
    pub name: String,
    pub value: String,
    /// True if the engine confirmed it.
    pub in_force: bool,
}

/// A line for every field of the specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HardeningReport {
    pub lines: Vec<HardeningLine>,
}

/// Compares the request with the settings in force, and returns the differences.
pub fn verify(wanted: &ContainerSpec, inspection: &Inspection) -> Vec<Mismatch> {
    let (wanted, found) = (fields(wanted), fields(&inspection.in_force));
    // A field that only one side has is compared, too.
    let names: BTreeSet<&String> = wanted.keys().chain(found.keys()).collect();
    names
        .into_iter()
        .filter_map(|field| {
            let wanted = wanted.get(field).unwrap_or(&Value::Null);
            let found = found.get(field).unwrap_or(&UNREADABLE);
            let mismatch = || Mismatch {
                wanted: describe(field, wanted),
                in_force: describe(field, found),
                field: field.clone(),
            };
            (!agrees(field, wanted, found)).then(mismatch)
        })
        .collect()
}

/// Returns the same comparison as a list for display.
pub fn report(wanted: &ContainerSpec, inspection: &Inspection) -> HardeningReport {
    let wrong = verify(wanted, inspection);
    let lines = fields(wanted)
        .into_iter()
        .filter(|(name, _)| !matches!(name.as_str(), "labels" | "surplus"))
        .map(|(name, value)| HardeningLine {
            value: describe(&name, &value),
            in_force: !wrong
                .iter()
                .any(|mismatch| mismatch.field == name || SPOILS.contains(&mismatch.field.as_str())),
            name,
        })
        .collect();
    HardeningReport { lines }
}

/// Fields that make all others worthless if they differ, because they grant rights that were not requested.
const SPOILS: [&str; 2] = ["surplus", "capabilities_added"];

/// Value that differs from every requested value.
static UNREADABLE: Value = Value::String(String::new());

/// Returns the fields of a specification.
///
/// A struct with string keys always becomes an object. If it did not, the one field made here instead would agree with none.
fn fields(spec: &ContainerSpec) -> Map<String, Value> {
    match serde_json::to_value(spec) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::from_iter([("specification".to_owned(), Value::Null)]),
    }
}

/// Compares one field. Images add variables and labels, and the engine adds default limits and options of its log driver, so the requested
/// ones must be among them.
fn agrees(field: &str, wanted: &Value, found: &Value) -> bool {
    match (field, wanted, found) {
        ("env" | "labels" | "limits" | "log_options", Value::Object(wanted), Value::Object(found)) => {
            wanted.iter().all(|(key, value)| found.get(key) == Some(value))
        }
        ("runtime", Value::Null, _) => true,
        _ => wanted == found,
    }
}

fn describe(field: &str, value: &Value) -> String {
    const LONGEST: usize = 300;
    let text = match (field, value) {
        ("seccomp", Value::String(profile)) if profile.len() > 64 => {
            format!("profile sha256:{}", &hex::encode(Sha256::digest(profile.as_bytes()))[..12])
        }
        ("mounts", Value::Array(mounts)) => mounts.iter().map(describe_mount).collect::<Vec<_>>().join(", "),
        (_, Value::String(text)) => text.clone(),
        (_, Value::Null) => "the engine's default".into(),
        (_, Value::Array(items)) => {
            items.iter().map(|item| describe("", item)).collect::<Vec<_>>().join(", ")
        }
        (_, Value::Object(items)) => items
            .iter()
            .map(|(key, item)| format!("{key}={}", describe("", item)))
            .collect::<Vec<_>>()
            .join(", "),
        (_, other) => other.to_string(),
    };
    match (text.as_str(), field) {
        ("", "pid_namespace" | "uts_namespace" | "user_namespace") => "its own, or the engine's".into(),
        ("", _) => "none".into(),
        _ => text.chars().take(LONGEST).collect(),
    }
}

/// Describes a mount without its source, which is a host path.
fn describe_mount(mount: &Value) -> String {
    let target = mount["target"].as_str().unwrap_or("?");
    let access = if mount["read_only"] == Value::Bool(true) { "read-only" } else { "read-write" };
    format!("{target} {access} {}", mount["propagation"].as_str().unwrap_or("?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ContainerState;
    use crate::hardening::tests::facts;
    use crate::hardening::{Hardening, container_spec};
    use crate::ids::ContainerId;
    use crate::run_as::RunAs;

    fn spec() -> ContainerSpec {
        container_spec(&Hardening::default(), &facts()).unwrap()
    }

    fn inspected(in_force: ContainerSpec) -> Inspection {
        let id = ContainerId::parse(&"ab".repeat(32)).unwrap();
        Inspection {
            id,
            state: ContainerState::Running,
            host_pid: Some(1),
            started_at: String::new(),
            oom_killed: false,
            in_force,
        }
    }

    /// Another value of the same JSON type.
    fn flipped(value: &Value) -> Value {
        match value {
            Value::Null => Value::String("another".into()),
            Value::Bool(on) => Value::Bool(!on),
            Value::Number(n) => Value::from(n.as_i64().unwrap() + 1),
            Value::String(text) => Value::String(format!("{text}x")),
            Value::Array(items) if items.is_empty() => serde_json::json!(["something"]),
            Value::Array(items) => Value::Array(items[1..].to_vec()),
            Value::Object(items) => {
                let (key, value) = items.iter().next().unwrap();
                let mut items = items.clone();
                items.insert(key.clone(), flipped(value));
                Value::Object(items)
            }
        }
    }

    #[test]
    fn a_container_as_requested_has_no_mismatch() {
        assert_eq!(verify(&spec(), &inspected(spec())), []);
        let report = report(&spec(), &inspected(spec()));
        assert!(report.lines.iter().all(|line| line.in_force));
        assert!(!report.lines.iter().any(|line| line.value.contains("/srv/")), "host paths stay here");
    }

    #[test]
    fn every_single_field_is_compared() {
        let profile = Hardening { runtime: Some("runc".into()), ..Hardening::default() };
        let wanted = container_spec(&profile, &facts()).unwrap();
        let all = fields(&wanted);
        assert!(all.len() > 30);
        for (name, value) in &all {
            let mut changed = all.clone();
            changed.insert(name.clone(), flipped(value));
            let in_force = serde_json::from_value(Value::Object(changed)).unwrap();
            let found: Vec<String> =
                verify(&wanted, &inspected(in_force)).into_iter().map(|mismatch| mismatch.field).collect();
            assert_eq!(found, std::slice::from_ref(name));
        }
    }

    #[test]
    fn capabilities_are_compared_on_both_sides() {
        let root = Hardening { run_as: RunAs::MappedRoot, ..Hardening::default() };
        let root = container_spec(&root, &facts()).unwrap();
        let mut without = root.clone();
        without.capabilities_added.clear();
        let mut with = spec();
        with.capabilities_added.push("CAP_SYS_ADMIN".into());
        for (wanted, in_force) in [(root, without), (spec(), with)] {
            let found = verify(&wanted, &inspected(in_force.clone()));
            assert_eq!(
                found.iter().map(|found| found.field.as_str()).collect::<Vec<_>>(),
                ["capabilities_added"]
            );
            assert!(report(&wanted, &inspected(in_force)).lines.iter().all(|line| !line.in_force));
        }
    }

    #[test]
    fn every_part_of_a_mount_is_compared() {
        let mounts = spec().mounts;
        let pkg = mounts.iter().position(|mount| mount.target == "/pkg").unwrap();
        for part in ["source", "target", "read_only", "propagation"] {
            let mut changed = fields(&spec());
            changed["mounts"][pkg][part] = match part {
                "propagation" => "private".into(),
                _ => flipped(&changed["mounts"][pkg][part]),
            };
            let in_force = serde_json::from_value(Value::Object(changed)).unwrap();
            assert_eq!(verify(&spec(), &inspected(in_force)).len(), 1, "{part}");
        }
    }

    #[test]
    fn image_may_add_variables_but_not_change_required_ones() {
        let mut more = spec();
        more.env.insert("JAVA_HOME".into(), "/opt/java".into());
        more.runtime = Some("runc".into());
        assert_eq!(verify(&spec(), &inspected(more.clone())), []);
        more.env.remove("HOME");
        assert_eq!(verify(&spec(), &inspected(more))[0].field, "env");
    }

    #[test]
    fn a_surplus_setting_spoils_the_whole_report() {
        let mut privileged = spec();
        privileged.surplus.push("privileged".into());
        let mismatches = verify(&spec(), &inspected(privileged.clone()));
        assert_eq!(mismatches[0].to_string(), "surplus: requested none, in force privileged");
        assert!(report(&spec(), &inspected(privileged)).lines.iter().all(|line| !line.in_force));
    }
}
