//! The checkpoints on which runs begin. Another crate makes, keeps and deletes them.

use host_launch::TreeBounds;
use identity::{CheckpointId, Principal, RunId};
use refusal::Refusal;

use crate::record::{Beneath, ForkedFrom, Workspace};

/// The checkpoints that exist.
pub trait Checkpoints: Send + Sync {
    /// Returns a run whose checkpoint needs the tree.
    fn user_of(&self, tree: Beneath) -> Option<RunId>;

    /// Lets a run of `principal` begin on the checkpoint, and keeps it until the origin is dropped.
    fn begin(&self, id: CheckpointId, principal: &Principal) -> Result<Origin, Refusal>;
}

/// A checkpoint on which a run begins.
pub struct Origin {
    pub forked_from: ForkedFrom,
    /// Workspace of the run of which the checkpoint was made.
    pub workspace: Workspace,
    /// Size of the files that the checkpoint has of the workspace.
    pub saved: TreeBounds,
    /// Keeps the checkpoint.
    pub kept: Box<dyn Send + Sync>,
}
