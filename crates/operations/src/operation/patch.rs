//! `patch`: several files, all or none of them.

use std::collections::BTreeMap;

use jail::SandboxPath;
use serde_json::{Map, Value, json};
use wire::v1::patch_request::Change;
use wire::v1::{PatchRequest, PatchResult, UpdateFrontmatter, patched_file};

use super::check::{content, known, required_path, sha256, text};
use super::{Answer, Class, Describe, Effect, Lane, Request, Sketch, stands_for};
use crate::{CommandLimits, FrontMatter, Malformed, Patch, PatchChange};

pub(super) const CLASS: Class = Class { name: "patch", lane: Lane::Host, effect: Effect::Writes };

/// Most items that one request may add to a list or put into a mapping.
const MAX_ITEMS: usize = 1_000;
/// Most bytes of one item.
const MAX_ITEM: usize = 64 * 1024;

impl Request for Patch {
    type Message = PatchRequest;

    fn parse(message: PatchRequest, _: CommandLimits) -> Result<Self, Malformed> {
        let change = message.change.ok_or_else(|| {
            Malformed::new("patch", "needs one of unifiedDiff, envelope, updateFrontmatter")
        })?;
        Self::new(match change {
            Change::UnifiedDiff(diff) => PatchChange::Unified(whole("patch.unified_diff", diff)?),
            Change::Envelope(envelope) => PatchChange::Envelope(whole("patch.envelope", envelope)?),
            Change::UpdateFrontmatter(update) => PatchChange::FrontMatter(front_matter(update)?),
        })
    }

    fn message(&self) -> PatchRequest {
        let change = match self.change() {
            PatchChange::Unified(diff) => Change::UnifiedDiff(diff.clone()),
            PatchChange::Envelope(envelope) => Change::Envelope(envelope.clone()),
            PatchChange::FrontMatter(update) => Change::UpdateFrontmatter(UpdateFrontmatter {
                path: update.path.to_string(),
                if_match_sha256: update.if_match_sha256.clone().unwrap_or_default(),
                steps_completed_append: update.steps_completed_append.clone(),
                variables_set_json: update.variables_json(),
                decision_log_append_json: update.decisions_json(),
                artifacts_append: update.artifacts_append.clone(),
                current_node_id: update.current_node_id.clone(),
                updated_at: update.updated_at.clone(),
            }),
        };
        PatchRequest { change: Some(change) }
    }

    fn sketch(_: &PatchRequest) -> Sketch {
        (CLASS.name, json!({}))
    }
}

fn whole(field: &str, patch: String) -> Result<String, Malformed> {
    content(field, patch.as_bytes())?;
    if patch.trim().is_empty() { Err(Malformed::new(field, "is empty")) } else { Ok(patch) }
}

fn front_matter(update: UpdateFrontmatter) -> Result<FrontMatter, Malformed> {
    let of = |name: &str| format!("patch.update_frontmatter.{name}");
    let change = FrontMatter {
        path: required_path(&of("path"), &update.path)?,
        if_match_sha256: sha256(&of("if_match_sha256"), update.if_match_sha256)?,
        steps_completed_append: items(&of("steps_completed_append"), update.steps_completed_append)?,
        variables_set: variables(&of("variables_set_json"), &update.variables_set_json)?,
        decision_log_append: decisions(&of("decision_log_append_json"), &update.decision_log_append_json)?,
        artifacts_append: items(&of("artifacts_append"), update.artifacts_append)?,
        current_node_id: update.current_node_id,
        updated_at: update.updated_at,
    };
    for (name, value) in [("current_node_id", &change.current_node_id), ("updated_at", &change.updated_at)] {
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

impl FrontMatter {
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

/// Parses an object whose nesting the parser accepts. The parser stops at 128 levels.
fn object(field: &str, json: &str) -> Result<Map<String, Value>, Malformed> {
    if json.len() > MAX_ITEM {
        return Err(Malformed::new(field, format!("is longer than {MAX_ITEM} bytes")));
    }
    serde_json::from_str(json)
        .map_err(|error| Malformed::new(field, format!("is not one JSON object: {error}")))
}

impl Describe for Patch {
    fn class(&self) -> Class {
        CLASS
    }

    fn paths(&self) -> Vec<&SandboxPath> {
        Patch::paths(self).iter().collect()
    }

    fn shows_changed(&self) -> bool {
        true
    }

    fn hide_contents(&self, message: &mut Value) {
        // The text names the paths, and the record does not contain the text.
        message["paths"] = Patch::paths(self).iter().map(ToString::to_string).collect();
        match self.change() {
            PatchChange::Unified(diff) => message["unifiedDiff"] = stands_for(diff.as_bytes()),
            PatchChange::Envelope(envelope) => message["envelope"] = stands_for(envelope.as_bytes()),
            PatchChange::FrontMatter(_) => {
                for (name, field) in message["updateFrontmatter"].as_object_mut().into_iter().flatten() {
                    if name != "path" && name != "ifMatchSha256" {
                        *field = stands_for(field.to_string().as_bytes());
                    }
                }
            }
        }
    }
}

impl Answer for PatchResult {
    fn check(&mut self) -> Result<(), Malformed> {
        let unknown = patched_file::Change::Unspecified;
        known(self.files.iter().all(|file| file.change() != unknown), "patch.files.change")
    }

    fn facts(&self) -> Value {
        json!({ "files": self.files, "notes": self.notes })
    }
}
