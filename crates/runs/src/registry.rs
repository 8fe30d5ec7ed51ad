//! All runs by id, and the channel that reports their changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::record::{Failed, Kept, Record, Spec, State, Workspace};
use admission::FairTurns;
use audit_service::AuditLog;
use identity::{DeletedTokens, Principal, RunId, run_of_token};
use operations::Reason;
use parking_lot::{Mutex, MutexGuard};
use policy::InForce;
use refusal::{Refusal, chain};
use store::Store;
use store::spool::Spool;
use tokio::sync::{Notify, broadcast, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::bases::Bases;
use crate::checkpoints::Checkpoints;
use crate::gate::Gate;
use crate::held::{is_over, takes_no_calls};
use crate::launch::Launcher;
use crate::refused::Refused;
use crate::run::{Command, Run};
use crate::shown_token::ShownToken;
use crate::stored;
use crate::way_out::Reviewers;
use ::leftovers::remove_tree;

/// Changes of state that a slow watcher may miss before it has to list the runs again.
const CHANGES: usize = 1_024;

/// Looks at changes and workspaces that happen at the same time.
const LOOKS: usize = 4;

/// Treatment of the runs when the daemon stops in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnStop {
    /// All runs end.
    End,
    /// Runs stay, without lanes, and the next daemon reattaches them.
    Leave,
}

impl OnStop {
    /// Returns the name that the configuration uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::Leave => "leave",
        }
    }
}

/// All runs of this daemon.
pub struct Runs {
    pub store: Store,
    pub(crate) audit: Arc<AuditLog>,
    pub launcher: Arc<Launcher>,
    pub tasks: TaskTracker,
    spool: Arc<Spool>,
    /// Turns of tenants to have changes and workspaces looked at. Each look needs a process and reads many files.
    pub(crate) looks: FairTurns,
    pub(crate) kept: Mutex<BTreeMap<RunId, Kept>>,
    pub(crate) bases: OnceLock<Arc<dyn Bases>>,
    pub(crate) checkpoints: OnceLock<Arc<dyn Checkpoints>>,
    settling: Mutex<BTreeSet<RunId>>,
    /// Notified when a turn to settle a run is over.
    pub(crate) settled: Notify,
    living: Mutex<BTreeMap<RunId, Arc<Run>>>,
    ended: Mutex<BTreeMap<RunId, Record>>,
    pub(crate) deleted_tokens: DeletedTokens,
    /// Shared pointers, because a channel keeps its last messages in place, and records are large.
    changes: broadcast::Sender<Arc<Record>>,
    pub(crate) limit: usize,
    pub(crate) max_ended: usize,
    pub(crate) gate: Arc<dyn Gate>,
    pub(crate) refused: Refused,
    /// Notified when the data of a run was removed.
    pub(crate) gone: Notify,
    /// Longest `ttl` of a run. A run that asks for none gets this one.
    pub(crate) max_ttl: Option<Duration>,
}

/// Limits on the number and age of runs.
#[derive(Debug, Clone, Copy)]
pub struct RunBounds {
    pub living: usize,
    /// Ended runs and workspaces of deleted ones, beyond which a tenant with an even share of them makes no further runs.
    pub ended: usize,
    pub max_ttl: Option<Duration>,
}

