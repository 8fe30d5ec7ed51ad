//! What a run leaves, and how it is taken away.

#![expect(clippy::disallowed_methods, reason = "mount points that the daemon made")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use containers::{ContainerId, Engine, MountSlot};
use refusal::{Refusal, chain};
use tokio::task::block_in_place;

use crate::remove::remove_tree;
use crate::root_layer::RootLayer;

/// For a container to be removed, before what waits for that goes on.
const REMOVAL: Duration = Duration::from_secs(10);
/// Before a removal that failed is tried again: the first time, and the longest.
const AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// What has to be taken away when a run ends.
#[derive(Default)]
pub(crate) struct RunResources {
    pub(crate) container: Option<ContainerId>,
    pub(crate) slots: Vec<MountSlot>,
    pub(crate) root: Option<RootLayer>,
    pub(crate) slot_directory: Option<PathBuf>,
    /// Made for this run; goes only when its launch fails, or when the run is deleted.
    pub(crate) made: Vec<PathBuf>,
}

impl RunResources {
    /// Makes the directory of the container's mount points.
    pub(crate) fn make_slots(&mut self, slots: &Path) -> Result<(), Refusal> {
        std::fs::create_dir_all(slots)
            .map_err(|error| Refusal::internal("making the mount points", &error))?;
        self.slot_directory = Some(slots.to_owned());
        Ok(())
    }

    /// Removes it, if nothing is in it.
    pub(crate) fn remove_slots(&mut self) {
        if let Some(directory) = self.slot_directory.take() {
            let _ = std::fs::remove_dir(directory);
        }
    }

    /// Removes the container, the mounts and what the run wrote to its root. What the run made elsewhere stays for its reader.
    pub(crate) async fn take_away(&mut self, engine: &Arc<Engine>) {
        if let Some(container) = self.container.take() {
            remove_container(engine, container).await;
        }
        if let Some(layer) = self.unmount() {
            remove_tree(layer).await;
        }
    }

    /// Removes the mounts of a container in which no process is left. What the run wrote to its root is left to be removed.
    pub(crate) fn unmount(&mut self) -> Option<PathBuf> {
        for slot in self.slots.drain(..) {
            if let Err(error) = block_in_place(|| slot.release()) {
                tracing::error!(error = %chain(&error), "a mount was not removed; the next start tries again");
            }
        }
        let (layer, released) = self.root.take().map(RootLayer::unmount).unzip();
        if let Some(Err(error)) = released {
            tracing::error!(error = %chain(&error), "a run's root was not removed; the next start tries again");
        }
        self.remove_slots();
        layer
    }

    /// Leaves everything as it is, for the next daemon.
    pub(crate) fn leave(mut self) {
        self.slots.drain(..).for_each(MountSlot::leave);
        if let Some(root) = self.root.take() {
            root.leave();
        }
    }

    /// After a launch that failed: everything goes.
    pub(crate) async fn made_too(mut self, engine: &Arc<Engine>) {
        self.take_away(engine).await;
        for path in self.made.drain(..) {
            remove_tree(path).await;
        }
    }
}

/// Removes a container, and waits for that for a while. One that the engine does not remove is tried again until it does: by this
/// daemon, or by the next one at its start.
pub(crate) async fn remove_container(engine: &Arc<Engine>, container: ContainerId) {
    match tokio::time::timeout(REMOVAL, engine.remove(&container)).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => not_removed(&container, &chain(&error)),
        Err(_) => not_removed(&container, "no answer from the engine"),
    }
    let engine = engine.clone();
    tokio::spawn(async move {
        let mut wait = AGAIN.0;
        loop {
            tokio::time::sleep(wait).await;
            match engine.remove(&container).await {
                Ok(()) => return tracing::info!(%container, "a container is removed at last"),
                Err(error) => not_removed(&container, &chain(&error)),
            }
            wait = (wait * 2).min(AGAIN.1);
        }
    });
}

fn not_removed(container: &ContainerId, why: &str) {
    tracing::error!(%container, why, "a container was not removed; tried again later");
}
