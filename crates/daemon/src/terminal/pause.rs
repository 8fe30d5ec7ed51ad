//! A run that is paused for one terminal: only the terminal's own processes run in it.
//!
//! A process of the run has the shell's user. It could read the shell's memory and what is typed, and write to the terminal.
//!
//! ```text
//!  permit ─► hold, all else frozen ─► on record ─► terminal ─► … ─► all of the terminal ended ─► release ─► on record
//! ```
//!
//! Nothing else runs between the two, because the terminal's device is made after the hold and is gone before its release. A
//! daemon that dies leaves the hold in the run's record; the next one ends the terminal's processes and then the hold.

use std::sync::Arc;

use identity::{Principal, RunId, SessionId};
use ops::Reason;
use refusal::Refusal;
use runs::Runs;
use store::run::Hold;
use timestamp::UnixMillis;
use tokio_util::task::TaskTracker;

use super::Terminals;

/// The hold of one terminal. Dropped before [`Self::end`] it is released all the same.
pub(super) struct Pause {
    runs: Arc<Runs>,
    tasks: TaskTracker,
    run: RunId,
    /// `None` once it was released.
    hold: Option<Hold>,
    /// Moment at which everything else was frozen.
    pub(super) since: UnixMillis,
}

impl Pause {
    /// Freezes everything in the run, and returns when it is frozen.
    pub(super) async fn begin(
        terminals: &Terminals,
        run: RunId,
        session: SessionId,
        principal: &Principal,
    ) -> Result<Self, Refusal> {
        let hold = Hold::Terminal(session.to_string());
        terminals.runs.hold(run, hold.clone(), Some(&principal.name)).await?;
        let (runs, tasks) = (terminals.runs.clone(), terminals.tasks.clone());
        Ok(Self { runs, tasks, run, hold: Some(hold), since: UnixMillis::now() })
    }

    /// Lets the run go on, unless something else holds it, and returns the moment at which it could.
    pub(super) async fn end(mut self) -> UnixMillis {
        let until = UnixMillis::now();
        if let Some(hold) = self.hold.take() {
            release(&self.runs, self.run, &hold).await;
        }
        until
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            let (runs, run) = (self.runs.clone(), self.run);
            self.tasks.spawn(async move { release(&runs, run, &hold).await });
        }
    }
}

/// A run that cannot go on is ended, so that it is not frozen for ever.
async fn release(runs: &Runs, run: RunId, hold: &Hold) {
    match runs.release(run, hold).await {
        Ok(()) => {}
        // It has ended, and its holds with it.
        Err(refusal) if matches!(refusal.reason, Reason::RunNotReady | Reason::NotFound) => {}
        Err(refusal) => {
            tracing::error!(%run, why = refusal.message, "a run that was paused for a terminal cannot go on, and ends");
            if let Ok(living) = runs.living_run(run) {
                living.fail(refusal.message).await;
            }
        }
    }
}
