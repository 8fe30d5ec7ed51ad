//! Runs that begin on checkpoints.

use std::sync::Arc;

use identity::{CheckpointId, Principal};
use operations::Reason;
use refusal::Refusal;

use crate::checkpoints::{Checkpoints, Origin};
use crate::record::Spec;
use crate::registry::Runs;

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
