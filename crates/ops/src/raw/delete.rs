//! Requests to remove a file.

use super::Malformed;
use super::check::{required_path, sha256};
use crate::Operation;

/// Becomes [`crate::Delete`].
#[derive(Debug, Clone, Default)]
pub struct Delete {
    /// Required.
    pub path: String,
    /// Empty is no condition.
    pub if_match_sha256: String,
}

impl Delete {
    /// Validates.
    pub fn into_operation(self) -> Result<Operation, Malformed> {
        let path = required_path("delete.path", &self.path)?;
        if path.rel().is_root() {
            return Err(Malformed::new("delete.path", "is a mount itself, which cannot be removed"));
        }
        Ok(Operation::Delete(crate::Delete {
            path,
            if_match_sha256: sha256("delete.if_match_sha256", self.if_match_sha256)?,
        }))
    }
}
