//! A terminal in the container, for an operator. Takes nothing but a session's permit.

use std::sync::Arc;
use std::time::Duration;

use gateway::{SessionParts, SessionPermit};
use tokio_util::sync::CancellationToken;
use worker_protocol::client::{LaneError, OutputSink, Terminal, TerminalSize, TerminalSpec};

use crate::lanes::Lanes;
use crate::metered::Metered;
use crate::placement::LeafPlacement;

/// Counts what runs on a terminal.
pub struct Meter(Option<Arc<LeafPlacement>>);

impl Meter {
    /// What it used. Known when the terminal has finished.
    pub fn metered(&self) -> Metered {
        self.0.as_ref().map_or_else(Metered::default, |leaf| leaf.metered())
    }
}

impl Lanes {
    /// Opens the terminal that the permit allows. What is shown goes to `output`; `cancel`, or the end of `limit`, ends
    /// everything that was started on it.
    pub async fn terminal(
        &self,
        permit: SessionPermit,
        size: TerminalSize,
        limit: Duration,
        output: &Arc<dyn OutputSink>,
        cancel: &CancellationToken,
    ) -> Result<(Terminal, Meter), LaneError> {
        let SessionParts { request, bounds, .. } = permit.into_parts();
        let spec = TerminalSpec {
            exec: &request.command.exec,
            login_shell: request.command.login_shell,
            bounds: &bounds,
            size,
            pipes: false,
            deadline: limit,
            output,
        };
        cancel.run_until_cancelled(self.guest.restarted()).await;
        let leaf = self.guest.leaf(&request.session_id).map(Arc::new);
        let placement = leaf.clone().map(|leaf| leaf as _);
        let terminal = self.guest.client().terminal(spec, placement, cancel)?;
        Ok((terminal, Meter(leaf)))
    }
}
