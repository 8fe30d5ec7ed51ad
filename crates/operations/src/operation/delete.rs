//! `delete`: one file or an empty directory, to the run's trash.

use jail::SandboxPath;
use serde_json::{Value, json};
use wire::v1::{DeleteRequest, DeleteResult};

use super::check::{known, required_path, sha256};
use super::{Answer, Class, Describe, Effect, Lane, Request, Sketch};
use crate::{CommandLimits, EntryType, Malformed};

pub(super) const CLASS: Class = Class { name: "delete", lane: Lane::Host, effect: Effect::Deletes };

/// Remove one file or an empty directory. It goes to the run's trash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delete {
    /// The file or directory; not a mount itself.
    pub path: SandboxPath,
    /// SHA-256 that the present content must have, lower-case hex, 64 digits. With it only a file is removed.
    pub if_match_sha256: Option<String>,
}

impl Request for Delete {
    type Message = DeleteRequest;

    fn parse(message: DeleteRequest, _: CommandLimits) -> Result<Self, Malformed> {
        let path = required_path("delete.path", &message.path)?;
        if path.rel().is_root() {
            return Err(Malformed::new("delete.path", "is a mount itself, which cannot be removed"));
        }
        Ok(Self { path, if_match_sha256: sha256("delete.if_match_sha256", message.if_match_sha256)? })
    }

    fn message(&self) -> DeleteRequest {
        DeleteRequest {
            path: self.path.to_string(),
            if_match_sha256: self.if_match_sha256.clone().unwrap_or_default(),
        }
    }

    fn sketch(message: &DeleteRequest) -> Sketch {
        (CLASS.name, json!({ "path": message.path }))
    }
}

impl Describe for Delete {
    fn class(&self) -> Class {
        CLASS
    }

    fn paths(&self) -> Vec<&SandboxPath> {
        vec![&self.path]
    }
}

impl Answer for DeleteResult {
    fn check(&mut self) -> Result<(), Malformed> {
        known(self.r#type() != EntryType::Unspecified, "delete.type")
    }

    fn facts(&self) -> Value {
        json!({
            "path": self.path, "type": self.r#type(), "size_bytes": self.size_bytes,
            "sha256_before": self.sha256, "trash_entry": self.trash_entry,
            "gone_for_good": self.gone_for_good,
        })
    }
}
