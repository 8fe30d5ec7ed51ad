//! The owning task of a run. It launches the run, waits for its end and removes it. No other code changes the run's state.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::record::{EndCause, Record, State};
use audit::{Event, WorkerChange};
use companions::Companions;
use containers::ContainerId;
use executor::{Lanes, Loss};
use identity::{Principal, RunId};
use operations::{Reason, ToolFailure};
use refusal::{Refusal, chain};
use serde_json::json;
use timestamp::Timestamp;
use tokio::sync::oneshot;

use crate::freeze::end_frozen;
use crate::launch::{Launched, Wanted};
use crate::run::Command;
use crate::shared::Shared;
use ::leftovers::remove_tree;
use run_directories::resources::{Held, RunResources, remove_container};

/// Reason that a run ends.
enum End {
    /// A client stopped the run, and waits.
    Stopped(Option<oneshot::Sender<()>>),
    /// The run reached a limit of its time, or its node is drained.
    Due(EndCause),
    /// The run failed.
    Failed(Box<ToolFailure>),
    /// The run stays, and its daemon ends.
    Left(oneshot::Sender<()>),
}

/// Owns the run from its launch to its end.
pub(crate) async fn own(
    mut shared: Shared,
    wanted: Wanted,
    principal: Arc<Principal>,
    ready: oneshot::Sender<Result<Record, Refusal>>,
) {
    let record = shared.record.borrow().clone();
    let launched = shared.launch(&record, &wanted, &principal).await;
    // It has the variables of companions.
    drop(wanted);
    let Launched { lanes, resources, .. } = match launched {
        Ok(launched) => launched,
        Err(refusal) => {
            // Those who wait for their commands are answered when this is dropped, after the run has ended.
            let commands: Vec<Command> = std::iter::from_fn(|| shared.commands.try_recv().ok()).collect();
            let is_of_drain = |command: &Command| matches!(command, Command::End(EndCause::NodeDrained));
            let refusal = if commands.iter().any(is_of_drain) { drained() } else { refusal };
            // Everything that it made is removed.
            let refusal = refusal.retry_safe(true);
            shared.run.ended.cancel();
            if let Err(refusal) = shared.runs.forget_workspace(record.id).await {
                tracing::error!(run = %record.id, why = refusal.message, "a workspace that was not made is listed");
            }
            if is_of_the_request(refusal.reason) {
                shared.withdraw(refusal.clone()).await;
            } else {
                shared.enter(State::Failed, Some(refusal.clone().into())).await;
            }
            let _ = ready.send(Err(refusal));
            return;
        }
    };
    // A daemon that ends before it has left the run drops this task.
    let resources = Held::new(resources);
    *shared.lanes.write() = Some(lanes.clone());
    shared.enter(State::Ready, None).await;
    // The client may be gone. The run is READY nevertheless.
    let _ = ready.send(Ok(shared.record.borrow().clone()));

    shared.run.begin_lease();
    // The time that the launch took does not count as idle.
    shared.run.touch();
    let end = shared.live(&lanes, Duration::ZERO).await;
    shared.finish(end, &lanes, resources.into_inner()).await;
}

/// Owns a run that a previous daemon launched, and that takes calls already.
pub(crate) async fn go_on(mut shared: Shared, lanes: Arc<Lanes>, resources: Held) {
    let age = shared.record.borrow().ready_at.map_or(Duration::ZERO, Timestamp::elapsed);
    let end = shared.live(&lanes, age).await;
    shared.finish(end, &lanes, resources.into_inner()).await;
}

/// Returns the refusal of a launch that was given up at the deadline of a drain.
fn drained() -> Refusal {
    let message = "the node was drained before the run was ready: create the run on another node";
    Refusal::new(Reason::NodeDrained, message)
}

/// Returns true if a launch failed because of the request, before the run had any effect. Otherwise the host failed, and the run stays
/// visible.
fn is_of_the_request(reason: Reason) -> bool {
    use Reason::{
        ImageMissing, ImageUnusable, InvalidArgument, NotFound, PermissionDenied, PreconditionFailed,
        SandboxViolation,
    };
    matches!(
        reason,
        ImageMissing
            | ImageUnusable
            | InvalidArgument
            | NotFound
            | PermissionDenied
            | PreconditionFailed
            | SandboxViolation
    )
}

