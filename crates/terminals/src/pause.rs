//! Pauses a run for one terminal: only the terminal's own processes run in it.
//!
//! Other processes of the run have the same user as the shell. They could read the shell's memory and the input, and
//! write to the terminal.
//!
//! ```text
//!  permit ─► hold, all else frozen ─► on record ─► terminal ─► … ─► all of the terminal ended ─► release ─► on record
//! ```
//!
//! No other process runs between hold and release: the terminal's device is made after the hold and is gone before its
//! release. If the daemon dies, the hold stays in the run's record. The next daemon ends the terminal's processes and
//! then the hold.

use std::sync::Arc;

use identity::{Principal, RunId, SessionId};
use refusal::Refusal;
use runs::Runs;
use runs::record::Hold;
use timestamp::UnixMillis;
use tokio_util::task::TaskTracker;

use super::Terminals;

/// Hold of one terminal. If it is dropped before [`Self::end`], the run is released all the same.
pub(super) struct Pause {
    runs: Arc<Runs>,
    tasks: TaskTracker,
    run: RunId,
    /// The hold; `None` after its release.
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

    /// Resumes the run, unless something else holds it. Returns the moment at which it could resume.
    pub(super) async fn end(mut self) -> UnixMillis {
        let until = UnixMillis::now();
        if let Some(hold) = self.hold.take() {
            self.runs.release_or_end(self.run, &hold).await;
        }
        until
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            let (runs, run) = (self.runs.clone(), self.run);
            self.tasks.spawn(async move { runs.release_or_end(run, &hold).await });
        }
    }
}
