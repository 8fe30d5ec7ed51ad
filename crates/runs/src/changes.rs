//! The changes of an overlay. They can be shown at any time, and accepted or discarded once the run has ended.
//!
//! ```text
//!            ┌─ accept: recorded ─► applied in the host worker's jail ─► ACCEPTED ─► layer removed
//!  PENDING ──┤
//!            └─ discard: recorded ─► DISCARDED ─► layer removed
//! ```
//!
//! The layer outlives its run and the daemon. It is a directory beneath `state_dir`, and the run's record names the directory below it. The
//! layer is removed only after the record says that it is no longer needed. If a crash interrupts the removal, the next start finishes it.
//! An accept can be repeated: a change that was applied before a crash no longer counts as a change.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::record::{Changes, Layer, Record, Workspace};
use audit::{Event, Kind};
use executor::layer;
use host_launch::LayerSpec;
use identity::{Principal, RunId};
use operations::Reason;
use refusal::{Refusal, chain};
use serde_json::json;
use tokio::task::block_in_place;
use wire::v1::{AcceptRunResponse, DiffRunResponse};

use crate::registry::Runs;
use crate::stored;
use crate::target::Target;
use ::leftovers::remove_tree;
use run_directories::workspace;

impl Runs {
    /// Returns the changes of the run.
    pub async fn diff(&self, id: RunId, most: u32) -> Result<DiffRunResponse, Refusal> {
        let record = self.get(id)?;
        let layer = pending(&record)?;
        let turn = self.looks.wait(&self.launcher.tenant_of(&record)).await;
        let _turn = turn.ok_or_else(|| {
            Refusal::new(Reason::Overloaded, "too many changes are being looked at; try again later")
        })?;
        let spec = block_in_place(|| self.layer_spec(&record, layer, self.beneath(&record, layer)?))?;
        layer::diff(spec, most).await
    }

    /// Applies the changes of a run that has ended.
    pub async fn accept(
        self: &Arc<Self>,
        id: RunId,
        force: bool,
        principal: &Principal,
    ) -> Result<AcceptRunResponse, Refusal> {
        let _settling = self.settle(id).await;
        let mut record = self.ended_run(id)?;
        if record.layer().is_some_and(|layer| layer.changes == Changes::Accepted) {
            return Ok(AcceptRunResponse { run: Some(record.to_wire()), applied: 0, left_out: Vec::new() });
        }
        let mut layer = pending(&record)?;
        let target = self.target(&record, principal).await?;
        let spec = block_in_place(|| self.spec_of(&record, layer, &target))?;
        let mut details = json!({ "action": "accept", "phase": "begun", "force": force });
        target.tell(&record, &mut details);
        self.tell(id, principal, details).await?;
        if !layer.begun {
            layer.begun = true;
            self.set_layer(&mut record, layer).await?;
        }
        let applied = layer::accept(spec, force).await;
        let mut done = match applied {
            Ok(done) => done,
            Err(refusal) => {
                let details = json!({ "action": "accept", "phase": "failed", "failure": refusal.message });
                self.tell(id, principal, details).await?;
                return Err(refusal);
            }
        };
        layer.changes = Changes::Accepted;
        self.set_layer(&mut record, layer).await?;
        let mut details = json!({
            "action": "accept", "phase": "done", "applied": done.applied, "left_out": done.left_out.len(),
        });
        target.tell(&record, &mut details);
        self.tell(id, principal, details).await?;
        remove_tree(self.launcher.directories.layer(&id.to_string())).await;
        self.launcher.projects.settle(id);
        if let Target::Kept { workspace, .. } = &target {
            // It has grown by the changes, which the quota bounds.
            self.launcher.projects.left.expect(*workspace, record.spec.limits.disk().bytes);
        }
        done.run = Some(record.to_wire());
        Ok(done)
    }

    /// Deletes the changes of a run that has ended.
    pub async fn discard(&self, id: RunId, principal: &Principal) -> Result<Record, Refusal> {
        let _settling = self.settle(id).await;
        let mut record = self.ended_run(id)?;
        self.discard_settled(&mut record, principal).await?;
        Ok(record)
    }

    pub(crate) async fn discard_settled(
        &self,
        record: &mut Record,
        principal: &Principal,
    ) -> Result<(), Refusal> {
        if record.layer().is_some_and(|layer| layer.changes == Changes::Discarded) {
            return Ok(());
        }
        let mut layer = pending(record)?;
        self.tell_of_removal(record.id, principal, json!({ "action": "discard", "phase": "begun" })).await?;
        layer.changes = Changes::Discarded;
        self.set_layer(record, layer).await?;
        remove_tree(self.launcher.directories.layer(&record.id.to_string())).await;
        self.launcher.projects.settle(record.id);
        self.tell_of_removal(record.id, principal, json!({ "action": "discard", "phase": "done" })).await
    }

