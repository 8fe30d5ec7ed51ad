//! Sorts the runs that a previous daemon left, before the first client is admitted. Unchanged runs are reattached, and all others are
//! removed.
//!
//! ```text
//!  READY ──────► as launched? ──yes──► READY, adopted
//!                     └──no──► container and mounts removed ──► FAILED
//!  its time is over, STOPPING ──► removed ──► STOPPED or FAILED
//!  CREATING ──► removed with its record: the unanswered request makes it again when it is repeated
//!  containers and mounts of no run ──► removed
//! ```
//!
//! No container keeps the daemon from serving. If the engine does not answer for a container within seconds, its run fails, and its removal
//! continues in the background.
//!
//! Runs of another instance's daemon have another label and are ignored.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::record::{EndCause, Record, State};
use containers::{KillMethod, LeftoversEnded};
use futures_util::StreamExt as _;
use identity::{CallId, RunId};
use operations::{Reason, ToolFailure};
use parking_lot::Mutex;
use policy::Policy;
use refusal::chain;
use serde_json::json;
use timestamp::{Timestamp, micros};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use crate::adopt::{Adopted, Mismatch, lost, terms};
use crate::launch::Wanted;
use crate::recover::recover;
use crate::registry::Runs;
use crate::run::Run;
use crate::shared::Shared;
use crate::stored;
use crate::task;
use ::leftovers::remove_tree;

/// Runs that are checked, or containers that are removed, at the same time.
pub(crate) const AT_ONCE: usize = 8;

/// Time without progress after which the runs whose checks have not ended are given up.
///
/// An engine answers at once, but on a host that is busy with thousands of processes it took more than three seconds. A daemon that
/// starts late costs less than a run. It is shorter than the time that one question to the engine has.
const PATIENCE: Duration = Duration::from_secs(12);

/// Time without progress after which removals go on in the background.
///
/// An idle engine takes a third of a second to remove a container.
pub(crate) const PROGRESS: Duration = Duration::from_secs(3);

/// Most cgroups that the record of a reattached run names.
const NAMED: usize = 32;

/// Failure of a run that is given up.
const UNANSWERED: &str = "the engine does not answer for its container";

/// Runs that were reattached, and the processes that were ended in each.
#[derive(Default)]
pub struct TakenOver(BTreeMap<RunId, LeftoversEnded>);

impl TakenOver {
    /// Returns a value for runs in which no process had to be ended.
    pub fn of(runs: impl IntoIterator<Item = RunId>) -> Self {
        Self(runs.into_iter().map(|run| (run, LeftoversEnded::default())).collect())
    }

    /// Returns true if the run was reattached.
    pub fn has(&self, run: RunId) -> bool {
        self.0.contains_key(&run)
    }

    /// Returns how the processes of a previous daemon's call were ended, for its receipt.
    ///
    /// They are the processes of the call's own cgroup. If that is not known, they are all of the run's.
    pub fn evidence(&self, run: RunId, call: CallId) -> Option<serde_json::Value> {
        let ended = self.0.get(&run)?;
        let own = format!("call-{call}");
        let own = ended.leaves.iter().find(|leaf| leaf.name == own);
        Some(match own {
            Some(leaf) => json!({
                "ended": leaf.evidence.ended,
                "left": leaf.evidence.left,
                "method": method(leaf.evidence.how),
                "took_us": micros(leaf.evidence.took),
            }),
            None => evidence(ended),
        })
    }
}

fn method(how: KillMethod) -> &'static str {
    match how {
        KillMethod::CgroupKill => "cgroup-v2-kill",
        KillMethod::Freezer => "cgroup-v1-freezer",
    }
}

