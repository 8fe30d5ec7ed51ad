//! Resources of a run, and their removal.

#![expect(clippy::disallowed_methods, reason = "mount points that the daemon made")]

use std::mem::take;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use containers::{ContainerId, Engine, MountSlot};
use executor::root_layer::RootLayer;
use futures_util::future::join_all;
use refusal::{Refusal, chain};
use tokio::task::block_in_place;

use crate::directories::remove_bundle;
use leftovers::remove_tree;

/// Time for which a caller waits for the removal of a container.
const REMOVAL: Duration = Duration::from_secs(10);
/// First and longest wait before a removal that failed is tried again.
const AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// Resources that have to be removed when a run ends.
#[derive(Default)]
pub struct RunResources {
    pub container: Option<ContainerId>,
    pub slots: Vec<MountSlot>,
    pub root: Option<RootLayer>,
    pub slot_directory: Option<PathBuf>,
    /// Directories that were made for this run. They are removed only if its launch fails, or when the run is deleted.
    pub made: Vec<PathBuf>,
    /// Resources of its companions.
    pub beside: Vec<RunResources>,
}

impl RunResources {
    /// Makes the directory of the container's mount points.
    pub fn make_slots(&mut self, slots: &Path) -> Result<(), Refusal> {
        std::fs::create_dir_all(slots)
            .map_err(|error| Refusal::internal("making the mount points", &error))?;
        self.slot_directory = Some(slots.to_owned());
        Ok(())
    }

    /// Returns the containers of the run and of its companions.
    pub fn containers(&self) -> Vec<ContainerId> {
        let beside = self.beside.iter().filter_map(|held| held.container.clone());
        self.container.iter().cloned().chain(beside).collect()
    }

    /// Removes that directory if it is empty but for a bundle of certificates.
    pub fn remove_slots(&mut self) {
        if let Some(directory) = self.slot_directory.take() {
            remove_bundle(&directory);
            let _ = std::fs::remove_dir(directory);
        }
    }

    /// Removes the container, the mounts and the layer of the run's root. Files that the run made elsewhere stay.
    pub async fn take_away(&mut self, engine: &Arc<Engine>) {
        join_all(self.beside.iter_mut().map(|held| held.take_own(engine))).await;
        self.take_own(engine).await;
    }

    /// Removes what [`Self::take_away`] removes, but for companions.
    async fn take_own(&mut self, engine: &Arc<Engine>) {
        if let Some(container) = self.container.take() {
            remove_container(engine, container).await;
        }
        if let Some(layer) = self.unmount() {
            remove_tree(layer).await;
        }
    }

    /// Removes the mounts of a container in which no process is left. Returns the layer of the run's root, for the caller to remove.
    pub fn unmount(&mut self) -> Option<PathBuf> {
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
    pub fn leave(mut self) {
        self.beside.drain(..).for_each(Self::leave);
        self.slots.drain(..).for_each(MountSlot::leave);
        if let Some(root) = self.root.take() {
            root.leave();
        }
    }

    /// Removes everything after a launch that failed.
    pub async fn made_too(mut self, engine: &Arc<Engine>) {
        self.take_away(engine).await;
        let beside = self.beside.iter_mut().flat_map(|held| held.made.drain(..));
        for path in beside.chain(self.made.drain(..)) {
            remove_tree(path).await;
        }
    }
}

/// Resources of a run that stay as they are when this value is dropped. The next daemon goes on with them, or removes them.
///
/// A start that fails, a look that is given up, and a runtime that ends drop all that they have. A mount point by itself is unmounted then,
/// and no daemon could go on with its run.
pub struct Held(RunResources);

impl Held {
    pub fn new(resources: RunResources) -> Self {
        Self(resources)
    }

    /// Returns the resources, for a caller that removes or leaves them.
    pub fn into_inner(mut self) -> RunResources {
        take(&mut self.0)
    }

    /// Leaves everything as it is, for the next daemon.
    pub fn leave(self) {
        drop(self);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        take(&mut self.0).leave();
    }
}

impl Deref for Held {
    type Target = RunResources;

    fn deref(&self) -> &RunResources {
        &self.0
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut RunResources {
        &mut self.0
    }
}

/// Removes a container, and waits a limited time for that.
///
/// If the engine does not remove it, this daemon tries again until it does. The next daemon does so when it starts.
pub async fn remove_container(engine: &Arc<Engine>, container: ContainerId) {
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
                Ok(()) => {
                    return tracing::info!(%container, "a container that could not be removed earlier is removed");
                }
                Err(error) => not_removed(&container, &chain(&error)),
            }
            wait = (wait * 2).min(AGAIN.1);
        }
    });
}

fn not_removed(container: &ContainerId, why: &str) {
    tracing::error!(%container, why, "a container was not removed; tried again later");
}
