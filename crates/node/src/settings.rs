//! The section `node` of the configuration.

use std::collections::BTreeMap;

use document::{At, Fields};
use node_id::NodeId;
use serde_json::{Value, json};

/// Maximum number of labels.
const MAX_LABELS: usize = 64;
/// Maximum length of a label's name after its prefix, and of its value, bytes.
const MAX_NAME: usize = 63;
/// Maximum length of the prefix of a label's name, bytes.
const MAX_PREFIX: usize = 253;
/// Largest number of MiB that a bound can have: 1 EiB.
const MAX_MIB: u64 = 1 << 40;
/// Cores that limits of runs may add up to for each core of the host, if the configuration does not say.
const OVERCOMMIT: u64 = 4;

/// The section as it is written. A missing value has its default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    pub id: Option<NodeId>,
    pub labels: BTreeMap<String, String>,
    /// Bounds on the sum of all runs. `None`: only their number is bounded.
    pub capacity: Option<CapacitySettings>,
    /// Runs that all principals together may create in a minute. `None`: any number.
    pub creates_per_minute: Option<u64>,
}

/// Bounds on the sum of all runs. `None` is the amount that the host has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapacitySettings {
    pub runs: Option<u64>,
    pub memory_mib: Option<u64>,
    pub cores: Option<u64>,
    pub disk_mib: Option<u64>,
    /// Cores that limits of runs may add up to for each core.
    pub core_overcommit: u64,
}

impl Default for CapacitySettings {
    fn default() -> Self {
        Self { runs: None, memory_mib: None, cores: None, disk_mib: None, core_overcommit: OVERCOMMIT }
    }
}

impl Settings {
    /// Reads the section. A value with a problem is replaced by its default or left out.
    pub fn read(top: &Fields<'_>) -> Self {
        let fields = top.section("node", &["id", "labels", "capacity", "creates_per_minute"]);
        Self {
            id: fields.get("id").and_then(id),
            labels: fields.get("labels").map(labels).unwrap_or_default(),
            capacity: fields.get("capacity").map(capacity),
            creates_per_minute: fields.get("creates_per_minute").and_then(|at| at.number(1..=1_000_000)),
        }
    }

    /// Returns the section in the form of the configuration file. `None`: it is empty.
    pub fn shown(&self) -> Option<Value> {
        if *self == Self::default() {
            return None;
        }
        let mut shown = json!({});
        if let Some(id) = self.id {
            shown["id"] = id.get().into();
        }
        if !self.labels.is_empty() {
            shown["labels"] = json!(self.labels);
        }
        if let Some(capacity) = &self.capacity {
            shown["capacity"] = json!({ "core_overcommit": capacity.core_overcommit });
            let bounds = [
                ("runs", capacity.runs),
                ("memory_mib", capacity.memory_mib),
                ("cores", capacity.cores),
                ("disk_mib", capacity.disk_mib),
            ];
            for (key, bound) in bounds.into_iter().filter_map(|(key, bound)| Some((key, bound?))) {
                shown["capacity"][key] = bound.into();
            }
        }
        if let Some(creates) = self.creates_per_minute {
            shown["creates_per_minute"] = creates.into();
        }
        Some(shown)
    }
}

fn id(at: &At<'_>) -> Option<NodeId> {
    let number = at.number(1..=u64::from(u16::MAX))?;
    u16::try_from(number).ok().and_then(|number| NodeId::try_from(number).ok())
}

fn capacity(at: &At<'_>) -> CapacitySettings {
    let fields = at.fields(&["runs", "memory_mib", "cores", "disk_mib", "core_overcommit"]);
    let bound = |key, most| fields.get(key).and_then(|at: &At<'_>| at.number(1..=most));
    CapacitySettings {
        runs: bound("runs", 10_000),
        memory_mib: bound("memory_mib", MAX_MIB),
        cores: bound("cores", 65_536),
        disk_mib: bound("disk_mib", MAX_MIB),
        core_overcommit: fields.number_or("core_overcommit", 1..=64, OVERCOMMIT),
    }
}

/// Reads labels of the form that Kubernetes has.
fn labels(at: &At<'_>) -> BTreeMap<String, String> {
    let entries = at.entries();
    if entries.len() > MAX_LABELS {
        at.problem(format!("has more than {MAX_LABELS} labels"));
        return BTreeMap::new();
    }
    let mut labels = BTreeMap::new();
    for (key, at) in entries {
        if !is_key(key) {
            at.problem(
                "the name of a label has 1 to 63 characters of letters, digits, `-`, `_` and `.`, begins and ends with a letter or a \
                 digit, and may have a DNS name and `/` before it",
            );
        }
        let Some(value) = at.value() else { continue };
        if !value.is_empty() && !is_name(&value) {
            at.problem(
                "must have at most 63 characters of letters, digits, `-`, `_` and `.`, and begin and end with a letter or a digit",
            );
        }
        labels.insert(key.to_owned(), value);
    }
    labels
}

fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_dns_name(prefix) && is_name(name),
        None => is_name(key),
    }
}

