//! Turns to settle a run: to accept or discard its changes, or to use or delete its workspace.

use identity::RunId;

use crate::record::State;
use crate::registry::Runs;

/// Turn to settle the changes or the workspace of a run.
pub(crate) struct Settling<'a>(&'a Runs, RunId);

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        self.0.settling().remove(&self.1);
        self.0.settled.notify_waiters();
    }
}

impl Runs {
    /// Waits for the turn to settle a run. One caller at a time has it.
    ///
    /// Also waits for a run that is ending. Its state says that it has ended moments before its task is over, and until then the run still
    /// uses its workspace.
    pub(crate) async fn settle(&self, id: RunId) -> Settling<'_> {
        let ending = self
            .living()
            .get(&id)
            .filter(|run| matches!(run.record().state, State::Stopping | State::Stopped | State::Failed))
            .cloned();
        if let Some(run) = ending {
            run.commands.closed().await;
        }
        loop {
            let settled = self.settled.notified();
            if self.settling().insert(id) {
                return Settling(self, id);
            }
            settled.await;
        }
    }
}
