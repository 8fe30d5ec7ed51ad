//! What happens to the servers of a run, on record.

use std::sync::Arc;

use audit::{Event, Kind};
use identity::RunId;
use serde_json::Value;

use crate::audit::AuditLog;

/// Writes the events of one run.
#[derive(Clone)]
pub(super) struct Recorder {
    audit: Arc<AuditLog>,
    run: RunId,
    agent: String,
}

impl Recorder {
    pub(super) fn new(audit: Arc<AuditLog>, run: RunId, agent: &str) -> Self {
        Self { audit, run, agent: agent.to_owned() }
    }

    /// Nobody waits for the disk: no call rests on it. A log that cannot be written admits no calls either.
    pub(super) async fn record(&self, kind: Kind, details: Value) {
        let event = Event::new(kind).run(self.run.to_string()).agent(&self.agent).details(details);
        if self.audit.enqueue(event).await.is_err() {
            tracing::error!(run = %self.run, "an event of an MCP server is not on record: the audit log cannot be written");
        }
    }
}
