//! Opens a terminal in the container for an operator, which requires a session's permit.

use std::sync::Arc;
use std::time::Duration;

use containers::Group;
use gateway::{SessionParts, SessionPermit};
use tokio_util::sync::CancellationToken;
use worker_protocol::client::{LaneError, OutputSink, Terminal, TerminalSize, TerminalSpec};

use crate::lanes::Lanes;
use crate::metered::Metered;
use crate::placement::LeafPlacement;

/// Parameters of a terminal.
#[derive(Debug, Clone, Copy)]
pub struct Opening {
    pub size: TerminalSize,
    /// Time after which all processes on it are ended.
    pub limit: Duration,
    /// True if the run is paused except for this terminal.
    pub paused: bool,
}

/// Resource counter for the processes on a terminal.
pub struct Meter(Option<Arc<LeafPlacement>>);

impl Meter {
    /// Returns the resources that they used. Known after the terminal has finished.
    pub fn metered(&self) -> Metered {
        self.0.as_ref().map_or_else(Metered::default, |leaf| leaf.metered())
    }
}

impl Lanes {
    /// Opens the terminal that the permit allows.
    ///
    /// `output` receives the terminal's output. All processes that were started on it are ended when `cancel` is cancelled or the time
    /// limit is over.
    pub async fn terminal(
        &self,
        permit: SessionPermit,
        opening: Opening,
        output: &Arc<dyn OutputSink>,
        cancel: &CancellationToken,
    ) -> Result<(Terminal, Meter), LaneError> {
        let SessionParts { request, bounds, .. } = permit.into_parts();
        let spec = TerminalSpec {
            exec: &request.command.exec,
            login_shell: request.command.login_shell,
            bounds: &bounds,
            size: opening.size,
            pipes: false,
            deadline: opening.limit,
            output,
        };
        cancel.run_until_cancelled(self.guest.restarted()).await;
        let leaf = self.guest.leaf(&request.session_id);
        let leaf = if opening.paused {
            // Without a separate cgroup, either the terminal would be frozen with its run or the run could not be frozen at all.
            let leaf = leaf.ok_or_else(|| LaneError::NotPlaced("no cgroup for the terminal".to_owned()))?;
            Some(leaf.among(Group::Terminal))
        } else {
            leaf
        };
        let leaf = leaf.map(Arc::new);
        let placement = leaf.clone().map(|leaf| leaf as _);
        let terminal = self.guest.client().terminal(spec, placement, cancel)?;
        Ok((terminal, Meter(leaf)))
    }
}
