//! Freezes a run while one of its calls waits for a reviewer: `approvals.freeze` of its profile.
//!
//! ```text
//!  hold ─► writes under way end ─► look: preview, bound states ──► ask ─► decision ─┬─► held to it, executed ─► release
//!   └─ before the first look                                                       └─ no, late, cancelled ────► release
//! ```
//!
//! No command of the run and no other call changes the run's files from before the first look until the call is over. So the
//! reviewer sees one state, which is still there when the answer comes and while the call uses it.
//!
//! An approved command runs alone ([`containers::Group::Alone`]); several approved commands take turns (`slot.rs`). A process of
//! the host is not frozen. The effect finds its changes, except changes during a command.
//!
//! Each approval is a separate hold with the approval's id. The run's record has it before the commands are frozen: a daemon that
//! takes the run over finds it held, and goes on from there. The start releases a hold whose approval is gone.

use std::sync::Arc;

use identity::RunId;
use operations::Reason;
use refusal::Refusal;
use runs::Run;
use runs::record::Hold;

use crate::Calls;

/// The hold on a run, if the profile requires one. Dropping it releases the run.
pub(super) struct Standstill {
    calls: Arc<Calls>,
    run: RunId,
    hold: Option<Hold>,
}

impl Standstill {
    /// Returns a standstill that holds nothing.
    pub(super) fn none(calls: &Arc<Calls>, run: RunId) -> Self {
        Self { calls: calls.clone(), run, hold: None }
    }

    /// Freezes the run for this approval. When this returns, no call changes a file of the run either.
    pub(super) async fn begin(
        calls: &Arc<Calls>,
        (id, run): (RunId, &Run),
        approval_id: &str,
    ) -> Result<Self, Refusal> {
        let mut still = Self::none(calls, id);
        still.again(run, Hold::Approval(approval_id.to_owned())).await?;
        Ok(still)
    }

    /// Freezes the run once more, after [`Self::end`].
    pub(super) async fn again(&mut self, run: &Run, hold: Hold) -> Result<(), Refusal> {
        self.hold = Some(hold.clone());
        match self.calls.workers.runs.hold(self.run, hold, None).await {
            Ok(()) => {}
            Err(refusal) if refusal.reason == Reason::PreconditionFailed => {
                let message = format!(
                    "the profile freezes the run while a reviewer is asked (approvals.freeze), but {}",
                    refusal.message
                );
                return Err(Refusal { message, ..refusal });
            }
            Err(refusal) => return Err(refusal),
        }
        run.writes_end().await;
        Ok(())
    }

    /// Returns the hold of this call on the run.
    pub(super) fn hold(&self) -> Option<&Hold> {
        self.hold.as_ref()
    }

    /// Releases the run, unless it is held for another reason.
    pub(super) async fn end(&mut self) {
        if let Some(hold) = self.hold.take() {
            release(&self.calls, self.run, &hold).await;
        }
    }

    /// Keeps the hold for the next daemon, which goes on with the call.
    pub(super) fn leave(mut self) {
        self.hold = None;
    }
}

impl Drop for Standstill {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            let (calls, run) = (self.calls.clone(), self.run);
            self.calls.life.tasks.spawn(async move { release(&calls, run, &hold).await });
        }
    }
}

async fn release(calls: &Calls, run: RunId, hold: &Hold) {
    // A run that has ended meanwhile has no holds.
    if let Err(refusal) = calls.workers.runs.release(run, hold).await
        && !matches!(refusal.reason, Reason::RunNotReady | Reason::RunLost)
    {
        tracing::error!(%run, why = refusal.message, "a run is still frozen although its call no longer waits: stop the run");
    }
}
