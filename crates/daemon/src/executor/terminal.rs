//! A terminal in the container, for an operator. Takes nothing but a session's permit.

use std::sync::Arc;
use std::time::Duration;

use gateway::{SessionParts, SessionPermit};
use tokio_util::sync::CancellationToken;
use worker::client::{LaneError, OutputSink, Terminal, TerminalSize, TerminalSpec};

use super::Lanes;

impl Lanes {
    /// Opens the terminal that the permit allows. What is shown goes to `output`; `cancel`, or the end of `limit`, ends
    /// everything that was started on it.
    pub(crate) fn terminal(
        &self,
        permit: SessionPermit,
        size: TerminalSize,
        limit: Duration,
        output: &Arc<dyn OutputSink>,
        cancel: &CancellationToken,
    ) -> Result<Terminal, LaneError> {
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
        let placement = self.agent.placement(&request.session_id);
        self.agent.client().terminal(spec, placement, cancel)
    }
}
