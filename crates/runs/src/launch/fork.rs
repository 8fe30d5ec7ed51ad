//! Fills the directories of a run that begins on a checkpoint. Nothing of the run executes yet.

use std::os::fd::AsFd as _;
use std::path::Path;

use crate::record::{Beneath, Record};
use containers::{HostUser, IdMap, MountSlot};
use executor::{Directory, layer};
use host_launch::Owner;
use jail::MountMode;
use operations::Reason;
use refusal::{Refusal, chain};
use rustix::fs::{Mode, OFlags};
use tokio::task::block_in_place;

use super::Launcher;
use crate::mounting::Opened;
use crate::resources::RunResources;
use crate::workspace;

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
async fn fill_part(slots: &Path, path: &Path, into: &Directory) -> Result<(), Refusal> {
    let part = block_in_place(|| workspace::open_own(path))
        .map_err(|error| Refusal::internal("opening a checkpoint", &error))?;
    let (disk, seen) = (part.owner, into.owner);
    if (disk.uid, disk.gid) == (seen.uid, seen.gid) {
        return layer::fill(&part, into).await;
    }
    let map = IdMap { disk_uid: disk.uid, disk_gid: disk.gid, seen_uid: seen.uid, seen_gid: seen.gid };
    let slot = block_in_place(|| {
        MountSlot::prepare(part.handle.as_fd(), &slots.join("checkpoint"), Some(map), MountMode::ReadOnly)
    });
    let slot = slot.map_err(|error| Refusal::internal("mounting a checkpoint", &chain(&error)))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let filled = match rustix::fs::open(slot.path(), flags, Mode::empty()) {
        Ok(handle) => {
            let mapped = Directory { handle, path: path.to_owned(), owner: seen, is_mapped: true };
            layer::fill(&mapped, into).await
        }
        Err(errno) => Err(Refusal::internal("opening a checkpoint", &errno)),
    };
    let released = block_in_place(|| slot.release());
    filled.and(released.map_err(|error| Refusal::internal("unmounting a checkpoint", &chain(&error))))
}