/// Returns the processes that were ended in a run that was reattached.
fn evidence(ended: &LeftoversEnded) -> serde_json::Value {
    let in_leaves: u32 = ended.leaves.iter().map(|leaf| leaf.evidence.ended).sum();
    let named = ended.leaves.iter().take(NAMED);
    let took: Duration = ended.leaves.iter().map(|leaf| leaf.evidence.took).sum();
    let leaves: serde_json::Map<_, _> =
        named.map(|leaf| (leaf.name.clone(), json!(leaf.evidence.ended))).collect();
    json!({
        "ended": in_leaves + ended.others,
        "left": ended.left,
        "method": ended.leaves.first().map_or("signal", |leaf| method(leaf.evidence.how)),
        "took_us": micros(took),
        "cgroups": leaves,
    })
}

/// Reasons that a run of a previous daemon ends.
enum End {
    /// The run never took a call, and no client was told that it exists.
    Unmade,
    /// The run reached a limit of its time.
    Stopped(EndCause),
    Failed(Box<ToolFailure>),
}

impl Runs {
    /// Reattaches the runs of `earlier` that can be reattached, and removes all others. None of them is in the tables yet.
    ///
    /// `used` has the time of each run's last use, if it is known. `processes` names the cgroups of processes that outlive a daemon.
    /// If `may_lose` returns false, a run that would fail is an error instead, and the previous daemon can go on with all runs.
    pub async fn take_over(
        self: &Arc<Self>,
        earlier: Vec<Record>,
        policy: &Policy,
        used: &BTreeMap<RunId, Timestamp>,
        mut processes: BTreeMap<RunId, BTreeSet<String>>,
        may_lose: impl Fn() -> bool,
    ) -> anyhow::Result<TakenOver> {
        let count = earlier.len();
        if count > 0 {
            tracing::info!(runs = count, "reattaching the runs of the previous daemon");
        }
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        let (mut looks, mut pending) = (JoinSet::new(), HashMap::new());
        for record in earlier {
            let (runs, slots) = (self.clone(), slots.clone());
            let spared = processes.remove(&record.id).unwrap_or_default();
            let idle = idle(&record, used);
            let terms = match due(&record, idle) {
                Some(end) => Err(end),
                None => self.terms(policy, &record).await.map_err(|why| End::Failed(Box::new(lost(why)))),
            };
            pending.insert(record.id, record.clone());
            looks.spawn(async move {
                let _slot = slots.acquire().await;
                let adopted = match terms {
                    Ok(wanted) => match runs.launcher.adopt(&record, &wanted, spared).await {
                        Ok(adopted) => Ok(adopted),
                        Err(why) => Err(End::Failed(runs.launcher.lost(&record, &wanted, why).await)),
                    },
                    Err(end) => Err(end),
                };
                (record, idle, adopted)
            });
        }
        let (mut taken, mut living, mut over) = (BTreeMap::new(), Vec::new(), Vec::new());
        while let Ok(Some(looked)) = tokio::time::timeout(PATIENCE, looks.join_next()).await {
            let (record, idle, adopted) = looked?;
            pending.remove(&record.id);
            match adopted {
                Ok(adopted) => {
                    taken.insert(record.id, adopted.ended.clone());
                    living.push((record, idle, adopted));
                }
                Err(end) => over.push((record, end)),
            }
        }
        looks.shutdown().await;
        let failing = over.iter().find_map(|(record, end)| match end {
            End::Failed(failure) => Some((record.id, failure.message.as_str())),
            _ => None,
        });
        if let Some((run, why)) = failing.or_else(|| pending.keys().next().map(|run| (*run, UNANSWERED)))
            && !may_lose()
        {
            for (_, _, adopted) in living {
                adopted.resources.leave();
            }
            anyhow::bail!("run {run} would end: {why}");
        }
        let unanswered: BTreeSet<_> = pending.values().filter_map(Record::made_as).collect();
        over.extend(
            pending.into_values().map(|record| (record, End::Failed(Box::new(lost(UNANSWERED.to_owned()))))),
        );
        let containers = living.iter().flat_map(|(_, _, adopted)| adopted.resources.containers()).collect();
        self.remove_others(&containers, &unanswered).await?;
        let beside: BTreeSet<RunId> =
            living.iter().flat_map(|(record, _, _)| record.companions_made_as()).collect();
        let made_as = living.iter().filter_map(|(record, _, _)| record.made_as());
        self.clean_others(made_as.chain(beside.iter().copied()).collect()).await?;
        self.remove_roots(&taken.keys().copied().chain(beside).collect()).await;
        for (record, end) in over {
            self.is_over(record, end).await?;
        }
        let taken = TakenOver(taken);
        let ended = self.ended().values().cloned().collect();
        recover(ended, &self.launcher.directories, &self.launcher.roots, |run| taken.has(run)).await;
        // A run whose connections are opened waits for its process.
        let without_way_out = Mutex::new(None);
        let given_up = |run: RunId, why: &str| {
            let gives_up = !may_lose();
            if gives_up {
                without_way_out.lock().get_or_insert_with(|| format!("run {run} would end: {why}"));
            }
            gives_up
        };
        futures_util::stream::iter(living)
            .for_each_concurrent(AT_ONCE, |(record, idle, adopted)| {
                self.goes_on(record, idle, adopted, &given_up)
            })
            .await;
        if let Some(why) = without_way_out.into_inner() {
            anyhow::bail!(why);
        }
        if count > 0 {
            tracing::info!(
                adopted = taken.0.len(),
                ended = count - taken.0.len(),
                "the runs from before the restart were examined"
            );
        }
        Ok(taken)
    }

