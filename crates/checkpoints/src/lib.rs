#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // only the daemon calls it

mod automatic;
mod changed;
mod fork;
mod forking;
mod inherit;
mod limits;
mod make;
mod opaque;
mod parts;
mod put_back;
mod record;
mod restore;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::{Turn, Turns};
use audit::{Event, Kind};
use audit_service::AuditLog;
use disk_quotas::Quotas;
use host_launch::TreeBounds;
use identity::{CheckpointId, Principal, RunId};
use operations::Reason;
use parking_lot::Mutex;
use processes::Processes;
use refusal::Refusal;
use runs::record::{Beneath, Hold, Record};
use runs::{Runs, remove_tree};
use serde_json::{Value, json};
use store::{Store, StoreError};
use timestamp::Timestamp;
use tokio::time::timeout;
use wire::v1;

use changed::changed;
use forking::Forking;
pub use inherit::NewFork;
pub use limits::CheckpointBounds;
use record::{Checkpoint, ForkRequest, Inherited, PartCopy};
use table::{Table, no_such_checkpoint};

/// Checkpoints that are made at the same time. Each needs a process and reads many files.
const AT_ONCE: usize = 2;
/// Runs whose agents or settings may wait for a checkpoint at the same time.
const UNASKED_AT_ONCE: usize = 10_000;
/// Time for which a frozen run waits for calls that write files on the host.
const WRITES: Duration = Duration::from_secs(10);
/// Most processes that a checkpoint names.
const PROCESSES: usize = 100;

/// The checkpoints of the daemon.
pub struct Checkpoints {
    table: Arc<Table>,
    runs: Arc<Runs>,
    processes: Processes,
    audit: Arc<AuditLog>,
    quotas: Arc<Quotas>,
    bounds: CheckpointBounds,
    /// Free space that no checkpoint takes, bytes.
    warn_free: u64,
    /// One turn for each owner of runs.
    turns: Turns,
    /// One turn for each run, for checkpoints and restores of its agents, so that they delay their owner's requests by one.
    of_agents: Turns,
    forking: Forking,
    /// Checkpoints that are being made or deleted. Their trees are there, and they are not in the table.
    busy: Mutex<BTreeSet<CheckpointId>>,
    /// Held from the look at the limits until the new checkpoint is in the table.
    settling: tokio::sync::Mutex<()>,
    /// Causes for which no automatic checkpoint was made, by run.
    failing: Mutex<BTreeMap<RunId, String>>,
}

/// The cause of a deletion.
#[derive(Clone, Copy)]
pub(crate) enum Cause<'a> {
    Principal(&'a Principal),
    /// `max_age`.
    Age,
    /// The run was deleted.
    Run,
    /// A newer checkpoint needs its place.
    Newer,
}

/// Keeps the sweep from the tree of a checkpoint that is being made or deleted.
struct Busy<'a>(&'a Checkpoints, CheckpointId);

impl Busy<'_> {
    /// Deletes the trees of checkpoints that were taken out of the table. The sweep deletes those that a dropped future leaves.
    async fn delete_trees(taken: Vec<Self>) {
        for busy in taken {
            let Self(checkpoints, id) = &busy;
            remove_tree(checkpoints.runs.launcher.directories.checkpoint(*id)).await;
        }
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.lock().remove(&self.1);
    }
}

/// Copies of the directories of a frozen run.
struct Copied {
    frozen_at: Timestamp,
    frozen_for: Duration,
    parts: Vec<PartCopy>,
    processes: Vec<String>,
    /// Time since which the directory that takes the changes of forks should be unchanged.
    since: (i64, u32),
}

impl Checkpoints {
    /// Reads the checkpoints of the store, and keeps the bases that they need.
    pub fn open(
        (runs, audit, store): (Arc<Runs>, Arc<AuditLog>, Store),
        processes: Processes,
        (quotas, warn_free): (Arc<Quotas>, u64),
        bounds: CheckpointBounds,
    ) -> Result<Self, StoreError> {
        let table = Arc::new(Table::open(store)?);
        runs.set_checkpoints(table.clone());
        Ok(Self {
            table,
            runs,
            processes,
            audit,
            quotas,
            bounds,
            warn_free,
            turns: Turns::new(AT_ONCE),
            of_agents: Turns::new(UNASKED_AT_ONCE),
            forking: Forking::default(),
            busy: Mutex::default(),
            settling: tokio::sync::Mutex::default(),
            failing: Mutex::default(),
        })
    }

