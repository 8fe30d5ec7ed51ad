//! Removes containers, mounts and layers of roots that a previous daemon left and that belong to no run.

#![expect(clippy::disallowed_methods, reason = "mount points that the daemon made")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::sync::Arc;

use containers::{ContainerId, ContainerListing, LABEL_INSTANCE};
use identity::RunId;
use refusal::chain;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::freeze::end_leftover;
use crate::reattach::{AT_ONCE, PROGRESS};
use crate::registry::Runs;
use ::leftovers::remove_others;
use run_directories::directories::remove_bundle;
use run_directories::resources::remove_container;

impl Runs {
    /// Removes this instance's containers, except `kept`. Does not wait for those about which the engine did not answer.
    pub(crate) async fn remove_others(
        &self,
        kept: &BTreeSet<ContainerId>,
        unanswered: &BTreeSet<RunId>,
    ) -> anyhow::Result<()> {
        let engine = &self.launcher.engine;
        let left = engine.list(LABEL_INSTANCE, &self.launcher.instance).await;
        let left = left.map_err(|error| anyhow::anyhow!(chain(&error)))?;
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        let mut removals = JoinSet::new();
        for container in left.into_iter().filter(|container| !kept.contains(&container.id)) {
            let Some(run) = made_as(&container) else {
                tracing::warn!(
                    container = container.name,
                    "a container has this daemon's label but a foreign name, and is not removed"
                );
                continue;
            };
            tracing::warn!(container = container.name, "removing a container from before the restart");
            let (engine, slots) = (engine.clone(), slots.clone());
            let removal = async move {
                let slot = slots.acquire().await;
                end_leftover(engine.as_ref(), &container.id).await;
                remove_container(&engine, container.id).await;
                drop(slot);
            };
            if unanswered.contains(&run) {
                tokio::spawn(removal);
            } else {
                removals.spawn(removal);
            }
        }
        while let Ok(Some(removed)) = tokio::time::timeout(PROGRESS, removals.join_next()).await {
            removed?;
        }
        if !removals.is_empty() {
            tracing::error!(
                containers = removals.len(),
                "the engine has not removed the containers from before the restart; the daemon keeps trying \
                 while it works"
            );
            tokio::spawn(removals.join_all());
        }
        Ok(())
    }

    /// Removes the mounts of all containers except those that were made as `kept`.
    ///
    /// The slots are two levels down: `mounts/RUN/workspace`.
    pub(crate) async fn clean_others(&self, kept: BTreeSet<RunId>) -> anyhow::Result<()> {
        let mounts = self.launcher.directories.mounts();
        let cleaned = tokio::task::spawn_blocking(move || {
            let mut cleaned = 0;
            for run in std::fs::read_dir(&mounts).into_iter().flatten().flatten() {
                let id = run.file_name().to_str().and_then(|name| RunId::parse(name).ok());
                if !id.is_some_and(|id| kept.contains(&id)) {
                    match containers::clean_slots(&run.path()) {
                        Ok(count) => cleaned += count,
                        Err(error) => {
                            tracing::error!(error = %chain(&error), "mounts from before the restart could not be removed; the next start tries again");
                        }
                    }
                    remove_bundle(&run.path());
                    // This removes only an empty directory.
                    let _ = std::fs::remove_dir(run.path());
                }
            }
            cleaned
        });
        let cleaned = cleaned.await?;
        if cleaned > 0 {
            tracing::warn!(mounts = cleaned, "removed mounts from before the restart");
        }
        Ok(())
    }

    /// Removes the layers of the writable roots of all runs and companions except `kept`. A layer ends with its run.
    pub(crate) async fn remove_roots(&self, kept: &BTreeSet<RunId>) {
        let layers = self.launcher.directories.root_layers();
        let run = |name: &OsStr| name.to_str().and_then(|name| RunId::parse(name).ok());
        remove_others(&layers, |name| run(name).is_some_and(|run| kept.contains(&run))).await;
    }
}

/// Returns the id of the run or warm container for which the daemon made a container, from the container's name.
///
/// A label alone proves nothing: any container can have it.
fn made_as(container: &ContainerListing) -> Option<RunId> {
    let run = container.name.strip_prefix("cofferdam-")?;
    RunId::parse(run.strip_suffix("-image").unwrap_or(run)).ok()
}