    /// Checks a run against the policy. Also hides the secret values of its variables, and of its companions', from now on.
    async fn terms(&self, policy: &Policy, record: &Record) -> Result<Wanted, Mismatch> {
        let id = record.id;
        let mut secrets = self.store.with(move |store| store.secrets(id)).await.map_err(|error| {
            tracing::error!(run = %id, error = %chain(&error), "the secret variables of a run cannot be opened");
            "the values of its secret variables cannot be opened".to_owned()
        })?;
        self.audit.redactor().learn(&id.to_string(), secrets.values().map(String::as_str));
        secrets.retain(|name, _| record.spec.secret_env.contains(name));
        terms(policy, &self.store, record, &secrets)
    }

    /// Records the end of a run that is not reattached and whose container and mounts are gone.
    async fn is_over(&self, mut record: Record, end: End) -> anyhow::Result<()> {
        let mut details = json!({});
        let unmade = matches!(end, End::Unmade);
        match end {
            End::Unmade => record.enter(
                State::Failed,
                Some(ToolFailure::new(
                    Reason::DaemonStopping,
                    "the daemon ended while the run was being created; repeat the request to create it",
                )),
            ),
            End::Stopped(cause) => {
                record.end_cause = Some(cause);
                details["cause"] = cause.as_str().into();
                record.enter(State::Stopped, None);
            }
            End::Failed(failure) => {
                let why = &failure.message;
                tracing::warn!(run = %record.id, why, "a run from before the restart is not taken over");
                let message = format!(
                    "the daemon ended during the run, and the next daemon could not take it over: {why}"
                );
                record.enter(State::Failed, Some(ToolFailure { message, ..*failure }));
            }
        }
        details["state"] = record.state.as_str().into();
        record.explain_failure(&mut details);
        let event = record.event(details);
        let stored = if unmade {
            tracing::warn!(run = %record.id, "a run whose creation was not finished before the restart is removed");
            let run = record.id.to_string();
            remove_tree(self.launcher.directories.run_state(&run)).await;
            remove_tree(self.launcher.directories.run_log(&run)).await;
            remove_tree(self.launcher.directories.private(&run)).await;
            remove_tree(self.launcher.directories.egress(&run)).await;
            let id = record.id;
            self.store.with(move |store| store.delete_run(id)).await
        } else {
            stored::update(&self.store, &record).await
        };
        stored.map_err(|error| anyhow::anyhow!("the store: {}", chain(&error)))?;
        if self.audit.enqueue(event).await.is_err() {
            tracing::error!(run = %record.id, "a run's end is not in the audit log");
        }
        if !unmade {
            self.has_ended(&record);
        }
        Ok(())
    }