    /// Makes a checkpoint of a live run, whole or not at all. The caller lets it run to its end.
    pub async fn create(
        &self,
        request: v1::CheckpointRunRequest,
        principal: &Principal,
    ) -> Result<v1::RunCheckpoint, Refusal> {
        self.create_for(request, principal, None).await.map(|checkpoint| checkpoint.to_wire())
    }

    /// Makes a checkpoint, for a request to fork if there is one.
    async fn create_for(
        &self,
        request: v1::CheckpointRunRequest,
        principal: &Principal,
        requested: Option<ForkRequest>,
    ) -> Result<Checkpoint, Refusal> {
        let run = self.runs.of(RunId::parse(&request.run_id)?, principal)?;
        let label = record::label(request.label, self.audit.redactor())?;
        self.create_of(&run, (label, false), principal, requested).await
    }

    /// Makes a checkpoint of a run that the caller may use.
    async fn create_of(
        &self,
        run: &Record,
        (label, automatic): (String, bool),
        principal: &Principal,
        requested: Option<ForkRequest>,
    ) -> Result<Checkpoint, Refusal> {
        self.audit.check()?;
        let _turn = self.turn(run, automatic).await?;
        let living = self.runs.living_run(run.id)?;
        living.lanes_for_review()?;
        // Refuses a workspace that is not copied, before anything is recorded or frozen.
        drop(changed(&self.runs.launcher.directories, run)?);
        let most = self.most(run, automatic).await?;
        let _beneath = match run.spec.workspace.beneath() {
            Some(Beneath::Checkpoint(beneath)) => Some(self.table.keep(beneath)?),
            Some(Beneath::Base(_)) | None => None,
        };
        let id = CheckpointId::new();
        self.busy.lock().insert(id);
        let _busy = Busy(self, id);
        let begun = json!({ "action": "checkpoint", "phase": "begun", "checkpoint": id, "label": label });
        self.tell(run.id, principal, begun).await?;
        let made = self.make(id, run, (label, automatic), principal, most, requested).await;
        if let Err(refusal) = &made {
            let path = self.runs.launcher.directories.checkpoint(id);
            remove_tree(make::staging(&path)).await;
            remove_tree(path).await;
            let failed = json!({
                "action": "checkpoint", "phase": "failed", "checkpoint": id, "failure": refusal.message,
            });
            self.tell(run.id, principal, failed).await?;
        }
        made
    }

    /// Copies the run, and stores the copy as a checkpoint.
    async fn make(
        &self,
        id: CheckpointId,
        run: &Record,
        (label, automatic): (String, bool),
        principal: &Principal,
        most: TreeBounds,
        requested: Option<ForkRequest>,
    ) -> Result<Checkpoint, Refusal> {
        let path = self.runs.launcher.directories.checkpoint(id);
        let copied = self.copy(id, run, principal, most).await?;
        let Copied { frozen_at, frozen_for, parts, processes, since } = copied;
        make::place(&path).await?;
        let checkpoint = Checkpoint {
            id,
            run: run.id,
            principal: run.spec.principal.clone(),
            made_by: principal.name.clone(),
            created_at: frozen_at,
            frozen_us: u64::try_from(frozen_for.as_micros()).unwrap_or(u64::MAX),
            label,
            automatic,
            workspace: run.spec.workspace.clone(),
            image_id: run.started.as_ref().map(|started| started.image_id.clone()).unwrap_or_default(),
            parts,
            processes,
            since: Some(since),
            // Rules of its connections may have come since the request.
            inherited: Some(Inherited::of(&self.runs.get(run.id)?)),
            requested,
        };
        let mut displaced = Vec::new();
        let settled = self.settle(run, checkpoint, principal, &mut displaced).await;
        Busy::delete_trees(displaced).await;
        settled
    }

