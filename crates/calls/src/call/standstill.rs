//! A run that stands still while one of its calls waits for a reviewer: `approvals.freeze` of its profile.
//!
//! ```text
//!  hold ─► writes under way end ─► look: preview, what is bound ─► ask ─► decision ─┬─► held to it, executed ─► release
//!   └─ before anything is looked at                                                └─ no, late, cancelled ────► release
//! ```
//!
//! From before the first look until the call is over nothing in the run changes by a command of the run or by another call: what
//! the reviewer sees is one state, is still there when the answer comes, and stays while the call uses it. A command that was
//! approved runs by itself ([`containers::Group::Alone`]); several that were approved take turns (`room.rs`). A process of the
//! host is not held; its changes are found in the effect, and during a command not even then.
//!
//! Each approval is a hold of its own, in the run's record before its commands stand still, and known by the approval's id:
//! a daemon that takes the run over finds it held, and goes on from there. A hold whose approval is gone ends with the start.

use std::sync::Arc;

use identity::RunId;
use ops::Reason;
use refusal::Refusal;
use runs::Run;
use store::run::Hold;

use crate::Calls;

/// Holds a run, or does not where the profile does not want it. Dropped without a word it lets the run go.
pub(super) struct Standstill {
    calls: Arc<Calls>,
    run: RunId,
    hold: Option<Hold>,
}

impl Standstill {
    /// Nothing is held.
    pub(super) fn none(calls: &Arc<Calls>, run: RunId) -> Self {
        Self { calls: calls.clone(), run, hold: None }
    }

    /// Makes the run stand still for this approval. When this returns, no call changes a file of it either.
    pub(super) async fn begin(
        calls: &Arc<Calls>,
        (id, run): (RunId, &Run),
        approval_id: &str,
    ) -> Result<Self, Refusal> {
        let mut still = Self::none(calls, id);
        still.again(run, Hold::Approval(approval_id.to_owned())).await?;
        Ok(still)
    }

    /// The same once more, after [`Self::end`].
    pub(super) async fn again(&mut self, run: &Run, hold: Hold) -> Result<(), Refusal> {
        self.hold = Some(hold.clone());
        match self.calls.runs.hold(self.run, hold, None).await {
            Ok(()) => {}
            Err(refusal) if refusal.reason == Reason::PreconditionFailed => {
                let message = format!(
                    "the profile has the run stand still while a reviewer is asked (approvals.freeze), and {}",
                    refusal.message
                );
                return Err(Refusal { message, ..refusal });
            }
            Err(refusal) => return Err(refusal),
        }
        run.writes_end().await;
        Ok(())
    }

    /// What holds the run for this call.
    pub(super) fn hold(&self) -> Option<&Hold> {
        self.hold.as_ref()
    }

    /// Lets the run go, unless something else holds it.
    pub(super) async fn end(&mut self) {
        if let Some(hold) = self.hold.take() {
            release(&self.calls, self.run, &hold).await;
        }
    }

    /// The hold stays for the next daemon, which goes on with the call.
    pub(super) fn leave(mut self) {
        self.hold = None;
    }
}

impl Drop for Standstill {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            let (calls, run) = (self.calls.clone(), self.run);
            self.calls.tasks.spawn(async move { release(&calls, run, &hold).await });
        }
    }
}

async fn release(calls: &Calls, run: RunId, hold: &Hold) {
    // A run that has ended meanwhile holds nobody.
    if let Err(refusal) = calls.runs.release(run, hold).await
        && refusal.reason != Reason::RunNotReady
    {
        tracing::error!(%run, why = refusal.message, "a run is still frozen although its call no longer waits: stop the run");
    }
}
