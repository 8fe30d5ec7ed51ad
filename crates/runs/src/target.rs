//! The directory that takes the changes of a run when they are accepted.
//!
//! An overlay's changes go into the directory beneath. Those of a run on a checkpoint go into the workspace of which the checkpoint has a
//! copy: it may have changed since then, and another run may use it.

use host_launch::LayerSpec;
use identity::{Principal, RunId};
use operations::Reason;
use refusal::Refusal;
use serde_json::{Value, json};

use crate::record::{Layer, Record, Workspace};
use crate::registry::Runs;
use crate::settling::Settling;
use run_directories::workspace;

pub(crate) enum Target<'a> {
    Beneath,
    /// A managed or cloned workspace, with the turn that keeps new runs from it.
    Kept {
        workspace: RunId,
        _settling: Settling<'a>,
    },
}

impl Target<'_> {
    /// Adds the lineage of a fork, and the workspace that takes its changes.
    pub(crate) fn tell(&self, record: &Record, details: &mut Value) {
        if let Some(from) = &record.spec.forked_from {
            details["forked_from"] = json!({ "checkpoint": from.checkpoint, "run": from.run });
        }
        if let Self::Kept { workspace, .. } = self {
            details["into"] = json!(workspace);
        }
    }
}

impl Runs {
    /// Returns what takes the changes of a run. A workspace is kept from other runs until the target is dropped.
    pub(crate) async fn target(&self, record: &Record, principal: &Principal) -> Result<Target<'_>, Refusal> {
        let refused = |message: String| Err(Refusal::new(Reason::PreconditionFailed, message));
        let of = match record.spec.workspace {
            Workspace::Base { .. } => {
                return refused(
                    "the run is on a base, which never changes, so its changes cannot be accepted: take them as a diff, or discard them"
                        .to_owned(),
                );
            }
            Workspace::Checkpoint { of, .. } => of,
            _ => return Ok(Target::Beneath),
        };
        let settling = self.settle(of).await;
        if self.check_kept(of, principal).is_err() {
            return refused(format!(
                "workspace {of}, of which the run's checkpoint has a copy, no longer exists: take the changes as a diff, or discard them"
            ));
        }
        // A run that has stopped uses it until its task is over.
        if let Some(user) = self.user_of(of).filter(|user| *user != of) {
            drop(self.settle(user).await);
        }
        if let Some(user) = self.user_of(of) {
            let message = format!("run {user} uses workspace {of}, which takes the changes: stop it first");
            return Err(Refusal::new(Reason::PreconditionFailed, message).with("run_id", user.to_string()));
        }
        Ok(Target::Kept { workspace: of, _settling: settling })
    }

    /// Opens the layer of the run and the directory that takes its changes.
    pub(crate) fn spec_of(
        &self,
        record: &Record,
        layer: Layer,
        target: &Target<'_>,
    ) -> Result<LayerSpec, Refusal> {
        let Target::Kept { workspace: of, .. } = target else {
            return self.layer_spec(record, layer, self.beneath(record, layer)?);
        };
        let kept = workspace::open_own(&self.launcher.directories.workspace(&of.to_string()))
            .map_err(|error| Refusal::internal("opening the workspace of a checkpoint", &error))?;
        if kept.owner.uid != layer.owner.uid {
            let message = format!("workspace {of}, which takes the changes, now belongs to another user");
            return Err(Refusal::new(Reason::PreconditionFailed, message));
        }
        let since = record.changes_since().unwrap_or(layer.since);
        self.layer_spec(record, Layer { since, ..layer }, kept.handle)
    }
}