    /// Puts a checkpoint on record and into the table, one after the other, so that all of them are within the limits.
    ///
    /// `displaced` gets those that are deleted for it. Their trees can be large, so the caller deletes them when others can go on.
    async fn settle<'c>(
        &'c self,
        run: &Record,
        checkpoint: Checkpoint,
        principal: &Principal,
        displaced: &mut Vec<Busy<'c>>,
    ) -> Result<Checkpoint, Refusal> {
        let _settling = self.settling.lock().await;
        // Others may have been made meanwhile.
        self.room(run, checkpoint.automatic, checkpoint.bytes(), displaced).await?;
        self.tell(run.id, principal, done(&checkpoint)).await?;
        self.table.insert(checkpoint.clone()).await?;
        Ok(checkpoint)
    }

    /// Copies all parts of the run while its commands are frozen.
    async fn copy(
        &self,
        id: CheckpointId,
        run: &Record,
        principal: &Principal,
        most: TreeBounds,
    ) -> Result<Copied, Refusal> {
        let staging = make::staging(&self.runs.launcher.directories.checkpoint(id));
        make::begin(&staging)?;
        let hold = Hold::Checkpoint(id.to_string());
        let (frozen_at, began) = (Timestamp::now(), Instant::now());
        self.runs.hold(run.id, hold.clone(), Some(&principal.name)).await?;
        let copied = self.copy_frozen(&staging, run, most).await;
        self.runs.release_or_end(run.id, &hold).await;
        let (parts, processes, since) = copied?;
        Ok(Copied { frozen_at, frozen_for: began.elapsed(), parts, processes, since })
    }

    async fn copy_frozen(
        &self,
        staging: &std::path::Path,
        run: &Record,
        most: TreeBounds,
    ) -> Result<(Vec<PartCopy>, Vec<String>, (i64, u32)), Refusal> {
        let living = self.runs.living_run(run.id)?;
        if timeout(WRITES, living.writes_end()).await.is_err() {
            let message = format!(
                "a call that writes files did not end within {} s, so no checkpoint was made: try again",
                WRITES.as_secs()
            );
            return Err(Refusal::new(Reason::PreconditionFailed, message));
        }
        // Changes of a layer are as old as the run, or as its origin.
        let since = match run.changes_since() {
            Some(since) => since,
            None => make::clock(staging)?,
        };
        let changes = changed(&self.runs.launcher.directories, run).or_else(|why| ended_or(&living, why))?;
        let parts = parts::copy(staging, &changes, most).await.or_else(|why| ended_or(&living, why))?;
        // A run that ended meanwhile has lost its `/state` and its root, and not all of it was copied.
        living.lanes_for_review()?;
        Ok((parts, self.running(run.id), since))
    }

    /// Returns the ids of the processes and sessions that run.
    fn running(&self, run: RunId) -> Vec<String> {
        let all = self.processes.list(run, "").into_iter();
        let running = all.filter(|process| process.state() == v1::process::State::Running);
        running.map(|process| process.process_id).take(PROCESSES).collect()
    }

    /// Returns the bounds of one more checkpoint of the run.
    async fn most(&self, run: &Record, automatic: bool) -> Result<TreeBounds, Refusal> {
        let free = self.quotas.free().map_err(|error| Refusal::internal("looking at the disk", &error))?;
        let mut displaced = Vec::new();
        let bytes = self.room(run, automatic, 1, &mut displaced).await;
        Busy::delete_trees(displaced).await;
        let bytes = bytes?;
        let most = limits::most(bytes, free, self.warn_free);
        if most.files == 0 {
            return Err(limits::no_space());
        }
        Ok(most)
    }

    /// Returns a page of the checkpoints that `principal` may use, newest first, after `after`. Also returns whether there are more.
    pub fn list(
        &self,
        principal: &Principal,
        run: Option<RunId>,
        after: Option<CheckpointId>,
        size: usize,
    ) -> (Vec<v1::RunCheckpoint>, bool) {
        let table = self.table.lock();
        let newest_first = table.values().rev();
        let shown = newest_first.filter(|checkpoint| {
            principal.may_use(&checkpoint.principal)
                && run.is_none_or(|run| checkpoint.run == run)
                && after.is_none_or(|after| checkpoint.id < after)
        });
        let mut found: Vec<_> = shown.take(size + 1).map(Checkpoint::to_wire).collect();
        let more = found.len() > size;
        found.truncate(size);
        (found, more)
    }

    pub fn get(&self, id: CheckpointId, principal: &Principal) -> Result<v1::RunCheckpoint, Refusal> {
        self.table.of(id, principal).map(|checkpoint| checkpoint.to_wire())
    }

    pub async fn delete(&self, id: CheckpointId, principal: &Principal) -> Result<(), Refusal> {
        self.table.of(id, principal)?;
        self.remove(id, Cause::Principal(principal)).await
    }

    async fn remove(&self, id: CheckpointId, cause: Cause<'_>) -> Result<(), Refusal> {
        let taken = self.take_out(id, cause).await?;
        Busy::delete_trees(vec![taken]).await;
        Ok(())
    }

    /// Takes a checkpoint out of the table, on record. Its tree is still there.
    async fn take_out(&self, id: CheckpointId, cause: Cause<'_>) -> Result<Busy<'_>, Refusal> {
        // From here on no run begins on it.
        let taken = self.runs.if_unused(id, || {
            let mut table = self.table.lock();
            if self.table.is_used(id) {
                let message = "a run is being made from the checkpoint or restored to it: try again";
                return Err(Refusal::new(Reason::PreconditionFailed, message));
            }
            Ok(table.remove(&id).inspect(|_| {
                self.busy.lock().insert(id);
            }))
        });
        let checkpoint = taken.map_err(needed)??.ok_or_else(|| no_such_checkpoint(id))?;
        let busy = Busy(self, id);
        // Its row goes only after its record.
        let forgotten = match self.audit.record_removal(deleted(&checkpoint, cause)).await {
            Ok(()) => self.table.forget(id).await,
            Err(_) => Err(audit_service::Unavailable.into()),
        };
        if let Err(refusal) = forgotten {
            self.table.lock().insert(id, checkpoint);
            return Err(refusal);
        }
        Ok(busy)
    }

    /// Waits for a turn of the run's owner, in whose name all who may use the run work.
    async fn turn(&self, run: &Record, automatic: bool) -> Result<(Option<Turn>, Turn), Refusal> {
        let too_many =
            || Refusal::new(Reason::Overloaded, "too many checkpoints are being made; try again later");
        let of_agent = if automatic {
            Some(self.of_agents.wait(&run.id.to_string()).await.ok_or_else(too_many)?)
        } else {
            None
        };
        let own = self.turns.wait(&run.spec.principal).await.ok_or_else(too_many)?;
        Ok((of_agent, own))
    }

    async fn tell(&self, run: RunId, principal: &Principal, details: Value) -> Result<(), Refusal> {
        let event = Event::new(Kind::WorkspaceChange).run(run.to_string()).principal(&principal.name);
        let recorded = self.audit.record(event.details(details)).await;
        recorded.map(drop).map_err(|_| audit_service::Unavailable.into())
    }
}

