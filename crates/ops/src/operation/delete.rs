//! `delete`: one file or an empty directory, to the run's trash.

use jail::SandboxPath;
use wire::v1::DeleteRequest;

use super::check::{required_path, sha256};
use super::{Describe, Lane, Request, Sketch, Texts};
use crate::Malformed;

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

    fn parse(message: DeleteRequest) -> Result<Self, Malformed> {
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

    fn sketch(message: &DeleteRequest) -> Sketch<'_> {
        Sketch("delete", vec![("path", Texts::One(&message.path))])
    }
}

impl Describe for Delete {
    fn kind(&self) -> &'static str {
        "delete"
    }

    fn lane(&self) -> Lane {
        Lane::Host
    }

    fn has_effect(&self) -> bool {
        true
    }

    fn paths(&self) -> Vec<&SandboxPath> {
        vec![&self.path]
    }
}