impl Shared {
    /// Launches the run with its egress. If it fails, it removes everything that it made.
    async fn launch(
        &self,
        record: &Record,
        wanted: &Wanted,
        principal: &Principal,
    ) -> Result<Launched, Refusal> {
        let runs = &self.runs;
        let mut launched = match runs.launcher.launch(record, wanted, principal).await {
            Ok(launched) => launched,
            Err(refusal) => {
                self.withdraw_egress().await;
                return Err(self.without_secrets(refusal));
            }
        };
        let (beside, live) = launched.companions.drain(..).map(|beside| (beside.record, beside.live)).unzip();
        self.run.has_companions(Companions::new(live));
        self.record.send_modify(|record| {
            record.started = Some(launched.started.clone());
            record.companions = beside;
        });
        match self.begin_egress(&launched.lanes).await {
            Ok(()) => Ok(launched),
            Err(refusal) => {
                launched.lanes.shutdown().await;
                runs.launcher.undo(record.id, launched.resources).await;
                self.withdraw_egress().await;
                Err(refusal)
            }
        }
    }

    /// Ends the connections of a run that was not launched, and removes their names.
    async fn withdraw_egress(&self) {
        self.end_egress().await;
        remove_tree(self.runs.launcher.directories.egress(&self.run.record().id.to_string())).await;
    }

