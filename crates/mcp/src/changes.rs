//! Notifies clients when the offered tools change: after a reload of the policy, a grant or a revocation.
//!
//! The API has no such event for a run's token, and a list costs the daemon microseconds. So the tools are listed every [`PACE`].

use std::sync::Arc;
use std::time::Duration;

use rmcp::ErrorData;
use rmcp::RoleServer;
use rmcp::service::{Peer, SubscriptionContext};
use tokio::time::{MissedTickBehavior, interval};
use tonic::Code;

use crate::log::{Level, Wanted};
use crate::tools::Tools;

/// Time between two scans.
const PACE: Duration = Duration::from_secs(5);

/// Notifies a session (before MCP 2026-07-28) until it is over.
pub(crate) async fn tell(tools: Arc<Tools>, wanted: Arc<Wanted>, peer: Peer<RoleServer>) {
    let mut look = Look::new(tools);
    while look.next_change().await {
        wanted.announce(&peer, Level::Info, "other tools are offered now").await;
        if peer.notify_tool_list_changed().await.is_err() {
            return;
        }
    }
}

/// Notifies a subscriber (since MCP 2026-07-28) until it cancels.
pub(crate) async fn listen(tools: Arc<Tools>, subscription: SubscriptionContext) -> Result<(), ErrorData> {
    let mut look = Look::new(tools);
    loop {
        tokio::select! {
            () = subscription.cancelled() => return Ok(()),
            changed = look.next_change() => {
                if !changed || subscription.sink().notify_tool_list_changed().await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

struct Look {
    tools: Arc<Tools>,
    seen: String,
    ticks: tokio::time::Interval,
}

impl Look {
    fn new(tools: Arc<Tools>) -> Self {
        let mut ticks = interval(PACE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { tools, seen: String::new(), ticks }
    }

    /// Waits for a change. Returns false if the token is no longer valid, so that there will be none.
    async fn next_change(&mut self) -> bool {
        loop {
            self.ticks.tick().await;
            match self.tools.changed(&mut self.seen).await {
                Ok(true) => return true,
                Err(status) if matches!(status.code(), Code::PermissionDenied | Code::NotFound) => {
                    return false;
                }
                // A daemon that restarts may have loaded another policy.
                Ok(false) | Err(_) => {}
            }
        }
    }
}
