//! The single changes of a request, and the effect of each on the values.

use operations::FrontMatter;
use serde_yaml::{Mapping, Value};

use super::Invalid;

/// Change of one entry.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    /// Key of the entry, as spelt in the document.
    pub(super) key: String,
    pub(super) what: What,
}

/// Kind of change of an entry.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum What {
    /// Add items to a list.
    Append(Vec<Value>),
    /// Set a member of a mapping.
    SetMember(String, Value),
    /// Set the whole value.
    Set(Value),
}

/// Most members that are edited in the text one by one.
const FEW: usize = 32;

/// Returns the requested changes, in the order in which new entries are written.
pub(super) fn all(asked: &FrontMatter, document: &Value) -> Vec<Change> {
    let key = |camel: &str, snake: &str| {
        let has = |key: &str| document.get(key).is_some();
        if !has(camel) && has(snake) { snake.to_owned() } else { camel.to_owned() }
    };
    let mut changes = Vec::new();
    let mut add = |camel: &str, snake: &str, what| changes.push(Change { key: key(camel, snake), what });
    let list = |name: &str| document.get(name).and_then(Value::as_sequence).cloned().unwrap_or_default();
    let mut append = |camel: &str, snake: &str, items: Vec<Value>| {
        if !items.is_empty() {
            add(camel, snake, What::Append(items));
        }
    };
    let steps = key("stepsCompleted", "steps_completed");
    append("stepsCompleted", "steps_completed", missing(&asked.steps_completed_append, &list(&steps)));
    let decisions =
        asked.decision_log_append.iter().filter_map(|decision| serde_yaml::to_value(decision).ok());
    append("decisionLog", "decision_log", decisions.collect());
    append("artifacts", "artifacts", missing(&asked.artifacts_append, &list("artifacts")));
    let members = asked
        .variables_set
        .iter()
        .filter_map(|(name, value)| Some((name.clone(), serde_yaml::to_value(value).ok()?)));
    if asked.variables_set.len() <= FEW {
        for (name, value) in members {
            add("variables", "variables", What::SetMember(name, value));
        }
    } else {
        let mut all = document.get("variables").and_then(Value::as_mapping).cloned().unwrap_or_default();
        all.extend(members.map(|(name, value)| (Value::from(name), value)));
        add("variables", "variables", What::Set(Value::Mapping(all)));
    }
    if let Some(node) = &asked.current_node_id {
        add("currentNodeId", "current_node_id", What::Set(Value::from(node.as_str())));
    }
    if let Some(time) = &asked.updated_at {
        add("updatedAt", "updated_at", What::Set(Value::from(time.as_str())));
    }
    changes
}

/// Returns the items that are not yet in the list, each once.
fn missing(items: &[String], list: &[Value]) -> Vec<Value> {
    let mut missing: Vec<Value> = Vec::new();
    for item in items {
        let item = Value::from(item.as_str());
        if !list.contains(&item) && !missing.contains(&item) {
            missing.push(item);
        }
    }
    missing
}

impl Change {
    /// Returns the values after the change.
    pub(super) fn apply(&self, document: &Value) -> Result<Value, Invalid> {
        let mut document = document.clone();
        let Value::Mapping(entries) = &mut document else { return Ok(document) };
        let entry = entries.entry(Value::from(self.key.as_str())).or_insert(Value::Null);
        match &self.what {
            What::Set(value) => *entry = value.clone(),
            What::Append(items) => match entry {
                Value::Null => *entry = Value::Sequence(items.clone()),
                Value::Sequence(list) => list.extend(items.iter().cloned()),
                _ => return Err(self.unfit("a list")),
            },
            What::SetMember(name, value) => {
                if entry.is_null() {
                    *entry = Value::Mapping(Mapping::new());
                }
                let Value::Mapping(members) = entry else { return Err(self.unfit("a mapping")) };
                members.insert(Value::from(name.as_str()), value.clone());
            }
        }
        Ok(document)
    }

    fn unfit(&self, wanted: &str) -> Invalid {
        Invalid::new(None, format!("`{}` is not {wanted}, so nothing can be added to it", self.key))
    }
}
