//! The runs that there are, by id, and who may be told about changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use audit::{Event, Kind};
use audit_service::AuditLog;
use containers::Access;
use gateway::Profile;
use gateway::policy::WorkspaceMode;
use identity::{DeletedTokens, Principal, RunId, run_of_token};
use ops::Reason;
use refusal::{Refusal, chain};
use store::Store;
use store::run::{Kept, Record, Spec, State, Workspace};
use store::spool::Spool;
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot, watch};
use tokio_util::task::TaskTracker;

use super::launch::{Launcher, Wanted};
use super::remove::remove_tree;
use super::run::{Run, takes_no_calls};
use super::task::{self, Command, Shared};

/// Changes of state that a slow watcher may be behind before it is told to look again.
const CHANGES: usize = 1_024;

/// Looks at changes and workspaces at the same time.
const LOOKS: usize = 4;

/// What becomes of runs when the daemon stops in good order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnStop {
    /// They end.
    End,
    /// They stay, without lanes, and the next daemon takes them over.
    Leave,
}

impl OnStop {
    /// As the configuration names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::Leave => "leave",
        }
    }
}

/// All runs of this daemon.
pub(crate) struct Runs {
    pub(crate) store: Store,
    pub(crate) audit: Arc<AuditLog>,
    pub(crate) launcher: Arc<Launcher>,
    pub(crate) tasks: TaskTracker,
    spool: Arc<Spool>,
    /// Looks at changes and workspaces: each takes a process, and reads much.
    pub(super) looks: Semaphore,
    pub(super) kept: Mutex<BTreeMap<RunId, Kept>>,
    settling: Mutex<BTreeSet<RunId>>,
    living: Mutex<BTreeMap<RunId, Arc<Run>>>,
    ended: Mutex<BTreeMap<RunId, Record>>,
    deleted_tokens: DeletedTokens,
    changes: broadcast::Sender<Record>,
    limit: usize,
}