/// Returns the refusal of a deletion, because the run is on the checkpoint, or a checkpoint of the run is.
fn needed(run: RunId) -> Refusal {
    let message = format!(
        "run {run} is on the checkpoint: stop it, accept or discard its changes, and delete its own checkpoints first"
    );
    Refusal::new(Reason::PreconditionFailed, message).with("run_id", run.to_string())
}

/// Refuses because the run has ended, if it has: the directories of such a run go meanwhile. Otherwise refuses because of `why`.
fn ended_or<T>(living: &runs::Run, why: Refusal) -> Result<T, Refusal> {
    living.lanes_for_review().and(Err(why))
}

fn done(checkpoint: &Checkpoint) -> Value {
    json!({
        "action": "checkpoint", "phase": "done", "checkpoint": checkpoint.id, "label": checkpoint.label,
        "digest": checkpoint.digest(), "bytes": checkpoint.bytes(), "files": checkpoint.files(),
        "parts": checkpoint.parts, "frozen_us": checkpoint.frozen_us, "processes": checkpoint.processes,
    })
}

fn deleted(checkpoint: &Checkpoint, cause: Cause<'_>) -> Event {
    let (by, cause) = match cause {
        Cause::Principal(principal) => (Some(&principal.name), "request"),
        Cause::Age => (None, "max_age"),
        Cause::Run => (None, "run_deleted"),
        Cause::Newer => (None, "newer"),
    };
    let details = json!({
        "action": "checkpoint", "phase": "deleted", "checkpoint": checkpoint.id, "digest": checkpoint.digest(),
        "bytes": checkpoint.bytes(), "owner": checkpoint.principal, "cause": cause,
    });
    let event = Event::new(Kind::WorkspaceChange).run(checkpoint.run.to_string()).details(details);
    match by {
        Some(by) => event.principal(by),
        None => event,
    }
}