    /// Waits for the end of the run, which is `age` old.
    async fn live(&mut self, lanes: &Lanes, age: Duration) -> End {
        let began = Instant::now();
        // Set if the last restart failed.
        let mut failed: Option<Loss> = None;
        self.freeze_again(lanes).await;
        let companions = self.run.companions();
        loop {
            let until_due = match self.due(age + began.elapsed()) {
                ControlFlow::Break(cause) => return End::Due(cause),
                ControlFlow::Continue(left) => left,
            };
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(Command::Stop(done)) => return End::Stopped(Some(done)),
                    Some(Command::Fail(why)) => return End::Failed(why),
                    Some(Command::End(cause)) => return End::Due(cause),
                    Some(Command::Leave(done)) => return End::Left(done),
                    Some(Command::Freeze(freeze)) => self.freeze(freeze, lanes).await,
                    Some(Command::EndCommands) => {
                        self.end_commands(lanes).await;
                        companions.kill(Some("the run has used up its space on the disk")).await;
                    }
                    Some(Command::Settle) => self.freeze_again(lanes).await,
                    Some(Command::Extend(extend)) => self.extend(extend).await,
                    Some(Command::Token(token)) => self.take_token(token).await,
                    Some(Command::Phase(phase)) => self.begin_phase(*phase).await,
                    None => return End::Stopped(None),
                },
                loss = lanes.guest().lost() => {
                    let loss = failed.take().unwrap_or(loss);
                    self.worker_event("coffer-guest", WorkerChange::Lost, &loss.why()).await;
                    if let Some(failure) = loss.fatal() {
                        return End::Failed(Box::new(failure));
                    }
                    failed = lanes.guest().restart().await.err();
                    // Commands that had to stay frozen in a paused run were ended in order to be thawed. Apply the holds again.
                    self.freeze_again(lanes).await;
                }
                // The next call that needs a host worker starts another.
                why = lanes.host_worker().lost() => self.worker_event("coffer-host-worker", WorkerChange::Lost, &why.to_string()).await,
                (companion, code) = companions.next_exit() => self.companion_ended(&companion, code).await,
                () = tokio::time::sleep(until_due) => {}
            }
        }
    }

    /// Returns the cause for which the run ends at this age, or the time for which it can wait for commands.
    fn due(&self, age: Duration) -> ControlFlow<EndCause, Duration> {
        if self.is_paused() {
            self.run.touch();
        }
        let ttl = self.record.borrow().ttl().map(|ttl| ttl.saturating_sub(age));
        let lease = self.run.lease_left();
        let idle = self.run.spec().idle_timeout.map(|timeout| timeout.saturating_sub(self.run.idle()));
        let ends = [(ttl, EndCause::Ttl), (lease, EndCause::Lease), (idle, EndCause::IdleTimeout)];
        match ends.into_iter().filter_map(|(left, cause)| Some((left?, cause))).min_by_key(|(left, _)| *left)
        {
            Some((Duration::ZERO, cause)) => ControlFlow::Break(cause),
            soonest => ControlFlow::Continue(soonest.map_or(Duration::MAX, |(left, _)| left)),
        }
    }

    /// Ends the run, or leaves it, and answers all who wait.
    async fn finish(mut self, end: End, lanes: &Lanes, resources: RunResources) {
        let waiting = match end {
            End::Stopped(waiting) => {
                self.end(None, lanes, resources).await;
                waiting
            }
            End::Due(cause) => {
                self.record.send_modify(|record| record.end_cause = Some(cause));
                self.end(None, lanes, resources).await;
                None
            }
            End::Failed(failure) => {
                self.end(Some(*failure), lanes, resources).await;
                None
            }
            End::Left(done) => {
                self.leave(lanes, resources).await;
                Some(done)
            }
        };
        // Give the same answer to others who asked in the meantime.
        self.commands.close();
        let others =
            std::iter::from_fn(|| self.commands.try_recv().ok()).filter_map(|command| match command {
                Command::Stop(done) | Command::Leave(done) => Some(done),
                // Dropping the sender reports that the run is over.
                Command::Fail(_)
                | Command::End(_)
                | Command::Freeze(_)
                | Command::EndCommands
                | Command::Settle
                | Command::Extend(_)
                | Command::Token(_)
                | Command::Phase(_) => None,
            });
        for done in waiting.into_iter().chain(others) {
            let _ = done.send(());
        }
    }

    async fn end(&self, failure: Option<ToolFailure>, lanes: &Lanes, mut resources: RunResources) {
        let was_paused = self.let_go() || self.run.stands_still.load(Ordering::SeqCst);
        // With the failure, so that no call meets the state without it.
        self.enter(State::Stopping, failure.clone()).await;
        if was_paused {
            // Cancel first, so that a terminal ends because of the run and not because of its command.
            self.run.ended.cancel();
            end_frozen(lanes).await;
        }
        self.close(lanes).await;
        self.end_companions(std::mem::take(&mut resources.beside)).await;
        if lanes.guest().end_container().await {
            // The run ends even without a turn in time.
            let tenant = self.runs.launcher.tenant_of(&self.record.borrow());
            let turn = self.runs.launcher.making.wait(&tenant).await;
            let layer = resources.unmount();
            drop(turn);
            self.remove_later(resources.container.take(), layer);
        } else {
            resources.take_away(&self.runs.launcher.engine).await;
            self.runs.gone.notify_one();
        }
        let state = if failure.is_some() { State::Failed } else { State::Stopped };
        self.enter(state, failure).await;
    }

    /// Removes a container without processes, and the layer of its root, after the end of its run was reported.
    ///
    /// A daemon that stops waits for this. After a crash the next daemon removes both, as it does for all containers without a run.
    pub(crate) fn remove_later(&self, container: Option<ContainerId>, layer: Option<PathBuf>) {
        let (runs, run) = (self.runs.clone(), self.record.borrow().id);
        self.runs.tasks.spawn(async move {
            if let Some(container) = container {
                remove_container(&runs.launcher.engine, container).await;
            }
            if let Some(layer) = layer {
                // The layer of a companion has another name.
                let made_as =
                    layer.file_name().and_then(OsStr::to_str).and_then(|name| RunId::parse(name).ok());
                remove_tree(layer).await;
                for settled in made_as.into_iter().filter(|id| *id != run).chain([run]) {
                    runs.launcher.projects.settle(settled);
                }
            }
            runs.gone.notify_one();
        });
    }

    /// Leaves the container, its mounts and the record, so that the next daemon can reattach the run.
    async fn leave(&self, lanes: &Lanes, resources: RunResources) {
        self.close(lanes).await;
        resources.leave();
        let record = self.record.borrow().clone();
        tracing::info!(run = %record.id, "run left for the next daemon");
        self.tell(&record, json!({ "state": record.state.as_str(), "left": true })).await;
    }

    /// Ends the execution of calls.
    async fn close(&self, lanes: &Lanes) {
        self.run.ended.cancel();
        *self.lanes.write() = None;
        self.end_egress().await;
        lanes.shutdown().await;
    }

    /// Withdraws a run whose request is refused. The audit log has the refusal, and there is no run to list or to delete.
    async fn withdraw(&self, refusal: Refusal) {
        let why = refusal.message.clone();
        self.record.send_modify(|record| record.enter(State::Failed, Some(refusal.into())));
        let record = self.record.borrow().clone();
        let id = record.id;
        tracing::info!(run = %id, why, "a run was refused");
        self.tell(&record, json!({ "state": record.state.as_str(), "failure": why, "refused": true })).await;
        if let Err(error) = self.runs.store.with(move |store| store.delete_run(id)).await {
            tracing::error!(run = %id, error = %chain(&error), "a run that was refused is still listed");
            self.runs.has_ended(&record);
        }
        self.runs.forget(id);
        self.runs.changed(record);
    }

    /// Records that a worker or a companion was lost, or did not do its part.
    pub(crate) async fn worker_event(&self, worker: &str, change: WorkerChange, why: &str) {
        let run = self.record.borrow().id.to_string();
        tracing::warn!(run, worker, event = change.as_str(), why, "an event of a run's worker");
        self.put_on_record(Event::of_worker(worker, change, Some(why)).run(run)).await;
    }
}