    fn ended_run(&self, id: RunId) -> Result<Record, Refusal> {
        let record = self.get(id)?;
        if record.state.has_ended() {
            Ok(record)
        } else {
            Err(Refusal::new(Reason::PreconditionFailed, "the run has not ended: stop it first"))
        }
    }

    /// Opens the layer of a live run and the directory beneath.
    pub fn layer_of(&self, record: &Record) -> Result<LayerSpec, Refusal> {
        let layer = pending(record)?;
        block_in_place(|| self.layer_spec(record, layer, self.beneath(record, layer)?))
    }

    /// Opens the layer for the host worker, and the directory `beneath` it or the one that takes its changes.
    pub(crate) fn layer_spec(
        &self,
        record: &Record,
        layer: Layer,
        beneath: OwnedFd,
    ) -> Result<LayerSpec, Refusal> {
        let upper = self.launcher.directories.layer(&record.id.to_string()).join("upper");
        let changes = workspace::open_own(&upper)
            .map_err(|error| Refusal::internal("opening the changes of an overlay", &error))?;
        Ok(LayerSpec {
            beneath,
            changes: changes.handle,
            since: layer.since,
            resumed: layer.begun,
            owner_uid: layer.owner.uid,
            owner_gid: layer.owner.gid,
        })
    }

    /// Opens the directory beneath a layer. It must be the one that the run began with.
    pub(crate) fn beneath(&self, record: &Record, layer: Layer) -> Result<OwnedFd, Refusal> {
        let workspace = &record.spec.workspace;
        let beneath = match (workspace, workspace.beneath()) {
            (Workspace::Overlay { path }, _) => {
                self.launcher.roots.open_again("workspace.overlay.path", path)?
            }
            (_, Some(tree)) => {
                let opened = workspace::open_own(&self.launcher.directories.beneath(tree));
                opened.map_err(|error| Refusal::internal("opening a base or a checkpoint", &error))?.handle
            }
            (_, None) => return Err(no_overlay()),
        };
        let stat = rustix::fs::fstat(&beneath)
            .map_err(|error| Refusal::internal("looking at the directory beneath", &error))?;
        if (stat.st_ino, stat.st_uid) == (layer.inode, layer.owner.uid) {
            return Ok(beneath);
        }
        Err(Refusal::new(
            Reason::PreconditionFailed,
            "the directory beneath the overlay was replaced after the run began, or restored from a backup: \
             put the old one back, or copy what you need of the changes out of the daemon's state_dir and \
             discard them",
        ))
    }

    async fn set_layer(&self, record: &mut Record, layer: Layer) -> Result<(), Refusal> {
        if let Some(started) = &mut record.started {
            started.layer = Some(layer);
        }
        let stored = stored::update(&self.store, record).await;
        stored.map_err(|error| Refusal::internal("keeping the run", &chain(&error)))?;
        self.ended().insert(record.id, record.clone());
        self.changed(record.clone());
        Ok(())
    }

    /// Records durably what happens to the workspace of this run. Callers do so before the change and after it.
    pub(crate) async fn tell(
        &self,
        run: RunId,
        principal: &Principal,
        details: serde_json::Value,
    ) -> Result<(), Refusal> {
        let recorded = self.audit.record(workspace_change(run, principal, details)).await;
        recorded.map(drop).map_err(|_| audit_service::Unavailable.into())
    }

    /// Records a deletion. On a full disk the deletion frees space for this record.
    pub(crate) async fn tell_of_removal(
        &self,
        run: RunId,
        principal: &Principal,
        details: serde_json::Value,
    ) -> Result<(), Refusal> {
        let recorded = self.audit.record_removal(workspace_change(run, principal, details)).await;
        recorded.map_err(|_| audit_service::Unavailable.into())
    }
}

fn workspace_change(run: RunId, principal: &Principal, details: serde_json::Value) -> Event {
    Event::new(Kind::WorkspaceChange).run(run.to_string()).principal(&principal.name).details(details)
}

fn no_overlay() -> Refusal {
    Refusal::new(
        Reason::PreconditionFailed,
        "the run's workspace is not an overlay: its changes are in it already",
    )
}

fn pending(record: &Record) -> Result<Layer, Refusal> {
    let gone = |what| {
        let why = format!("the run's changes were {what} already");
        Err(Refusal::new(Reason::PreconditionFailed, why))
    };
    match record.layer() {
        Some(layer) if layer.changes == Changes::Pending => Ok(layer),
        Some(Layer { changes: Changes::Accepted, .. }) => gone("accepted"),
        Some(_) => gone("discarded"),
        None if record.spec.workspace.is_layered() => {
            Err(Refusal::new(Reason::PreconditionFailed, "the run never began, so it has no changes"))
        }
        None => Err(no_overlay()),
    }
}
