//! Starts the export of traces, and follows the audit log for the connections and runs that have spans.

use std::sync::Arc;
use std::time::Duration;

use ::traces::{Connections, Exporter, Traces};
use audit_service::AuditLog;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use webhook::Tls;

use crate::config::Export;

/// Time that records may wait for more.
const LINGER: Duration = Duration::from_millis(200);
/// Wait before another attempt to read the log.
const AGAIN: Duration = Duration::from_secs(5);

/// Starts the export, if the configuration has a receiver.
pub(crate) fn start(export: Option<&Export>) -> anyhow::Result<(Traces, Option<Exporter>)> {
    let Some(export) = export else { return Ok((Traces::default(), None)) };
    let destination = export.open().map_err(|why| anyhow::anyhow!("traces.headers_file: {why}"))?;
    let tls = Tls::new().map_err(|why| anyhow::anyhow!("traces: {why}"))?;
    let (traces, exporter) = Exporter::start(destination, export.share, tls);
    Ok((traces, Some(exporter)))
}

/// Follows the log until the daemon stops, if traces are exported.
pub(crate) fn follow(
    traces: &Traces,
    audit: Arc<AuditLog>,
    (tasks, stop): (&TaskTracker, &CancellationToken),
) {
    if traces.are_on() {
        tasks.spawn(follow_log(Connections::new(traces.clone()), audit, stop.clone()));
    }
}

async fn follow_log(mut connections: Connections, audit: Arc<AuditLog>, stop: CancellationToken) {
    let mut after = audit.head().map_or(0, |head| head.sequence);
    while !stop.is_cancelled() {
        let mut follow = audit.read_after(after, true).lingering(LINGER);
        while let Some(Ok(Some(lines))) = stop.run_until_cancelled(follow.next()).await {
            for line in lines {
                after = line.record.sequence;
                connections.record(&line.record);
            }
        }
        // The log can be unreadable for a while. Records that were missed are read later.
        let _ = stop.run_until_cancelled(tokio::time::sleep(AGAIN)).await;
    }
}