impl Runs {
    /// With the runs that the store has. Those that had not ended come back: somebody has to see what became of them.
    #[expect(
        clippy::disallowed_methods,
        reason = "whether the daemon made a directory; nothing in it is opened"
    )]
    pub(crate) async fn open(
        store: Store,
        audit: Arc<AuditLog>,
        launcher: Launcher,
        spool: Arc<Spool>,
        limit: usize,
    ) -> Result<(Self, Vec<Record>), store::StoreError> {
        let mut former = Vec::new();
        let mut ended = BTreeMap::new();
        let mut kept: BTreeMap<_, _> =
            store.workspaces()?.into_iter().map(|workspace| (workspace.id, workspace)).collect();
        for record in store.runs()? {
            if !record.state.has_ended() && record.started.is_none() {
                // Half made, and never used.
                launcher.directories.remove_workspace(record.id).await;
                store.delete_workspace(record.id)?;
                kept.remove(&record.id);
            }
            if record.layer().is_some() && !record.has_pending_changes() {
                // Accepted or discarded; its removal may have been interrupted.
                remove_tree(launcher.directories.layer(&record.id.to_string())).await;
            }
            // Made by a daemon that kept no list.
            if let Some(workspace) = Kept::of(&record)
                && !kept.contains_key(&record.id)
                && launcher.directories.workspace(&record.id.to_string()).is_dir()
            {
                store.insert_workspace(&workspace)?;
                kept.insert(record.id, workspace);
            }
            if record.state.has_ended() {
                ended.insert(record.id, record);
            } else {
                former.push(record);
            }
        }
        let runs = Self {
            store,
            looks: Semaphore::new(LOOKS),
            kept: Mutex::new(kept),
            settling: Mutex::default(),
            audit,
            launcher: Arc::new(launcher),
            tasks: TaskTracker::new(),
            spool,
            living: Mutex::default(),
            ended: Mutex::new(ended),
            deleted_tokens: DeletedTokens::default(),
            changes: broadcast::Sender::new(CHANGES),
            limit,
        };
        Ok((runs, former))
    }

    /// Makes a run and waits until it is READY. The launch goes on when the caller goes away.
    pub(crate) async fn create(
        self: &Arc<Self>,
        id: RunId,
        mut spec: Spec,
        profile: &Profile,
        principal: &Arc<Principal>,
        request: Option<(String, Vec<u8>)>,
    ) -> Result<Record, Refusal> {
        // The limit that will be in force is the one to show.
        spec.limits.cpu_millis = containers::cpu_limit(spec.limits.cpu_millis, self.launcher.host.cpus);
        let record = Record::new(id, spec);
        let wanted = wanted(profile, &record.spec)?;
        let (record_sender, record_receiver) = watch::channel(record.clone());
        let (commands, command_receiver) = mpsc::channel(8);
        let run = Arc::new(Run::new(record_receiver, commands, Duration::ZERO));
        if let Workspace::Kept { workspace } = record.spec.workspace {
            // Nobody deletes it in between.
            let _settling = self.settle(workspace)?;
            self.check_kept(workspace, principal)?;
            self.admit(id, &run)?;
        } else {
            self.admit(id, &run)?;
        }

        let inserted = record.clone();
        let stored = self.store.with(move |store| {
            store.insert_run(&inserted, request.as_ref().map(|(id, digest)| (id.as_str(), digest.as_slice())))
        });
        if let Err(error) = stored.await {
            self.living().remove(&id);
            return Err(if error.is_conflict() {
                Refusal::new(
                    Reason::AlreadyExists,
                    "request_id: a run is being made under this id at this moment",
                )
            } else {
                Refusal::internal("keeping the run", &chain(&error))
            });
        }
        if let Err(refusal) = self.keep_workspace(&record).await {
            self.living().remove(&id);
            let _ = self.store.with(move |store| store.delete_run(id)).await;
            return Err(refusal);
        }
        let event = Event::new(Kind::RunCreated)
            .run(id.to_string())
            .principal(&record.spec.principal)
            .agent(&record.spec.agent_id)
            .role(&record.spec.role)
            .details(serde_json::json!({
                "profile": record.spec.profile,
                "image": record.spec.image,
                "workspace": record.spec.workspace,
                "labels": record.spec.labels,
                "token": record.spec.token.is_some(),
            }));
        let recorded = self.audit.record(event).await;
        if recorded.is_err() {
            let _ = self.forget_workspace(id).await;
            self.living().remove(&id);
            let _ = self.store.with(move |store| store.delete_run(id)).await;
            return Err(audit_service::Unavailable.into());
        }

        let (ready, answer) = oneshot::channel();
        let shared = Shared {
            runs: self.clone(),
            run: run.clone(),
            record: record_sender,
            lanes: run.lanes.clone(),
            commands: command_receiver,
        };
        self.tasks.spawn(task::own(shared, wanted, principal.clone(), ready));
        answer
            .await
            .map_err(|_| Refusal::new(Reason::Internal, "the run's task ended before it was ready"))?
    }

    fn admit(&self, id: RunId, run: &Arc<Run>) -> Result<(), Refusal> {
        if self.tasks.is_closed() {
            return Err(Refusal::new(Reason::Overloaded, "the daemon is stopping and makes no more runs"));
        }
        let mut living = self.living();
        if living.len() >= self.limit {
            return Err(Refusal::new(
                Reason::Overloaded,
                format!("{} runs live already, which is the daemon's limit: stop one first", self.limit),
            ));
        }
        if living.contains_key(&id) || self.ended().contains_key(&id) {
            return Err(Refusal::new(Reason::AlreadyExists, "run_id: there is a run with this id already"));
        }
        if let Workspace::Kept { workspace } = run.spec().workspace
            && let Some(user) = user_among(&living, workspace)
        {
            return Err(Refusal::new(
                Reason::PreconditionFailed,
                format!("workspace.managed.workspace_id: run {user} uses it: stop it first"),
            ));
        }
        living.insert(id, run.clone());
        Ok(())
    }

    /// All that live.
    pub(crate) fn all_living(&self) -> Vec<(RunId, Arc<Run>)> {
        self.living().iter().map(|(id, run)| (*id, run.clone())).collect()
    }

    /// Some that have ended, and are not among `known`.
    pub(crate) fn ended_but(&self, known: &BTreeSet<RunId>, most: usize) -> Vec<Record> {
        let ended = self.ended();
        ended.values().filter(|record| !known.contains(&record.id)).take(most).cloned().collect()
    }

    /// A run that lives.
    pub(crate) fn living_run(&self, id: RunId) -> Result<Arc<Run>, Refusal> {
        if let Some(run) = self.living().get(&id) {
            return Ok(run.clone());
        }
        Err(takes_no_calls(self.get(id)?.state))
    }

    pub(crate) fn get(&self, id: RunId) -> Result<Record, Refusal> {
        if let Some(run) = self.living().get(&id) {
            return Ok(run.record());
        }
        let ended = self.ended().get(&id).cloned();
        ended.ok_or_else(no_such_run)
    }

    /// A run whose launch is over. A launch that failed is an error, as it was for whoever asked first.
    pub(crate) async fn launched(&self, id: RunId) -> Result<Record, Refusal> {
        let run = self.living().get(&id).cloned();
        let record = match run {
            Some(run) => {
                let mut record = run.record.clone();
                // The sender goes with the run's task; its last word stays readable.
                let _ = record.wait_for(|record| record.state != State::Creating).await;
                run.record()
            }
            None => self.get(id)?,
        };
        match &record.failure {
            Some(failure) if record.started.is_none() => {
                Err(Refusal::new(Reason::RunNotReady, format!("the run of this request failed: {failure}"))
                    .with("run_id", id.to_string()))
            }
            _ => Ok(record),
        }
    }

    /// A run that `principal` may use. To others it does not exist.
    pub(crate) fn of(&self, id: RunId, principal: &Principal) -> Result<Record, Refusal> {
        self.get(id).and_then(|record| {
            if principal.may_use_run(id, &record.spec.principal) { Ok(record) } else { Err(no_such_run()) }
        })
    }

    /// Whether `principal` may use the run, at the cost of a look: every call asks.
    pub(crate) fn check_use(&self, id: RunId, principal: &Principal) -> Result<(), Refusal> {
        let living = self.living().get(&id).map(|run| principal.may_use_run(id, &run.spec().principal));
        let ended = || {
            let of = |record: &Record| principal.may_use_run(id, &record.spec.principal);
            self.ended().get(&id).is_some_and(of)
        };
        let usable = living.unwrap_or_else(ended);
        if usable { Ok(()) } else { Err(no_such_run()) }
    }

    /// The living run whose token this is, and whom it acts for.
    pub(crate) fn of_token(&self, token: &str) -> Option<(RunId, String)> {
        let id = run_of_token(token)?;
        let run = self.living().get(&id).cloned()?;
        let spec = run.spec();
        let is_its = spec.token.as_ref().is_some_and(|hash| hash.is_of(token));
        is_its.then(|| (id, spec.principal.clone()))
    }

    /// Whether this was the token of a run that has ended, or was deleted lately. Showing it opens nothing, and is no attempt at
    /// anything either: MCP clients do so, and the daemon's own endpoint for them.
    pub(crate) fn is_former_token(&self, token: &str) -> bool {
        let hash = run_of_token(token)
            .and_then(|id| self.ended().get(&id).map(|record| record.spec.token.clone()))
            .flatten();
        hash.is_some_and(|hash| hash.is_of(token)) || self.deleted_tokens.has(token)
    }

    /// A run that `principal` may look at. To others it does not exist.
    pub(crate) fn shown_to(&self, id: RunId, principal: &Principal) -> Result<Record, Refusal> {
        self.get(id).and_then(|record| {
            if principal.may_see(&record.spec.principal) { Ok(record) } else { Err(no_such_run()) }
        })
    }

    /// All of them, newest first.
    pub(crate) fn list(&self) -> Vec<Record> {
        let mut records: Vec<_> = self.living().values().map(|run| run.record()).collect();
        records.extend(self.ended().values().cloned());
        records.sort_by_key(|record| std::cmp::Reverse(record.id));
        records
    }

    /// Changes from now on.
    pub(crate) fn changes(&self) -> broadcast::Receiver<Record> {
        self.changes.subscribe()
    }

    /// Ends a run and waits until everything of it is gone. One that has ended already is no error.
    pub(crate) async fn stop(&self, id: RunId) -> Result<Record, Refusal> {
        let run = self.living().get(&id).cloned();
        if let Some(run) = run {
            let (done, answer) = oneshot::channel();
            if run.commands.send(Command::Stop(done)).await.is_ok() {
                let _ = answer.await;
            }
        }
        self.get(id)
    }

    /// Forgets a run that has ended. Its workspace and the changes of its overlay go only `with_workspace`; changes that
    /// are neither accepted nor discarded keep it otherwise.
    pub(crate) async fn delete(
        &self,
        id: RunId,
        with_workspace: bool,
        principal: &Principal,
    ) -> Result<(), Refusal> {
        let _settling = self.settle(id)?;
        let mut record = self.get(id)?;
        if !record.state.has_ended() {
            return Err(Refusal::new(Reason::PreconditionFailed, "the run lives: stop it first"));
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
        remove_tree(directories.private(&run)).await;
        self.spool.remove_run(id).await;
        let deleted = self.store.with(move |store| store.delete_run(id)).await;
        deleted.map_err(|error| Refusal::internal("forgetting the run", &chain(&error)))?;
        // In this order, so that it is never in neither.
        self.deleted_tokens.keep(record.spec.token.take());
        self.ended().remove(&id);
        self.launcher.projects.settle(id);
        Ok(())
    }

    /// Takes no more runs, and ends those that there are or leaves them for the next daemon.
    pub(crate) async fn shutdown(&self, on_stop: OnStop) {
        self.tasks.close();
        let runs: Vec<_> = self.living().values().cloned().collect();
        futures_util::future::join_all(runs.iter().map(|run| async {
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

    /// A run's task is over.
    pub(super) fn has_ended(&self, record: &Record) {
        // In this order, so that it is never in neither.
        self.ended().insert(record.id, record.clone());
        self.living().remove(&record.id);
    }

    pub(super) fn changed(&self, record: Record) {
        // Nobody watches: nothing to tell.
        let _ = self.changes.send(record);
    }

    pub(super) fn living(&self) -> MutexGuard<'_, BTreeMap<RunId, Arc<Run>>> {
        self.living.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The living run that uses a kept workspace.
    pub(super) fn user_of(&self, workspace: RunId) -> Option<RunId> {
        user_among(&self.living(), workspace)
    }

    pub(super) fn settling(&self) -> MutexGuard<'_, BTreeSet<RunId>> {
        self.settling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ended(&self) -> MutexGuard<'_, BTreeMap<RunId, Record>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn user_among(living: &BTreeMap<RunId, Arc<Run>>, workspace: RunId) -> Option<RunId> {
    let uses = |id: &RunId, run: &Arc<Run>| {
        *id == workspace
            || matches!(run.spec().workspace, Workspace::Kept { workspace: kept } if kept == workspace)
    };
    living.iter().find(|(id, run)| uses(id, run)).map(|(id, _)| *id)
}

fn no_such_run() -> Refusal {
    Refusal::new(Reason::NotFound, "there is no such run").with("resource", "run")
}

/// The profile's container, with what the client lowered.
pub(super) fn wanted(profile: &Profile, spec: &Spec) -> Result<Wanted, Refusal> {
    let image = match spec.image.as_str() {
        "" => None,
        image => {
            Some(containers::ImageReference::parse(image).map_err(|error| Refusal::invalid("image", error))?)
        }
    };
    Ok(Wanted {
        hardening: containers::Hardening {
            memory_bytes: spec.limits.memory_bytes,
            cpu_millis: spec.limits.cpu_millis,
            pids: spec.limits.pids,
            open_files: u64::from(spec.limits.open_files),
            file_size_bytes: spec.limits.file_size_bytes,
            tmp_bytes: profile.limits.tmp_mib << 20,
            runtime: profile.runtime.clone(),
        },
        image,
        workspace_access: match profile.workspace {
            WorkspaceMode::ReadOnly => Access::ReadOnly,
            WorkspaceMode::ReadWrite => Access::ReadWrite,
        },
    })
}
