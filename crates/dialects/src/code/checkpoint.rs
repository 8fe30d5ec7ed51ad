//! `checkpoint`: keeps the state of the workspace, and goes back to one that is kept.

use std::fmt::Write as _;

use operations::{AgentCheckpoint, CheckpointResult, Operation};
use schemars::JsonSchema;
use serde::Deserialize;
use text::one_line;
use wire::v1::checkpoint_request::Action as Wanted;
use wire::v1::{CheckpointCreate, CheckpointList, CheckpointRequest, CheckpointRestore};

use crate::failure::ParseFailure;
use crate::limits::Limits;
use crate::tool::{NoOperation, ToolArguments};

/// Undo your own work: create keeps the files of /workspace and /state as they are now, list names what is kept, restore
/// goes back to it. A restore first ends all programs that run here, and keeps the state before it, so that it can be
/// undone, too. Only some checkpoints are kept; the oldest goes first.
/// Example: {"action": "create", "label": "before the refactoring"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Checkpoint {
    /// What to do. restore needs checkpoint_id.
    action: Action,
    /// With create: one line to recognise it by, at most 200 bytes. Default: none.
    label: Option<String>,
    /// With restore: the whole id, as create and list name it.
    #[serde(rename = "checkpoint_id")]
    id: Option<String>,
}

#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Action {
    Create,
    List,
    Restore,
}

impl Action {
    const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::List => "list",
            Self::Restore => "restore",
        }
    }
}

impl ToolArguments for Checkpoint {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        let Self { action, label, id: checkpoint_id } = self;
        let foreign = |name: &str| {
            ParseFailure::argument(name, format!("does not go with the action {}", action.name()))
        };
        let wanted = match (action, label, checkpoint_id) {
            (Action::Create | Action::List, _, Some(_)) => return Err(foreign("checkpoint_id").into()),
            (Action::List | Action::Restore, Some(_), _) => return Err(foreign("label").into()),
            (Action::Restore, None, None) => {
                let message = "is missing: the action restore needs it";
                return Err(ParseFailure::argument("checkpoint_id", message).into());
            }
            (Action::Create, label, None) => {
                Wanted::Create(CheckpointCreate { label: label.unwrap_or_default() })
            }
            (Action::List, None, None) => Wanted::List(CheckpointList {}),
            (Action::Restore, None, Some(checkpoint_id)) => {
                Wanted::Restore(CheckpointRestore { checkpoint_id })
            }
        };
        Ok(Operation::try_from(CheckpointRequest { action: Some(wanted) })?)
    }
}

pub(super) fn render(result: &CheckpointResult) -> String {
    let CheckpointResult { made, checkpoints, truncated, restored_id, before, ended_processes } = result;
    if let Some(made) = made {
        return format!("Made checkpoint {}. {}", line(made), back(&made.checkpoint_id));
    }
    if !restored_id.is_empty() {
        let mut text = format!("Restored checkpoint {}.", one_line(restored_id));
        if *ended_processes > 0 {
            let _ = write!(text, " {ended_processes} processes were ended.");
        }
        if let Some(before) = before {
            let _ = write!(text, " The state before is kept. {}", back(&before.checkpoint_id));
        }
        return text;
    }
    if checkpoints.is_empty() {
        return "(no checkpoints)".to_owned();
    }
    let mut text: String = checkpoints.iter().map(|checkpoint| line(checkpoint) + "\n").collect();
    if *truncated {
        text.push_str("[there are older ones]\n");
    }
    text
}

/// Returns one line without a line feed: id, time, size and label.
fn line(checkpoint: &AgentCheckpoint) -> String {
    let AgentCheckpoint { checkpoint_id, label, created_at, size_bytes, files } = checkpoint;
    let label = if label.is_empty() { String::new() } else { format!(": {}", one_line(label)) };
    format!("{checkpoint_id} ({created_at}, {files} files, {size_bytes} bytes){label}")
}

fn back(checkpoint_id: &str) -> String {
    format!(r#"To go back to it: checkpoint {{"action": "restore", "checkpoint_id": "{checkpoint_id}"}}"#)
}
