//! Runs that begin on checkpoints.

use std::io;
use std::sync::Arc;

use executor::{Directory, layer};
use host_launch::{Owner, TreeBounds};
use identity::{CheckpointId, Principal, RunId};
use operations::Reason;
use refusal::Refusal;
use tokio::task::block_in_place;
use wire::v1;

use crate::checkpoints::{Checkpoints, Origin};
use crate::launch::fill_part;
use crate::record::{Beneath, Spec, Workspace};
use crate::registry::Runs;
use run_directories::resources::RunResources;
use run_directories::workspace::{self, Purpose};

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
        let origin = self.origin(id, principal)?;
        spec.workspace = origin.workspace.forked(id, origin.forked_from.run);
        spec.forked_from = Some(origin.forked_from.clone());
        Ok(Some(origin))
    }

    fn origin(&self, id: CheckpointId, principal: &Principal) -> Result<Origin, Refusal> {
        let none = || Refusal::absent("checkpoint", id, "there is no such checkpoint");
        self.checkpoints.get().ok_or_else(none)?.begin(id, principal)
    }

    /// Copies the workspace of a checkpoint into the directory that `make` makes for its owner: the copy of a whole workspace, or the files
    /// beneath a layer with the layer's changes. Returns the digest and the size of the copy.
    pub async fn copy_checkpoint(
        &self,
        make: impl FnOnce(Owner) -> io::Result<Directory> + Send,
        id: CheckpointId,
        most: TreeBounds,
        principal: &Principal,
    ) -> Result<v1::Base, Refusal> {
        let origin = self.origin(id, principal)?;
        fits(origin.saved, most)?;
        let directories = &self.launcher.directories;
        let workspace = origin.workspace.forked(id, origin.forked_from.run);
        let from = block_in_place(|| match (&workspace, workspace.beneath()) {
            (Workspace::Overlay { path }, _) => {
                self.launcher.roots.open("source.checkpoint.checkpoint_id", path, Purpose::Own, principal)
            }
            (_, Some(tree)) => workspace::open_own(&directories.beneath(tree))
                .map_err(|error| Refusal::internal("opening a base or a checkpoint", &error)),
            (_, None) => Err(Refusal::new(Reason::PreconditionFailed, "its workspace is not copied by it")),
        })?;
        let into = block_in_place(|| make(from.owner))
            .map_err(|error| Refusal::internal("making a directory", &error))?;
        let copied = layer::copy(&from, &into, most).await?;
        if workspace.beneath() == Some(Beneath::Checkpoint(id)) {
            return Ok(copied);
        }
        // Mounts of runs that do not exist are removed at the start of the daemon.
        let slots = directories.slots(&RunId::new().to_string());
        let mut resources = RunResources::default();
        resources.make_slots(&slots)?;
        let filled = fill_part(&slots, &directories.checkpoint(id).join("workspace"), &into).await;
        resources.remove_slots();
        filled?;
        let found = layer::digest(&into, most).await?;
        Ok(v1::Base { left_out: copied.left_out, ..found })
    }
}

/// Refuses a copy of saved files that alone would exceed `most`: they are copied without a look at their size.
fn fits(saved: TreeBounds, most: TreeBounds) -> Result<(), Refusal> {
    let too_much = if saved.files > most.files {
        format!("there are more than {} files, directories and links", most.files)
    } else if saved.bytes > most.bytes {
        format!("the files are larger than {} MiB in all", most.bytes >> 20)
    } else {
        return Ok(());
    };
    Err(Refusal::new(Reason::PreconditionFailed, too_much))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_files_that_exceed_a_bound_are_not_copied() {
        let most = TreeBounds { bytes: 5 << 20, files: 10 };
        assert!(fits(most, most).is_ok());
        for (saved, words) in [
            (TreeBounds { bytes: (5 << 20) + 1, files: 1 }, "larger than 5 MiB"),
            (TreeBounds { bytes: 0, files: 11 }, "more than 10 files"),
        ] {
            let refused = fits(saved, most).unwrap_err();
            assert_eq!(refused.reason, Reason::PreconditionFailed);
            assert!(refused.message.contains(words), "{}", refused.message);
        }
    }
}
