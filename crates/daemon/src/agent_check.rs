//! Answers the agent checks of HAProxy with the state of this node.

use std::sync::Arc;

use ::agent_check::{Report, Settings};
use anyhow::Context as _;
use node::Node;
use readiness::Seen;
use take_over::Listeners;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// State of the metrics for a node that makes runs.
const SERVING: &str = "serving";

/// Starts the listener if the configuration has one. It ends when the daemon stops.
pub(crate) async fn start(
    settings: Option<&Settings>,
    (node, seen): (Arc<Node>, watch::Receiver<Seen>),
    (tasks, stop): (&TaskTracker, &CancellationToken),
    listeners: &Listeners,
) -> anyhow::Result<()> {
    let Some(Settings { address }) = settings else { return Ok(()) };
    let listener = listeners.tcp("agent-check", *address).await;
    let listener = listener.with_context(|| format!("cannot listen on {address} for agent checks"))?;
    tracing::info!(address = %listener.local_addr()?, "agent checks are answered");
    let report = move || {
        let (is_ready, sample) = (seen.borrow().is_ready(), node.sample());
        match (is_ready, sample.state) {
            (false, _) => Report::Down,
            (true, SERVING) => Report::ready(sample.amounts.map(|(_, most, used)| (most, used))),
            (true, _) => Report::Drained,
        }
    };
    tasks.spawn(::agent_check::serve(listener, report, stop.clone()));
    Ok(())
}