impl Runs {
    /// Loads the runs of the store. Also returns those that had not ended, so that the caller can reattach or end them.
    #[expect(
        clippy::disallowed_methods,
        reason = "whether the daemon made a directory; nothing in it is opened"
    )]
    pub async fn open(
        store: Store,
        audit: Arc<AuditLog>,
        launcher: Launcher,
        spool: Arc<Spool>,
        (bounds, gate): (RunBounds, Arc<dyn Gate>),
    ) -> Result<(Self, Vec<Record>), store::StoreError> {
        let mut earlier = Vec::new();
        let mut ended = BTreeMap::new();
        let mut kept: BTreeMap<_, _> =
            stored::workspaces(&store)?.into_iter().map(|workspace| (workspace.id, workspace)).collect();
        for record in stored::all(&store)? {
            if !record.state.has_ended() && record.started.is_none() {
                // The run was not completely made, and never used.
                launcher.directories.remove_workspace(record.id).await;
                store.delete_workspace(record.id)?;
                kept.remove(&record.id);
            }
            if record.layer().is_some() && !record.has_pending_changes() {
                // The changes were accepted or discarded. The removal may have been interrupted.
                remove_tree(launcher.directories.layer(&record.id.to_string())).await;
            }
            // Made by a daemon that did not record its workspaces.
            if let Some(workspace) = Kept::of(&record)
                && !kept.contains_key(&record.id)
                && launcher.directories.workspace(&record.id.to_string()).is_dir()
            {
                stored::insert_workspace(&store, &workspace)?;
                kept.insert(record.id, workspace);
            }
            if record.state.has_ended() {
                launcher.projects.left.expect(record.id, record.spec.limits.disk().bytes);
                ended.insert(record.id, record);
            } else {
                earlier.push(record);
            }
        }
        for (id, workspace) in kept.iter().filter(|(id, _)| !ended.contains_key(*id)) {
            launcher.projects.left.expect(*id, workspace.disk_bytes);
        }
        let runs = Self {
            store,
            looks: FairTurns::new(LOOKS),
            kept: Mutex::new(kept),
            bases: OnceLock::new(),
            checkpoints: OnceLock::new(),
            settling: Mutex::default(),
            settled: Notify::new(),
            audit,
            launcher: Arc::new(launcher),
            tasks: TaskTracker::new(),
            spool,
            living: Mutex::default(),
            ended: Mutex::new(ended),
            deleted_tokens: DeletedTokens::default(),
            changes: broadcast::Sender::new(CHANGES),
            limit: bounds.living,
            max_ended: bounds.ended,
            gate,
            refused: Refused::default(),
            gone: Notify::new(),
            max_ttl: bounds.max_ttl,
        };
        Ok((runs, earlier))
    }

    /// Keeps the pool of warm containers until the daemon stops.
    pub fn keep_pool(self: &Arc<Self>, in_force: InForce, stop: CancellationToken) {
        let runs = self.clone();
        let is_busy = move || runs.living().values().any(|run| run.is_waited_for());
        self.tasks.spawn(self.launcher.clone().keep_pool(in_force, is_busy, stop));
    }

    /// Waits until a run is gone. Several that go before the next wait count as one.
    pub async fn gone(&self) {
        self.gone.notified().await;
    }

    /// Returns all live runs.
    pub fn all_living(&self) -> Vec<(RunId, Arc<Run>)> {
        self.living().iter().map(|(id, run)| (*id, run.clone())).collect()
    }

    /// Returns a run that has ended.
    pub fn ended_record(&self, id: RunId) -> Option<Record> {
        self.ended().get(&id).cloned()
    }

    /// Returns a live run.
    pub fn living_run(&self, id: RunId) -> Result<Arc<Run>, Refusal> {
        if let Some(run) = self.living().get(&id) {
            return Ok(run.clone());
        }
        Err(is_over(&self.get(id)?))
    }

    /// Sends a command to the task of a live run, and returns its result.
    pub(crate) async fn ask<T>(
        &self,
        id: RunId,
        command: impl FnOnce(oneshot::Sender<Result<T, Refusal>>) -> Command,
    ) -> Result<T, Refusal> {
        let run = self.living_run(id)?;
        let (done, answer) = oneshot::channel();
        // A command that was not accepted comes back with `done`. It must be dropped first, or the wait for an answer never ends.
        let is_told = run.commands.send(command(done)).await.is_ok();
        match if is_told { answer.await.ok() } else { None } {
            Some(outcome) => outcome,
            None => {
                Err(self.get(id).map_or_else(|_| takes_no_calls(State::Stopped), |record| is_over(&record)))
            }
        }
    }

    /// Sets who is asked about connections of runs, once.
    pub fn ask_about_connections(&self, reviewers: Arc<dyn Reviewers>) {
        let _ = self.launcher.way_out.reviewers.set(reviewers);
    }

    pub fn get(&self, id: RunId) -> Result<Record, Refusal> {
        if let Some(run) = self.living().get(&id) {
            return Ok(run.record());
        }
        let ended = self.ended().get(&id).cloned();
        ended.ok_or_else(|| no_such_run(id))
    }

    /// Waits for the launch of a run. A launch that failed is an error, as it was for the first caller.
    pub async fn launched(&self, id: RunId) -> Result<Record, Refusal> {
        let run = self.living().get(&id).cloned();
        let record = match run {
            Some(run) => {
                let mut record = run.record.clone();
                // The sender is dropped with the run's task. Its last value stays readable.
                let _ = record.wait_for(|record| record.state != State::Creating).await;
                run.record()
            }
            None => self.get(id)?,
        };
        match &record.failure {
            Some(failure) if record.started.is_none() => {
                let message = format!("the run of this request failed: {failure}");
                let origin = record.failed.as_ref().map(Failed::origin).unwrap_or_default();
                let refused = Refusal { origin, ..Refusal::new(Reason::RunNotReady, message) };
                Err(refused.with("run_id", id.to_string()))
            }
            _ => Ok(record),
        }
    }

    /// Returns a run that `principal` may use. Other runs do not exist for it.
    pub fn of(&self, id: RunId, principal: &Principal) -> Result<Record, Refusal> {
        self.get(id).and_then(|record| {
            if may_use(principal, id, &record.spec) { Ok(record) } else { Err(no_such_run(id)) }
        })
    }

    /// Checks that `principal` may use the run. Every call does this, so it copies no record.
    pub fn check_use(&self, id: RunId, principal: &Principal) -> Result<(), Refusal> {
        let living = self.living().get(&id).map(|run| may_use(principal, id, &run.spec()));
        let ended = || {
            let of = |record: &Record| may_use(principal, id, &record.spec);
            self.ended().get(&id).is_some_and(of)
        };
        let usable = living.unwrap_or_else(ended);
        if usable { Ok(()) } else { Err(no_such_run(id)) }
    }

    /// Returns the live run that has this token, and its principal.
    pub fn of_token(&self, token: &str) -> Option<ShownToken> {
        let id = run_of_token(token)?;
        let run = self.living().get(&id).cloned()?;
        ShownToken::of(id, &run, token)
    }

    /// Returns true if this was the token of a run that has ended, or that was deleted or got another token lately.
    ///
    /// A retired token grants no access, and its use is no attack: MCP clients and the daemon's own endpoint for them do so.
    pub fn is_retired_token(&self, token: &str) -> bool {
        let hash = run_of_token(token)
            .and_then(|id| self.ended().get(&id).and_then(|record| record.token().cloned()));
        hash.is_some_and(|hash| hash.is_of(token)) || self.deleted_tokens.has(token)
    }

    /// Returns a run that `principal` may see. Other runs do not exist for it.
    pub fn shown_to(&self, id: RunId, principal: &Principal) -> Result<Record, Refusal> {
        self.get(id).and_then(
            |record| {
                if record.is_seen_by(principal) { Ok(record) } else { Err(no_such_run(id)) }
            },
        )
    }

    /// Returns all runs, newest first.
    pub fn list(&self) -> Vec<Record> {
        let mut records: Vec<_> = self.living().values().map(|run| run.record()).collect();
        records.extend(self.ended().values().cloned());
        records.sort_by_key(|record| std::cmp::Reverse(record.id));
        records
    }

    /// Returns the runs that `principal` may see, newest first: all of them, or the one that it requested with this id.
    pub async fn listed(&self, request_id: &str, principal: &Principal) -> Result<Vec<Record>, Refusal> {
        let mut records = self.list();
        if !request_id.is_empty() {
            let key = request_key(request_id, principal);
            let found = self.store.with(move |store| stored::by_request(store, &key)).await;
            let found = found.map_err(|error| Refusal::internal("looking a run up", &chain(&error)))?;
            // A name with spaces and an id can be those of another pair.
            let found = found.filter(|(record, _)| record.spec.principal == principal.name);
            records.retain(|record| found.as_ref().is_some_and(|(found, _)| found.id == record.id));
        }
        records.retain(|record| record.is_seen_by(principal));
        Ok(records)
    }

    /// Subscribes to changes from now on.
    pub fn changes(&self) -> broadcast::Receiver<Arc<Record>> {
        self.changes.subscribe()
    }

    /// Ends a run, and waits until none of its processes can run or write. The container is removed later.
    ///
    /// A run that has ended already is no error.
    pub async fn stop(&self, id: RunId) -> Result<Record, Refusal> {
        let run = self.living().get(&id).cloned();
        if let Some(run) = run {
            run.stopping.cancel();
            let (done, answer) = oneshot::channel();
            if run.commands.send(Command::Stop(done)).await.is_ok() {
                let _ = answer.await;
            }
        }
        self.get(id)
    }

    /// Deletes a run that has ended.
    ///
    /// Its workspace and the changes of its overlay are deleted only `with_workspace`. Otherwise changes that are neither accepted nor
    /// discarded are an error.
    pub async fn delete(
        &self,
        id: RunId,
        with_workspace: bool,
        principal: &Principal,
    ) -> Result<(), Refusal> {
        let _settling = self.settle(id).await;
        let mut record = self.get(id)?;
        if !record.state.has_ended() {
            return Err(Refusal::new(Reason::PreconditionFailed, "the run has not ended: stop it first"));
        }
        if record.has_pending_changes() {
            if !with_workspace {
                return Err(Refusal::new(
                    Reason::PreconditionFailed,
                    "the run has changes that are neither accepted nor discarded: settle them first, or delete them too",
                ));
            }
            self.discard_settled(&mut record, principal).await?;
        }
        let kept = self.kept().get(&id).cloned();
        if let Some(kept) = kept.filter(|_| with_workspace) {
            self.delete_kept(&kept, principal).await?;
        }
        let run = id.to_string();
        let directories = &self.launcher.directories;
        remove_tree(directories.run_state(&run)).await;
        remove_tree(directories.run_log(&run)).await;
        remove_tree(directories.recordings(&run)).await;
        remove_tree(directories.processes(&run)).await;
        remove_tree(directories.private(&run)).await;
        remove_tree(directories.egress(&run)).await;
        self.spool.remove_run(id).await;
        let deleted = self.store.with(move |store| store.retire_run(id)).await;
        deleted.map_err(|error| Refusal::internal("forgetting the run", &chain(&error)))?;
        // This order ensures that the token is always in at least one of the two tables.
        self.deleted_tokens.keep(record.token().cloned());
        self.audit.redactor().forget(&run);
        self.launcher.way_out.outside.shared().ledger.forget(&run);
        self.ended().remove(&id);
        self.launcher.projects.settle(id);
        Ok(())
    }

    /// Stops accepting runs, and ends the existing ones or leaves them for the next daemon.
    pub async fn shutdown(&self, on_stop: OnStop) {
        self.tasks.close();
        let runs: Vec<_> = self.living().values().cloned().collect();
        futures_util::future::join_all(runs.iter().map(|run| async {
            // A launch could wait for longer than the daemon has.
            run.stopping.cancel();
            let (done, answer) = oneshot::channel();
            let command = match on_stop {
                OnStop::End => Command::Stop(done),
                OnStop::Leave => Command::Leave(done),
            };
            if run.commands.send(command).await.is_ok() {
                let _ = answer.await;
            }
        }))
        .await;
        self.tasks.wait().await;
    }

    /// Moves a run whose task is over to the ended runs.
    pub(crate) fn has_ended(&self, record: &Record) {
        // This order ensures that the run is always in at least one of the two tables. Its quota counts from before it leaves the living ones
        // until its files are measured, for which it has to be among the ended ones.
        self.ended().insert(record.id, record.clone());
        let (left, most) = (&self.launcher.projects.left, record.spec.limits.disk().bytes);
        left.expect(record.id, most);
        if let Workspace::Kept { workspace } = record.spec.workspace {
            left.expect(workspace, most);
        }
        self.living().remove(&record.id);
    }

    pub(crate) fn changed(&self, record: Record) {
        // An error means that there are no watchers.
        let _ = self.changes.send(Arc::new(record));
    }

    pub(crate) fn living(&self) -> MutexGuard<'_, BTreeMap<RunId, Arc<Run>>> {
        self.living.lock()
    }

    /// Returns the live run that uses a kept workspace.
    pub(crate) fn user_of(&self, workspace: RunId) -> Option<RunId> {
        user_among(&self.living(), workspace)
    }

    pub(crate) fn settling(&self) -> MutexGuard<'_, BTreeSet<RunId>> {
        self.settling.lock()
    }

    pub(crate) fn ended(&self) -> MutexGuard<'_, BTreeMap<RunId, Record>> {
        self.ended.lock()
    }
}

pub(crate) fn user_among(living: &BTreeMap<RunId, Arc<Run>>, workspace: RunId) -> Option<RunId> {
    let uses = |id: &RunId, run: &Arc<Run>| {
        *id == workspace
            || matches!(run.spec().workspace, Workspace::Kept { workspace: kept } if kept == workspace)
    };
    living.iter().find(|(id, run)| uses(id, run)).map(|(id, _)| *id)
}

/// Returns the key of a request. Each principal has separate ids, so none can take another's or find out which exist.
pub fn request_key(request_id: &str, principal: &Principal) -> String {
    if request_id.is_empty() { String::new() } else { format!("{} {request_id}", principal.name) }
}

fn may_use(principal: &Principal, id: RunId, spec: &Spec) -> bool {
    principal.may_use_run(id, &spec.profile, &spec.principal)
}

fn no_such_run(id: RunId) -> Refusal {
    // The message does not reveal whether another principal has such a run.
    Refusal::absent("run", id, "there is no such run, or it is another user's")
}
