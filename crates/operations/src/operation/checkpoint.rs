//! `checkpoint`: keeps the state of the run, and goes back to one that is kept.

use jail::SandboxPath;
use serde_json::{Value, json};
use wire::v1::checkpoint_request::Action;
use wire::v1::{CheckpointCreate, CheckpointList, CheckpointRequest, CheckpointRestore, CheckpointResult};

use super::{Answer, Class, Delivery, Describe, Effect, Lane, Part, Request, Sketch};
use crate::{CommandLimits, Malformed};

pub(super) const CREATE: Class =
    Class { name: "checkpoint.create", lane: Lane::Daemon, effect: Effect::Keeps };
pub(super) const LIST: Class = Class { name: "checkpoint.list", lane: Lane::Daemon, effect: Effect::Looks };
pub(super) const RESTORE: Class =
    Class { name: "checkpoint.restore", lane: Lane::Daemon, effect: Effect::Writes };

/// Most bytes of a label.
const LONGEST_LABEL: usize = 200;
/// Length of an id: a UUID with hyphens.
const ID_LENGTH: usize = 36;

/// Keep the state of the run, or go back to one that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checkpoint {
    /// Make a checkpoint.
    Create {
        /// One line of at most 200 bytes, or empty.
        label: String,
    },
    /// List the checkpoints of the run.
    List,
    /// Give the run the files of a checkpoint.
    Restore {
        /// Text in the form of a UUID.
        checkpoint_id: String,
    },
}

impl Request for Checkpoint {
    type Message = CheckpointRequest;

    fn parse(message: CheckpointRequest, _: CommandLimits) -> Result<Self, Malformed> {
        let action = message
            .action
            .ok_or_else(|| Malformed::new("checkpoint", "needs one of create, list, restore"))?;
        match action {
            Action::Create(CheckpointCreate { label }) => {
                const FIELD: &str = "checkpoint.create.label";
                if label.len() > LONGEST_LABEL {
                    return Err(Malformed::new(FIELD, format!("is longer than {LONGEST_LABEL} bytes")));
                }
                if label.chars().any(char::is_control) {
                    return Err(Malformed::new(FIELD, "has a line break or another control character"));
                }
                Ok(Self::Create { label })
            }
            Action::List(CheckpointList {}) => Ok(Self::List),
            Action::Restore(CheckpointRestore { checkpoint_id }) => {
                let plain = |byte: u8| byte == b'-' || byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
                if checkpoint_id.len() != ID_LENGTH || !checkpoint_id.bytes().all(plain) {
                    return Err(Malformed::new(
                        "checkpoint.restore.checkpoint_id",
                        "is not the id of a checkpoint: list the checkpoints, and give the whole id",
                    ));
                }
                Ok(Self::Restore { checkpoint_id })
            }
        }
    }

    fn message(&self) -> CheckpointRequest {
        let action = match self {
            Self::Create { label } => Action::Create(CheckpointCreate { label: label.clone() }),
            Self::List => Action::List(CheckpointList {}),
            Self::Restore { checkpoint_id } => {
                Action::Restore(CheckpointRestore { checkpoint_id: checkpoint_id.clone() })
            }
        };
        CheckpointRequest { action: Some(action) }
    }

    fn sketch(message: &CheckpointRequest) -> Sketch {
        match &message.action {
            Some(Action::Create(create)) => (CREATE.name, json!({ "label": create.label })),
            Some(Action::List(_)) => (LIST.name, json!({})),
            Some(Action::Restore(restore)) => {
                (RESTORE.name, json!({ "checkpoint_id": restore.checkpoint_id }))
            }
            None => ("", json!({})),
        }
    }
}

impl Describe for Checkpoint {
    fn class(&self) -> Class {
        match self {
            Self::Create { .. } => CREATE,
            Self::List => LIST,
            Self::Restore { .. } => RESTORE,
        }
    }

    fn delivery(&self) -> Delivery {
        Delivery::Checkpoint
    }

    fn paths(&self) -> Vec<&SandboxPath> {
        Vec::new()
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let lines = match self {
            Self::Create { label } if label.is_empty() => vec!["make a checkpoint".to_owned()],
            Self::Create { label } => vec![format!("make a checkpoint: {label}")],
            Self::List => vec!["list the checkpoints of the run".to_owned()],
            Self::Restore { checkpoint_id } => vec![
                format!("give the run the files of its checkpoint {checkpoint_id}"),
                "its processes and sessions end; a checkpoint of the present state is made before".to_owned(),
            ],
        };
        lines.into_iter().map(Part::Line).collect()
    }
}

impl Answer for CheckpointResult {
    fn check(&mut self) -> Result<(), Malformed> {
        Err(Malformed::new("checkpoint", "cannot be the result of a worker"))
    }

    fn facts(&self) -> Value {
        let id = |checkpoint: &Option<wire::v1::AgentCheckpoint>| {
            checkpoint.as_ref().map(|checkpoint| checkpoint.checkpoint_id.clone())
        };
        let Self { made, checkpoints, restored_id, before, ended_processes, .. } = self;
        if let Some(made) = id(made) {
            return json!({ "checkpoint_id": made });
        }
        if restored_id.is_empty() {
            return json!({ "checkpoints": checkpoints.len() });
        }
        json!({ "checkpoint_id": restored_id, "before": id(before), "ended_processes": ended_processes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Operation;

    const ID: &str = "0190b0c0-0000-7000-8000-000000000001";

    fn parse(action: Action) -> Result<Operation, Malformed> {
        CheckpointRequest { action: Some(action) }.try_into()
    }

    fn create(label: &str) -> Result<Operation, Malformed> {
        parse(Action::Create(CheckpointCreate { label: label.to_owned() }))
    }

    fn restore(id: &str) -> Result<Operation, Malformed> {
        parse(Action::Restore(CheckpointRestore { checkpoint_id: id.to_owned() }))
    }

    #[test]
    fn a_restore_counts_as_a_write_and_a_list_has_no_effect() {
        let list = parse(Action::List(CheckpointList {})).unwrap();
        let all = [
            (create("").unwrap(), Effect::Keeps),
            (list, Effect::Looks),
            (restore(ID).unwrap(), Effect::Writes),
        ];
        for (operation, effect) in all {
            assert_eq!((operation.effect(), operation.lane()), (effect, Lane::Daemon), "{operation:?}");
            assert_eq!(operation.has_effect(), effect != Effect::Looks, "{operation:?}");
            assert_eq!(operation.delivery(), Delivery::Checkpoint);
            assert!(
                !operation.adds_to(|_| true),
                "a full quota is no reason to keep an agent from going back"
            );
            assert_eq!(Operation::parse(operation.message()).unwrap(), operation);
        }
    }

    #[test]
    fn labels_are_short_lines_and_ids_are_whole() {
        assert!(create(&"x".repeat(LONGEST_LABEL)).is_ok() && create("before the é refactoring").is_ok());
        for label in [&*"x".repeat(LONGEST_LABEL + 1), "a\nb", "\u{1b}[0m"] {
            assert_eq!(create(label).unwrap_err().field, "checkpoint.create.label");
        }
        for id in ["", "0190b0c0", "../../etc/passwd", &ID.replace('0', "G"), &format!("{ID}0")] {
            assert_eq!(restore(id).unwrap_err().field, "checkpoint.restore.checkpoint_id", "{id}");
        }
        let nothing: Result<Operation, _> = CheckpointRequest { action: None }.try_into();
        assert_eq!(nothing.unwrap_err().field, "checkpoint");
    }
}
