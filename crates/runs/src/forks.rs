//! Runs that begin on checkpoints. Another crate makes, keeps and deletes the checkpoints.

use std::sync::Arc;

use identity::{CheckpointId, Principal, RunId};
use operations::Reason;
use refusal::Refusal;

use crate::record::{Beneath, ForkedFrom, Spec, Workspace};
use crate::registry::Runs;

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
    /// Keeps the checkpoint.
    pub kept: Box<dyn Send + Sync>,
}

impl Runs {
    /// Sets the checkpoints, once.
    pub fn set_checkpoints(&self, checkpoints: Arc<dyn Checkpoints>) {
        let _ = self.checkpoints.set(checkpoints);
    }

    /// Makes `spec` begin on a checkpoint. The caller keeps the origin until the run is launched.
    pub(crate) fn begin_from(
        &self,
        checkpoint: Option<CheckpointId>,
        spec: &mut Spec,
        principal: &Principal,
    ) -> Result<Option<Origin>, Refusal> {
        let Some(id) = checkpoint else { return Ok(None) };
        let none =
            || Refusal::new(Reason::NotFound, "there is no such checkpoint").with("resource", "checkpoint");
        let origin = self.checkpoints.get().ok_or_else(none)?.begin(id, principal)?;
        spec.workspace = origin.workspace.forked(id, origin.forked_from.run);
        spec.forked_from = Some(origin.forked_from.clone());
        Ok(Some(origin))
    }
}
