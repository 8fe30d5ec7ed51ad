//! Gives a live run the files of a checkpoint, and completes what an earlier daemon has begun.
//!
//! ```text
//! held ─► checkpoint of the state before ─► commands ended ─► files put back ─► released
//!   │               │                            │                  └─ failed: the state before is put back
//!   └───────────────┴─ daemon killed: released   └─ daemon killed: the next one does both again
//! ```
//!
//! The hold is the mark: it is in the run's record first and leaves it last, and has the ids of both checkpoints. A daemon that finds it
//! completes the restore if the checkpoint of the state before exists. Otherwise nothing was changed, and it releases the run.

use identity::{CheckpointId, Principal, RunId};
use operations::AgentCheckpoint;
use refusal::Refusal;
use runs::record::{Held, Hold, Record};
use runs::remove_tree;
use serde_json::{Value, json};
use wire::v1;

use audit::{Event, Kind};

use crate::put_back::{check, put_back};
use crate::record::Checkpoint;
use crate::table::no_such_checkpoint;
use crate::{Busy, Checkpoints, changed, make};

/// Label of the checkpoint with which a restore can be undone.
const BEFORE: &str = "before restore";

impl Checkpoints {
    /// Gives a live run the files of a checkpoint. The caller lets it run to its end.
    pub async fn restore(
        &self,
        request: v1::RestoreRunRequest,
        principal: &Principal,
    ) -> Result<v1::RestoreRunResponse, Refusal> {
        let run = self.runs.of(RunId::parse(&request.run_id)?, principal)?;
        let to = self.table.of_run(CheckpointId::parse(&request.checkpoint_id)?, &run, principal)?;
        let (before, ended_processes) = self.restore_run(&run, &to, principal, false).await?;
        Ok(v1::RestoreRunResponse {
            run: Some(self.runs.get(run.id)?.to_wire()),
            before: Some(before.to_wire()),
            ended_processes,
        })
    }

    /// Does the same for an agent, with a checkpoint of the run in which it is. The caller has judged the request.
    ///
    /// The checkpoint of the state before counts among the automatic ones. Also returns the number of processes that were ended.
    pub async fn restore_own(
        &self,
        run: RunId,
        id: CheckpointId,
        by: &Principal,
    ) -> Result<(AgentCheckpoint, u32), Refusal> {
        let run = self.runs.get(run)?;
        let found = self.table.lock().get(&id).filter(|found| found.run == run.id).cloned();
        let to = found.ok_or_else(|| no_such_checkpoint(id))?;
        let (before, ended_processes) = self.restore_run(&run, &to, by, true).await?;
        self.keep_newest(&run).await;
        Ok((before.for_agent(), ended_processes))
    }

    /// Restores a run. Returns the checkpoint of the state before, and the number of processes that were ended.
    async fn restore_run(
        &self,
        run: &Record,
        to: &Checkpoint,
        principal: &Principal,
        automatic: bool,
    ) -> Result<(Checkpoint, u32), Refusal> {
        self.audit.check()?;
        let _turn = self.turn(run, automatic).await?;
        self.runs.living_run(run.id)?.lanes_for_review()?;
        // Refuses a workspace of the host before anything is recorded or frozen.
        drop(changed(&self.runs.launcher.directories, run)?);
        let before = CheckpointId::new();
        let _kept = (self.table.keep(to.id)?, self.table.used(before));
        self.busy.lock().insert(before);
        let _busy = Busy(self, before);
        let by = Some(principal.name.as_str());
        self.note(run.id, by, to, (before, json!({ "phase": "begun" }))).await?;
        let done = self.held(run, to, (before, automatic), principal).await;
        if let Err(refusal) = &done {
            let failed = json!({ "phase": "failed", "failure": refusal.message });
            self.note(run.id, by, to, (before, failed)).await?;
        }
        let (before, ended_processes) = done?;
        let details = json!({
            "phase": "done", "before_digest": before.digest(), "ended_processes": ended_processes,
        });
        self.note(run.id, by, to, (before.id, details)).await?;
        Ok((before, ended_processes))
    }

