//! Gives calls the checkpoints of their runs.

use std::sync::Arc;

use async_trait::async_trait;
use calls::{AgentCheckpoints, Restored};
use checkpoints::Checkpoints;
use identity::{CheckpointId, Principal, RunId};
use operations::AgentCheckpoint;
use refusal::Refusal;
use runs::Runs;
use wire::v1;

/// Checkpoints of runs, for their agents.
pub(super) struct OfAgents {
    pub(super) checkpoints: Arc<Checkpoints>,
    pub(super) runs: Arc<Runs>,
}

#[async_trait]
impl AgentCheckpoints for OfAgents {
    async fn make(&self, run: RunId, label: String, by: &Principal) -> Result<AgentCheckpoint, Refusal> {
        self.checkpoints.create_automatic(run, label, by).await
    }

    async fn make_unasked(&self, run: RunId, label: String, by: &Principal) {
        self.checkpoints.create_unasked(run, label, by).await;
    }

    fn list(&self, run: RunId, most: usize) -> (Vec<AgentCheckpoint>, bool) {
        self.checkpoints.of_run(run, most)
    }

    async fn restore(&self, run: RunId, checkpoint: &str, by: &Principal) -> Result<Restored, Refusal> {
        self.checkpoints.check_own(run, CheckpointId::parse(checkpoint)?)?;
        // The policy has judged the call. A run's token gives no right to the method itself, so the owner's right is used.
        let owner =
            Principal { name: self.runs.get(run)?.spec.principal, run: None, scope: None, ..by.clone() };
        let request = v1::RestoreRunRequest { run_id: run.to_string(), checkpoint_id: checkpoint.to_owned() };
        let v1::RestoreRunResponse { before, ended_processes, .. } =
            self.checkpoints.restore(request, &owner).await?;
        if let Some(before) = &before {
            // Agents do not use up what the owner may keep.
            let id = CheckpointId::parse(&before.checkpoint_id)?;
            if let Err(refusal) = self.checkpoints.count_as_automatic(run, id).await {
                tracing::warn!(%run, why = refusal.message, "a checkpoint of an agent counts as its owner's");
            }
        }
        let before = before.map(|before| AgentCheckpoint {
            files: before.parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.files)),
            created_at: before.created_at.map(|at| at.to_string()).unwrap_or_default(),
            checkpoint_id: before.checkpoint_id,
            label: before.label,
            size_bytes: before.size_bytes,
        });
        Ok(Restored { before, ended_processes })
    }
}
