//! Fills the directories of a run that begins on a checkpoint. Nothing of the run executes yet.

use std::path::Path;

use crate::record::{Beneath, Record};
use containers::HostUser;
use executor::{Directory, layer};
use host_launch::Owner;
use operations::Reason;
use refusal::Refusal;
use tokio::task::block_in_place;

use super::Launcher;
use crate::seen::Seen;
use run_directories::mounting::Opened;
use run_directories::resources::RunResources;
use run_directories::workspace;

impl Launcher {
    /// Puts the workspace and the state of the checkpoint into the run's directories.
    pub(super) async fn fill_directories(
        &self,
        record: &Record,
        opened: &Opened,
        resources: &mut RunResources,
    ) -> Result<(), Refusal> {
        let Some(from) = &record.spec.forked_from else { return Ok(()) };
        let slots = self.directories.slots(&record.id.to_string());
        resources.make_slots(&slots)?;
        let parts = self.directories.checkpoint(from.checkpoint);
        // A copy of a whole workspace is beneath the layer already.
        if record.spec.workspace.beneath() != Some(Beneath::Checkpoint(from.checkpoint)) {
            fill_part(&slots, &parts.join("workspace"), &opened.workspace).await?;
        }
        fill_part(&slots, &parts.join("state"), &opened.state).await
    }

    /// Puts the changes of the checkpoint's root into the run's root, whose files appear as those of `user`.
    pub(super) async fn fill_root(
        &self,
        record: &Record,
        image: &str,
        user: HostUser,
        resources: &RunResources,
    ) -> Result<(), Refusal> {
        let Some(from) = &record.spec.forked_from else { return Ok(()) };
        let part = self.directories.checkpoint(from.checkpoint).join("root");
        if block_in_place(|| workspace::open_own(&part)).is_err() {
            return Ok(());
        }
        let Some(root) = &resources.root else {
            return Err(refused("it has changes of a writable root, and the profile has none"));
        };
        if image != from.image_id {
            return Err(refused("it has changes of a writable root, and the image is another one"));
        }
        let owner = Owner { uid: user.uid, gid: user.gid };
        let slots = self.directories.slots(&record.id.to_string());
        fill_part(&slots, &part, &root.directory(owner)?).await
    }
}

fn refused(why: &str) -> Refusal {
    let message = format!("workspace.checkpoint: {why}: begin with the image and the profile of its run");
    Refusal::new(Reason::PreconditionFailed, message)
}

/// Puts one part into a directory. The part appears as files of the directory's owner meanwhile.
pub(crate) async fn fill_part(slots: &Path, path: &Path, into: &Directory) -> Result<(), Refusal> {
    let part = block_in_place(|| workspace::open_own(path))
        .map_err(|error| Refusal::internal("opening a checkpoint", &error))?;
    if block_in_place(|| layer::adds_nothing(&part, into)) {
        return Ok(());
    }
    let seen = block_in_place(|| Seen::of(part, &slots.join("checkpoint"), into.owner))?;
    let filled = layer::fill(seen.directory(), into).await;
    filled.and(block_in_place(|| seen.release()))
}