    /// Holds the run, and restores it. Returns the checkpoint of the state before, and the number of processes that were ended.
    async fn held(
        &self,
        run: &Record,
        to: &Checkpoint,
        (before, automatic): (CheckpointId, bool),
        principal: &Principal,
    ) -> Result<(Checkpoint, u32), Refusal> {
        let most = self.most(run, automatic).await?;
        let hold = Hold::Restore { checkpoint: to.id.to_string(), before: before.to_string() };
        self.runs.hold(run.id, hold.clone(), Some(&principal.name)).await?;
        let made = self.make(before, run, (BEFORE.to_owned(), automatic), principal, most, None).await;
        let done = match made {
            Ok(made) => match check(to, &made) {
                Ok(()) => self.go_back(run, to, &made).await.map(|ended| (made, ended)),
                Err(refusal) => Err(refusal),
            },
            Err(refusal) => {
                let path = self.runs.launcher.directories.checkpoint(before);
                remove_tree(make::staging(&path)).await;
                remove_tree(path).await;
                Err(refusal)
            }
        };
        self.runs.release_or_end(run.id, &hold).await;
        done
    }

    /// Ends the commands of a run that is held, and puts the files back. Returns the number of processes that were ended.
    async fn go_back(&self, run: &Record, to: &Checkpoint, before: &Checkpoint) -> Result<u32, Refusal> {
        let living = self.runs.living_run(run.id)?;
        let ended = u32::try_from(before.processes.len()).unwrap_or(u32::MAX);
        self.runs.end_commands(run.id).await?;
        let Err(refusal) = put_back(&self.runs, run, to, before).await else {
            // A run that ended meanwhile has lost its mounts.
            living.lanes_for_review()?;
            return Ok(ended);
        };
        match put_back(&self.runs, run, before, to).await {
            Ok(()) => {
                let message = format!("{}: the files are those from before the restore", refusal.message);
                Err(Refusal { message, ..refusal })
            }
            Err(again) => {
                tracing::error!(run = %run.id, why = again.message, "a restore can neither be completed nor undone");
                let message = format!(
                    "a restore failed ({}), and the files from before could not be put back: they are in the checkpoint {}",
                    refusal.message, before.id
                );
                let refusal = Refusal { message, ..refusal };
                living.fail(refusal.clone()).await;
                Err(refusal)
            }
        }
    }

    /// Completes the restores that an earlier daemon has begun, before clients connect.
    pub async fn resume_restores(&self) {
        for run in self.runs.list() {
            let of_restore = |held: &&Held| matches!(held.hold, Hold::Restore { .. });
            let Some(Held { hold, by, .. }) = run.holds.iter().find(of_restore).cloned() else { continue };
            let Hold::Restore { checkpoint, before } = &hold else { continue };
            let find =
                |id: &str| CheckpointId::parse(id).ok().and_then(|id| self.table.lock().get(&id).cloned());
            let (to, made) = (find(checkpoint), find(before));
            if run.state.has_ended() || self.runs.living_run(run.id).is_err() {
                continue;
            }
            if let (Some(to), Some(made)) = (to, made) {
                let _kept = (self.table.used(to.id), self.table.used(made.id));
                let done = match check(&to, &made) {
                    Ok(()) => self.go_back(&run, &to, &made).await,
                    Err(refusal) => Err(refusal),
                };
                self.runs.release_or_end(run.id, &hold).await;
                let details = match done {
                    Ok(_) => json!({ "phase": "done", "before_digest": made.digest(), "resumed": true }),
                    Err(refusal) => json!({ "phase": "failed", "failure": refusal.message, "resumed": true }),
                };
                // Without a log no call is admitted, and the next start has a gap to report.
                let _ = self.note(run.id, by.as_deref(), &to, (made.id, details)).await;
            } else {
                tracing::warn!(run = %run.id, "a restore that had changed nothing yet is given up");
                self.runs.release_or_end(run.id, &hold).await;
                let details = json!({
                    "action": "restore", "phase": "failed", "checkpoint": checkpoint, "before": before,
                    "failure": "the daemon ended before the restore changed anything",
                });
                let _ = self.record(run.id, by.as_deref(), details).await;
            }
        }
    }

    /// Records a phase of a restore, with the checkpoint of the state before and `details`.
    async fn note(
        &self,
        run: RunId,
        by: Option<&str>,
        to: &Checkpoint,
        (before, mut details): (CheckpointId, Value),
    ) -> Result<(), Refusal> {
        details["action"] = json!("restore");
        details["checkpoint"] = json!(to.id);
        details["digest"] = json!(to.digest());
        details["before"] = json!(before);
        self.record(run, by, details).await
    }

    async fn record(&self, run: RunId, by: Option<&str>, details: Value) -> Result<(), Refusal> {
        let event = Event::new(Kind::WorkspaceChange).run(run.to_string()).details(details);
        let event = match by {
            Some(by) => event.principal(by),
            None => event,
        };
        let recorded = self.audit.record(event).await;
        recorded.map(drop).map_err(|_| audit_service::Unavailable.into())
    }
}
