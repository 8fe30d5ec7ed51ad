//! Calls about the checkpoints of their own run, and the checkpoints that calls bring about.
//!
//! A checkpoint freezes the run, and a restore ends its commands and waits for its calls. So a call that asks for one first gives its
//! slot and its hold back: nothing then waits for the call itself. Once begun it goes on to its end, whatever becomes of the call,
//! so that the record of the call is true.
//!
//! ```text
//!  permit ─► [first call of a task: checkpoint] ─► slot ─► execute ─► slot ends ─► [it wrote: checkpoint] ─► receipt ─► answer
//! ```
//!
//! The answer comes after the checkpoint: the next call of the same agent does not change what is copied. A call beside it may have
//! changed files meanwhile; the copy has one moment of all of them.

use operations::{Checkpoint, CheckpointResult, Delivery, Effect, OpResult, Operation, Outcome};
use runs::Run;
use runs::record::Every;

use super::CallTask;

/// Checkpoints that an agent is shown.
const SHOWN: usize = 100;

impl CallTask {
    /// Does what the call asks for. It holds nothing of the run.
    pub(super) async fn checkpoint(&self, operation: Operation) -> Outcome {
        let Operation::Checkpoint(asked) = operation else {
            let message = "the permit is for no checkpoint";
            return Err(operations::ToolFailure::new(operations::Reason::Internal, message));
        };
        let (checkpoints, run) = (&self.calls.workers.checkpoints, self.call.run);
        let result = match asked {
            Checkpoint::Create { label } => {
                let made = checkpoints.make(run, label, &self.principal).await?;
                CheckpointResult { made: Some(made), ..CheckpointResult::default() }
            }
            Checkpoint::List => {
                let (found, truncated) = checkpoints.list(run, SHOWN);
                CheckpointResult { checkpoints: found, truncated, ..CheckpointResult::default() }
            }
            Checkpoint::Restore { checkpoint_id } => {
                let restored = checkpoints.restore(run, &checkpoint_id, &self.principal).await?;
                CheckpointResult {
                    restored_id: checkpoint_id,
                    before: Some(restored.before),
                    ended_processes: restored.ended_processes,
                    ..CheckpointResult::default()
                }
            }
        };
        Ok(OpResult::Checkpoint(result))
    }

    /// Makes a checkpoint before the first call of a task, if the run asks for that.
    pub(super) async fn keep_before(&self, run: &Run, task: &str) {
        let is_asked = run.spec().checkpoints.is_some_and(|automatic| automatic.every == Every::Turn);
        if !is_asked || task.is_empty() {
            return;
        }
        let label = format!("auto: before {task}");
        let make = self.calls.workers.checkpoints.make_unasked(self.call.run, label, &self.principal);
        self.calls.moments.of(run).before_task(task, make).await;
    }

    /// Makes a checkpoint after a call that wrote, if the run asks for that.
    pub(super) async fn keep_after(&self, run: &Run, wrote: bool) {
        let is_asked = run.spec().checkpoints.is_some_and(|automatic| automatic.every == Every::Write);
        if !is_asked || !wrote || run.ended.is_cancelled() {
            return;
        }
        let label = format!("auto: after call {}", self.call.id);
        let make = self.calls.workers.checkpoints.make_unasked(self.call.run, label, &self.principal);
        self.calls.moments.of(run).after_call(make).await;
    }
}

/// Returns true if an operation may have changed files of the run when it succeeds, and whether it may have when it fails.
pub(super) fn writes(operation: &Operation) -> (bool, bool) {
    match operation.effect() {
        // A restore keeps the state before by itself.
        _ if operation.delivery() == Delivery::Checkpoint => (false, false),
        // What is written by a command that fails stays.
        Effect::Runs => (true, true),
        Effect::Writes | Effect::Deletes | Effect::Commits => (true, false),
        Effect::Looks | Effect::Reads | Effect::Keeps | Effect::Foreign => (false, false),
    }
}
