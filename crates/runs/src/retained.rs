//! Directories that the daemon keeps when their runs have ended.
//!
//! A managed or cloned workspace has its own record, which outlives that of the run. The layer of an overlay is in the record of its run.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::record::{Kept, Record, Workspace};
use executor::layer;
use identity::{Principal, RunId};
use operations::Reason;
use parking_lot::MutexGuard;
use refusal::{Refusal, chain};
use serde_json::json;
use tokio::task::block_in_place;
use wire::v1;

use crate::registry::Runs;
use ::leftovers::remove_tree;
use run_directories::workspace;

impl Runs {
    /// Returns a page of the kept workspaces that `principal` may use, newest first, after `after`. Also returns whether there are more.
    pub async fn workspaces(
        &self,
        principal: &Principal,
        after: Option<RunId>,
        size: usize,
        measure: bool,
    ) -> (Vec<v1::KeptWorkspace>, bool) {
        let mut found: Vec<(RunId, v1::KeptWorkspace)> = Vec::new();
        for kept in self.kept().values().filter(|kept| principal.may_use(&kept.principal)) {
            found.push((kept.id, self.shown(kept)));
        }
        for record in self.list() {
            if record.has_pending_changes() && principal.may_use(&record.spec.principal) {
                found.push((record.id, self.overlay(&record)));
            }
        }
        found.retain(|(id, _)| after.is_none_or(|after| *id < after));
        found.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
        let more = found.len() > size;
        found.truncate(size);
        if measure {
            for (id, workspace) in &mut found {
                workspace.size_bytes = self.measure(*id, workspace).await;
            }
        }
        (found.into_iter().map(|(_, workspace)| workspace).collect(), more)
    }

    /// Deletes a kept workspace, or the changes of an overlay.
    pub async fn delete_workspace(&self, id: RunId, principal: &Principal) -> Result<(), Refusal> {
        let kept = || self.kept().get(&id).cloned();
        match kept() {
            Some(found) if principal.may_use(&found.principal) => {
                let _settling = self.settle(id).await;
                let kept = kept().ok_or_else(|| no_such_workspace(id))?;
                self.delete_kept(&kept, principal).await
            }
            Some(_) => Err(no_such_workspace(id)),
            None => match self.of(id, principal) {
                Ok(record) if record.has_pending_changes() => self.discard(id, principal).await.map(drop),
                _ => Err(no_such_workspace(id)),
            },
        }
    }

    /// Deletes a kept workspace, unless a live run uses it.
    pub(crate) async fn delete_kept(&self, kept: &Kept, principal: &Principal) -> Result<(), Refusal> {
        let id = kept.id;
        if let Some(user) = self.user_of(id) {
            return Err(Refusal::new(
                Reason::PreconditionFailed,
                format!("run {user} uses it: stop it first"),
            ));
        }
        self.tell_of_removal(id, principal, json!({ "action": "delete", "phase": "begun" })).await?;
        remove_tree(self.launcher.directories.workspace(&id.to_string())).await;
        self.launcher.projects.settle(id);
        self.forget_workspace(id).await?;
        self.tell_of_removal(id, principal, json!({ "action": "delete", "phase": "done" })).await
    }

    /// Checks that a run may begin on a kept workspace.
    pub(crate) fn check_kept(&self, id: RunId, principal: &Principal) -> Result<(), Refusal> {
        let usable = self.kept().get(&id).is_some_and(|kept| principal.may_use(&kept.principal));
        if usable { Ok(()) } else { Err(no_such_workspace(id)) }
    }

    /// Deletes the record of a workspace that is gone or was never made.
    pub(crate) async fn forget_workspace(&self, id: RunId) -> Result<(), Refusal> {
        let deleted = self.store.with(move |store| store.delete_workspace(id)).await;
        deleted.map_err(|error| Refusal::internal("forgetting the workspace", &chain(&error)))?;
        self.kept().remove(&id);
        Ok(())
    }

    /// Returns true if there is a workspace that was made for this run.
    pub fn has_kept(&self, id: RunId) -> bool {
        self.kept().contains_key(&id)
    }

    pub(crate) fn kept(&self) -> MutexGuard<'_, BTreeMap<RunId, Kept>> {
        self.kept.lock()
    }

    fn shown(&self, kept: &Kept) -> v1::KeptWorkspace {
        let repository = match &kept.workspace {
            Workspace::Clone { repository, .. } => repository.to_string_lossy().into_owned(),
            Workspace::CloneOfUrl { url, .. } => url.clone(),
            _ => String::new(),
        };
        v1::KeptWorkspace {
            workspace_id: kept.id.to_string(),
            kind: kept.workspace.kind().to_owned(),
            principal: kept.principal.clone(),
            created_at: Some(kept.created_at.to_wire()),
            path: self.launcher.directories.workspace(&kept.id.to_string()).to_string_lossy().into_owned(),
            used_by: self.user_of(kept.id).map(|run| run.to_string()).unwrap_or_default(),
            size_bytes: None,
            repository,
        }
    }

    fn overlay(&self, record: &Record) -> v1::KeptWorkspace {
        let workspace = &record.spec.workspace;
        let path = match (workspace, workspace.beneath()) {
            (_, Some(tree)) => self.launcher.directories.beneath(tree),
            (Workspace::Overlay { path }, None) => path.clone(),
            _ => PathBuf::new(),
        };
        v1::KeptWorkspace {
            workspace_id: record.id.to_string(),
            kind: workspace.kind().to_owned(),
            principal: record.spec.principal.clone(),
            created_at: Some(record.created_at.to_wire()),
            path: path.to_string_lossy().into_owned(),
            used_by: if record.state.has_ended() { String::new() } else { record.id.to_string() },
            size_bytes: None,
            repository: String::new(),
        }
    }

    /// Returns the size of a workspace, or `None` if it cannot be measured.
    async fn measure(&self, id: RunId, shown: &v1::KeptWorkspace) -> Option<u64> {
        let _turn = self.looks.wait(&self.launcher.tenancy().tenant_of(&shown.principal)).await?;
        let directories = &self.launcher.directories;
        let path = match shown.kind.as_str() {
            "overlay" | "base" | "checkpoint" => directories.layer(&id.to_string()).join("upper"),
            _ => directories.workspace(&id.to_string()),
        };
        let directory = block_in_place(|| workspace::open_own(&path)).ok()?;
        match layer::measure(&directory).await {
            Ok(size) => Some(size),
            Err(refusal) => {
                tracing::warn!(workspace = %id, why = refusal.message, "a workspace was not measured");
                None
            }
        }
    }
}

fn no_such_workspace(id: RunId) -> Refusal {
    Refusal::absent("workspace", id, "there is no such workspace")
}