    /// Lets a reattached run take calls.
    ///
    /// A run whose connections cannot be opened ends, unless `given_up` returns true: then the previous daemon goes on with it.
    async fn goes_on(
        self: &Arc<Self>,
        record: Record,
        idle: Duration,
        adopted: Adopted,
        given_up: &impl Fn(RunId, &str) -> bool,
    ) {
        let Adopted { lanes, resources, ended, companions } = adopted;
        let (record_sender, record_receiver) = watch::channel(record.clone());
        let (commands, command_receiver) = mpsc::channel(8);
        let run = Arc::new(Run::new(record_receiver, commands, idle));
        self.launcher.projects.limit_again(record.id, run.disk.most());
        self.enter_recordings(&run, record.id).await;
        *run.lanes.write() = Some(lanes.clone());
        run.has_companions(companions);
        self.living().insert(record.id, run.clone());
        let mut shared = Shared {
            runs: self.clone(),
            lanes: run.lanes.clone(),
            run,
            record: record_sender,
            commands: command_receiver,
        };
        let begun = match shared.begin_egress(&lanes).await {
            Ok(()) => shared.begin_egress_beside().await,
            refused => refused,
        };
        if let Err(refusal) = begun {
            shared.end_egress().await;
            if given_up(record.id, &refusal.message) {
                resources.leave();
                return;
            }
            // Its task ends it.
            shared.run.fail(refusal).await;
        }
        shared.adopted(evidence(&ended)).await;
        shared.release_interrupted(&lanes).await;
        self.tasks.spawn(task::go_on(shared, lanes, resources));
    }

    /// Counts the recordings that a previous daemon made. The output of processes is counted when they are reattached.
    async fn enter_recordings(&self, run: &Run, id: RunId) {
        let directory = self.launcher.directories.recordings(&id.to_string());
        let taken = tokio::task::spawn_blocking(move || store::recording::taken_by(&directory)).await;
        match taken.map_err(std::io::Error::other).and_then(|taken| taken) {
            Ok(bytes) => run.allowance.enter(bytes),
            Err(error) => {
                tracing::error!(run = %id, error = %chain(&error), "the recordings of a run cannot be counted: it records no further input or output");
                run.allowance.enter(run.allowance.most());
            }
        }
    }
}

/// Returns the time for which the run was not used.
fn idle(record: &Record, used: &BTreeMap<RunId, Timestamp>) -> Duration {
    let last = used.get(&record.id).copied().max(record.ready_at);
    last.map_or(Duration::ZERO, Timestamp::elapsed)
}

/// Returns the end of a run that needs no check of its container.
fn due(record: &Record, idle: Duration) -> Option<End> {
    let is_past = |limit: Option<Duration>, age: Duration| limit.is_some_and(|limit| age >= limit);
    match record.state {
        // These clocks continued. A lease begins anew, because no client could renew it.
        State::Ready | State::Paused
            if is_past(record.ttl(), record.ready_at.map_or(Duration::ZERO, Timestamp::elapsed)) =>
        {
            Some(End::Stopped(EndCause::Ttl))
        }
        // A paused run is not idle.
        State::Ready if is_past(record.spec.idle_timeout, idle) => Some(End::Stopped(EndCause::IdleTimeout)),
        State::Ready | State::Paused => None,
        State::Creating => Some(End::Unmade),
        // Its end was begun before the daemon was gone.
        State::Stopping | State::Stopped | State::Failed => {
            Some(End::Failed(Box::new(ToolFailure::new(Reason::Cancelled, "it was being ended"))))
        }
    }
}
