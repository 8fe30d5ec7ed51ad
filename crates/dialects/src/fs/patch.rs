//! `fs.apply_patch`: changes to a Markdown file's front matter.

use operations::Operation;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use wire::v1::{self, patch_request::Change};

use super::{condition, given};
use crate::limits::Limits;
use crate::tool::{NoOperation, ToolArguments};

/// Change the YAML front matter of a Markdown file, atomically; its body stays as it is. `append` adds what is not in
/// the list yet, `set` overwrites. With patch.ifMatchSha256 (from fs.read) nothing is written when the file has changed
/// since.
/// Example: {"path": "@state/workflow.md", "patch": {"operation": "updateFrontmatter", "update": {"stepsCompleted": {"append": ["step-1"]}, "currentNodeId": {"set": "step-2"}}}}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ApplyPatch {
    /// Markdown file in @project or @state.
    path: String,
    /// What to change.
    patch: Patch,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Patch {
    /// What to do.
    #[serde(rename = "operation")]
    _operation: PatchOperation,
    /// At least one change.
    update: Update,
    /// Write only if the file's sha256 is this, 64 lower-case hex digits.
    if_match_sha256: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum PatchOperation {
    UpdateFrontmatter,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Update {
    /// Steps to add.
    steps_completed: Option<Append<String>>,
    /// Variables to set; others stay.
    variables: Option<SetMembers>,
    /// Decisions to add, an object each.
    decision_log: Option<Append<Map<String, Value>>>,
    /// Artifacts to add.
    artifacts: Option<Append<String>>,
    /// The new id.
    current_node_id: Option<SetText>,
    /// The new time.
    updated_at: Option<SetText>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Append<T> {
    /// To be added at the end.
    append: Vec<T>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SetMembers {
    /// Names and values.
    set: Map<String, Value>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SetText {
    /// The value.
    set: String,
}

impl ToolArguments for ApplyPatch {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        let Patch { update, if_match_sha256, .. } = self.patch;
        let texts = |list: Option<Append<String>>| list.map(|list| list.append).unwrap_or_default();
        let decisions = update.decision_log.map(|list| list.append).unwrap_or_default();
        let variables = update.variables.map(|variables| variables.set).filter(|set| !set.is_empty());
        let request = v1::UpdateFrontmatter {
            path: given(self.path)?,
            if_match_sha256: condition(if_match_sha256)?,
            steps_completed_append: texts(update.steps_completed),
            variables_set_json: variables.map(|set| Value::Object(set).to_string()).unwrap_or_default(),
            decision_log_append_json: decisions
                .into_iter()
                .map(|decision| Value::Object(decision).to_string())
                .collect(),
            artifacts_append: texts(update.artifacts),
            current_node_id: update.current_node_id.map(|id| id.set),
            updated_at: update.updated_at.map(|time| time.set),
        };
        let change = Some(Change::UpdateFrontmatter(request));
        Ok(Operation::try_from(v1::PatchRequest { change })?)
    }
}
