//! Gives calls the checkpoints of their runs.

use std::sync::Arc;

use async_trait::async_trait;
use calls::{AgentCheckpoints, Restored};
use checkpoints::Checkpoints;
use identity::{CheckpointId, Principal, RunId};
use operations::AgentCheckpoint;
use refusal::Refusal;

/// Checkpoints of runs, for their agents.
pub(super) struct OfAgents {
    pub(super) checkpoints: Arc<Checkpoints>,
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
        let id = CheckpointId::parse(checkpoint)?;
        let (before, ended_processes) = self.checkpoints.restore_own(run, id, by).await?;
        Ok(Restored { before, ended_processes })
    }
}