fn is_name(name: &str) -> bool {
    let is_end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    name.len() <= MAX_NAME
        && is_end(name.bytes().next())
        && is_end(name.bytes().next_back())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn is_dns_name(name: &str) -> bool {
    let is_end =
        |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let is_part = |part: &str| {
        is_end(part.bytes().next())
            && is_end(part.bytes().next_back())
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    name.len() <= MAX_PREFIX && name.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, Vec<String>> {
        let read = document::read("f", text, |top| Settings::read(&top.fields(&["node"])));
        read.map_err(|problems| problems.into_iter().map(|problem| problem.key).collect())
    }

    #[test]
    fn a_section_is_read_and_shown_again() {
        let text = "node: { id: 7, labels: { zone: b, example.org/gpu: \"\" }, capacity: { runs: 9, memory_mib: 8192 }, \
                    creates_per_minute: 30 }";
        let settings = read(text).unwrap();
        let capacity = CapacitySettings { runs: Some(9), memory_mib: Some(8_192), ..Default::default() };
        assert_eq!(settings.id.map(NodeId::get), Some(7));
        assert_eq!((settings.capacity.as_ref(), settings.creates_per_minute), (Some(&capacity), Some(30)));
        assert_eq!(
            settings.shown().unwrap(),
            json!({
                "id": 7,
                "labels": { "example.org/gpu": "", "zone": "b" },
                "capacity": { "runs": 9, "memory_mib": 8192, "core_overcommit": 4 },
                "creates_per_minute": 30,
            })
        );
        for empty in ["", "node: {}"] {
            assert_eq!(read(empty).unwrap().shown(), None);
        }
        // All bounds are those of the host, and in force.
        assert_eq!(read("node: { capacity: {} }").unwrap().capacity, Some(CapacitySettings::default()));
    }

    #[test]
    fn each_wrong_value_is_named() {
        for (text, key) in [
            ("id: 0", "node.id"),
            ("id: 65536", "node.id"),
            ("id: seven", "node.id"),
            ("capacity: { runs: 0 }", "node.capacity.runs"),
            ("capacity: { cores: 65537 }", "node.capacity.cores"),
            ("capacity: { memory: 1 }", "node.capacity.memory"),
            ("capacity: { core_overcommit: 65 }", "node.capacity.core_overcommit"),
            ("creates_per_minute: 0", "node.creates_per_minute"),
            ("labels: { -zone: b }", "node.labels.-zone"),
            ("labels: { zone: b/c }", "node.labels.zone"),
            ("labels: { Example.org/x: b }", "node.labels.Example.org/x"),
            ("labels: { a/b/c: d }", "node.labels.a/b/c"),
        ] {
            assert_eq!(read(&format!("node: {{ {text} }}")).unwrap_err(), [key], "{text}");
        }
        let many: Vec<String> = (0..65).map(|label| format!("l{label}: x")).collect();
        let many = format!("node: {{ labels: {{ {} }} }}", many.join(", "));
        assert_eq!(read(&many).unwrap_err(), ["node.labels"]);
    }

    #[test]
    fn labels_have_the_form_that_kubernetes_has() {
        let long = "x".repeat(63);
        for good in ["a", "A.b-c_9", "example.org/a", &long, &format!("a.b-1.example/{long}")] {
            assert!(is_key(good), "{good}");
        }
        for bad in ["", "/a", "a/", "a b", ".a", "a-", "a..b/x", "-a/x", "a_b/x", "ä", &format!("{long}x")] {
            assert!(!is_key(bad), "{bad}");
        }
    }
}
