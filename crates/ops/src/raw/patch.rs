//! Requests to patch files.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Malformed;
use super::check::{content, required_path, sha256, text};
use crate::{Operation, PatchChange};

/// Items that one request may add to a list, or put into a mapping.
const MAX_ITEMS: usize = 1_000;
/// Bytes of one of them.
const MAX_ITEM: usize = 64 * 1024;

/// Becomes [`crate::Patch`].
#[derive(Debug, Clone)]
pub enum Patch {
    /// A unified diff.
    Unified(String),
    /// The `*** Begin Patch` envelope.
    Envelope(String),
    /// Changes to front matter.
    FrontMatter(FrontMatter),
}

/// Becomes [`crate::FrontMatter`].
#[derive(Debug, Clone, Default)]
pub struct FrontMatter {
    /// Required.
    pub path: String,
    /// Empty is no condition.
    pub if_match_sha256: String,
    /// To be added.
    pub steps_completed_append: Vec<String>,
    /// A JSON object; empty is none.
    pub variables_set_json: String,
    /// A JSON object each.
    pub decision_log_append_json: Vec<String>,
    /// To be added.
    pub artifacts_append: Vec<String>,
    /// To be set.
    pub current_node_id: Option<String>,
    /// To be set.
    pub updated_at: Option<String>,
}

impl Patch {
    /// Validates.
    pub fn into_operation(self) -> Result<Operation, Malformed> {
        let change = match self {
            Self::Unified(diff) => PatchChange::Unified(whole("patch.unified_diff", diff)?),
            Self::Envelope(envelope) => PatchChange::Envelope(whole("patch.envelope", envelope)?),
            Self::FrontMatter(change) => PatchChange::FrontMatter(change.validate()?),
        };
        crate::Patch::new(change).map(Operation::Patch)
    }
}

fn whole(field: &str, patch: String) -> Result<String, Malformed> {
    content(field, patch.as_bytes())?;
    if patch.trim().is_empty() { Err(Malformed::new(field, "is empty")) } else { Ok(patch) }
}

impl FrontMatter {
    fn validate(self) -> Result<crate::FrontMatter, Malformed> {
        let of = |name: &str| format!("patch.update_frontmatter.{name}");
        let change = crate::FrontMatter {
            path: required_path(&of("path"), &self.path)?,
            if_match_sha256: sha256(&of("if_match_sha256"), self.if_match_sha256)?,
            steps_completed_append: items(&of("steps_completed_append"), self.steps_completed_append)?,
            variables_set: variables(&of("variables_set_json"), &self.variables_set_json)?,
            decision_log_append: decisions(&of("decision_log_append_json"), &self.decision_log_append_json)?,
            artifacts_append: items(&of("artifacts_append"), self.artifacts_append)?,
            current_node_id: self.current_node_id,
            updated_at: self.updated_at,
        };
        for (name, value) in
            [("current_node_id", &change.current_node_id), ("updated_at", &change.updated_at)]
        {
            value.as_deref().map_or(Ok(()), |value| text(&of(name), value, 1, MAX_ITEM))?;
        }
        if change.changes_nothing() {
            return Err(Malformed::new(
                "patch.update_frontmatter",
                "changes nothing: give something to append or to set",
            ));
        }
        Ok(change)
    }
}

impl crate::FrontMatter {
    fn changes_nothing(&self) -> bool {
        self.steps_completed_append.is_empty()
            && self.variables_set.is_empty()
            && self.decision_log_append.is_empty()
            && self.artifacts_append.is_empty()
            && self.current_node_id.is_none()
            && self.updated_at.is_none()
    }
}

fn few(field: &str, count: usize) -> Result<(), Malformed> {
    if count > MAX_ITEMS {
        return Err(Malformed::new(field, format!("has more than {MAX_ITEMS} items")));
    }
    Ok(())
}

fn items(field: &str, items: Vec<String>) -> Result<Vec<String>, Malformed> {
    few(field, items.len())?;
    items.iter().try_for_each(|item| text(field, item, 1, MAX_ITEM))?;
    Ok(items)
}

fn variables(field: &str, json: &str) -> Result<BTreeMap<String, Value>, Malformed> {
    if json.is_empty() {
        return Ok(BTreeMap::new());
    }
    let variables = object(field, json)?;
    few(field, variables.len())?;
    Ok(variables.into_iter().collect())
}

fn decisions(field: &str, decisions: &[String]) -> Result<Vec<Map<String, Value>>, Malformed> {
    few(field, decisions.len())?;
    decisions.iter().map(|json| object(field, json)).collect()
}

/// Nested no deeper than the parser goes, which stops at 128 levels.
fn object(field: &str, json: &str) -> Result<Map<String, Value>, Malformed> {
    if json.len() > MAX_ITEM {
        return Err(Malformed::new(field, format!("is longer than {MAX_ITEM} bytes")));
    }
    serde_json::from_str(json)
        .map_err(|error| Malformed::new(field, format!("is not one JSON object: {error}")))
}
