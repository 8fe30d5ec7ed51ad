//! Pauses runs: while anything holds a run, its commands are frozen and it takes no calls.
//!
//! A pause freezes the cgroup above all leaves of the container ([`Commands`]): every process that a call or a terminal has started, and
//! every one that is still to begin. While only approvals hold the run, an approved command continues in a group of the same container
//! ([`Group::Alone`]). So does a terminal for which the run is paused ([`Group::Terminal`]). The guest and PID 1 belong to Cofferdam and
//! continue, so the guest's heartbeat continues. A reviewer's previews and hashes can then be made of files that do not change. A file
//! operation that the host lane has begun is completed. The next one waits, or is refused.
//!
//! Each hold ends with its own cause, and the run continues when its last hold ends. A hold is in the run's record before anything is
//! frozen, and leaves it after the thaw. So a daemon that reattaches the run finds at least as many holds as there should be, and applies
//! them again ([`Shared::freeze_again`]).
//!
//! The clock of calls does not stop. A timeout is a promise to the caller, whose own deadline does not stop either. A command that is
//! cancelled or out of time is ended while it is frozen.

use std::time::Duration;

use crate::record::{Held, Hold, Record, State};
use audit::WorkerChange;
use containers::{CgroupError, Commands, ContainerCgroup, ContainerId, Engine, Group};
use executor::Lanes;
use identity::RunId;
use operations::Reason;
use refusal::{Refusal, chain};
use timestamp::Timestamp;

use crate::held::takes_no_call;
use crate::registry::Runs;
use crate::run::{Change, Command, Freeze};
use crate::shared::Shared;

/// Time in which commands have to freeze or end. A process that waits in the kernel for longer does not execute meanwhile.
const WITHIN: Duration = Duration::from_secs(2);
/// Most holds of one run.
const MOST: usize = 256;

impl Runs {
    /// Pauses a run until [`Self::release`]. A hold that exists already is no error.
    pub async fn hold(&self, id: RunId, hold: Hold, by: Option<&str>) -> Result<(), Refusal> {
        let change = Change::Hold(Held { hold, by: by.map(str::to_owned), since: Timestamp::now() });
        self.freeze(id, change).await
    }

    /// Ends a hold. The run continues if it was the last one. An unknown hold, or a run that has ended, is no error.
    pub async fn release(&self, id: RunId, hold: &Hold) -> Result<(), Refusal> {
        let hold = hold.clone();
        self.release_all(id, move |held| *held == hold).await
    }

    /// Ends a hold. A run that cannot continue is ended, so that it does not stay frozen.
    pub async fn release_or_end(&self, id: RunId, hold: &Hold) {
        let Err(refusal) = self.release(id, hold).await else { return };
        // The run has ended, and its holds with it.
        if matches!(refusal.reason, Reason::RunNotReady | Reason::RunLost | Reason::NotFound) {
            return;
        }
        tracing::error!(run = %id, ?hold, why = refusal.message, "a frozen run cannot be resumed and is ended");
        if let Ok(living) = self.living_run(id) {
            living.fail(refusal).await;
        }
    }

    /// Ends all holds for which `which` returns true.
    pub async fn release_all(
        &self,
        id: RunId,
        which: impl Fn(&Hold) -> bool + Send + Sync + 'static,
    ) -> Result<(), Refusal> {
        if self.get(id)?.state.has_ended() {
            return Ok(());
        }
        self.freeze(id, Change::Release(Box::new(which))).await
    }

    /// Ends all commands, processes and sessions of a run, also frozen ones.
    pub async fn end_commands(&self, id: RunId) -> Result<(), Refusal> {
        self.freeze(id, Change::EndCommands).await
    }

    async fn freeze(&self, id: RunId, change: Change) -> Result<(), Refusal> {
        self.ask(id, |done| Command::Freeze(Freeze { change, done })).await
    }
}

impl Shared {
    pub(crate) fn is_paused(&self) -> bool {
        self.record.borrow().state == State::Paused
    }

    /// Executes the command and answers it.
    pub(crate) async fn freeze(&mut self, freeze: Freeze, lanes: &Lanes) {
        let outcome = match freeze.change {
            Change::Hold(held) => self.hold(held, lanes).await,
            Change::Release(which) => self.release(which.as_ref(), lanes).await,
            Change::EndCommands => {
                self.end_commands(lanes).await;
                Ok(())
            }
        };
        // The client may be gone. That changes nothing for the run.
        let _ = freeze.done.send(outcome);
    }

    async fn hold(&mut self, held: Held, lanes: &Lanes) -> Result<(), Refusal> {
        let before = self.record.borrow().holds.clone();
        if before.iter().any(|other| other.hold == held.hold) {
            return Ok(());
        }
        if before.iter().any(|other| held.hold.is_refused_beside(&other.hold)) {
            return Err(takes_no_call(&self.record.borrow()));
        }
        if before.len() >= MOST {
            return Err(Refusal::new(
                Reason::Overloaded,
                format!("the run is already held for {MOST} reasons, which is the limit"),
            ));
        }
        if lanes.commands(Group::Ordinary).is_none() {
            return Err(Refusal::new(
                Reason::PreconditionFailed,
                "the daemon does not see the cgroup of the run's commands (a rootless engine, or gVisor), \
                 so they cannot be frozen",
            ));
        }
        self.record.send_modify(|record| record.holds.push(held.clone()));
        self.enter(State::Paused, None).await;
        let refusal = match self.apply(lanes).await {
            Ok(true) => return Ok(()),
            // An operator types secrets because everything else is said to be frozen, and a checkpoint has the state of one moment.
            Ok(false)
                if matches!(held.hold, Hold::Terminal(_) | Hold::Checkpoint(_) | Hold::Restore { .. }) =>
            {
                let next = match held.hold {
                    Hold::Terminal(_) => {
                        "the terminal was not opened: try again, or open it without pausing the run"
                    }
                    Hold::Restore { .. } => "nothing was restored: try again",
                    _ => "no checkpoint was made: try again",
                };
                Refusal::new(
                    Reason::PreconditionFailed,
                    format!(
                        "a process of the run is blocked in the kernel and was not frozen within {WITHIN:?}, so {next}"
                    ),
                )
            }
            Ok(false) => {
                let run = self.record.borrow().id;
                tracing::warn!(%run, "a paused run has a process that is blocked in the kernel; it freezes when the kernel returns");
                return Ok(());
            }
            Err(refusal) => refusal,
        };
        self.record.send_modify(|record| record.holds.retain(|other| other.hold != held.hold));
        if let Err(error) = self.apply(lanes).await {
            // A full queue does not end the run. It then stays frozen until somebody stops it.
            let _ = self.run.commands.try_send(Command::Fail(Box::new(error.into())));
        }
        if before.is_empty() {
            self.enter(State::Ready, None).await;
        }
        Err(refusal)
    }

    async fn release(
        &mut self,
        which: &(dyn Fn(&Hold) -> bool + Send + Sync),
        lanes: &Lanes,
    ) -> Result<(), Refusal> {
        let before = self.record.borrow().holds.clone();
        let left: Vec<Held> = before.iter().filter(|held| !which(&held.hold)).cloned().collect();
        if left.len() == before.len() {
            return Ok(());
        }
        let ends = left.is_empty();
        let of_terminal = |held: &&Held| matches!(held.hold, Hold::Terminal(_));
        if before.iter().filter(of_terminal).count() > left.iter().filter(of_terminal).count() {
            end_terminal(lanes).await?;
        }
        self.record.send_modify(|record| record.holds = left);
        if let Err(refusal) = self.apply(lanes).await {
            self.record.send_modify(|record| record.holds = before);
            return Err(refusal);
        }
        if ends {
            self.run.touch();
            self.enter(State::Ready, None).await;
        } else {
            self.enter(State::Paused, None).await;
        }
        Ok(())
    }

    /// Freezes or thaws each group of commands as the holds require. Returns true if all groups that have to freeze are frozen.
    async fn apply(&self, lanes: &Lanes) -> Result<bool, Refusal> {
        let mut still = true;
        for group in Group::ALL {
            let Some(commands) = lanes.commands(group) else { continue };
            let held = self.record.borrow().holds.iter().any(|held| held.hold.stills(group));
            let applied =
                with(
                    commands,
                    move |commands| {
                        if held { commands.freeze(WITHIN) } else { commands.thaw().map(|()| true) }
                    },
                );
            still &= applied.await?;
        }
        let pauses = self.record.borrow().holds.iter().any(|held| held.hold.pauses_companions());
        for (companion, error) in self.run.companions().set_paused(pauses).await {
            let change = if pauses { WorkerChange::NotPaused } else { WorkerChange::NotResumed };
            self.worker_event(&format!("companion:{}", companion.name()), change, &chain(&error)).await;
        }
        Ok(still)
    }

    /// Applies the holds that an earlier daemon left, and pauses the run if there are any.
    pub(crate) async fn freeze_again(&mut self, lanes: &Lanes) {
        if let Err(refusal) = self.apply(lanes).await {
            tracing::error!(run = %self.record.borrow().id, why = refusal.message, "the freezer state of a run's commands could not be set");
        }
        if !self.record.borrow().holds.is_empty() && !self.is_paused() {
            self.enter(State::Paused, None).await;
        }
    }

    /// Ends the holds of terminals and checkpoints that a previous daemon had begun, and fails the run if that is not possible.
    pub(crate) async fn release_interrupted(&mut self, lanes: &Lanes) {
        let is_interrupted = |hold: &Hold| matches!(hold, Hold::Terminal(_) | Hold::Checkpoint(_));
        if let Err(refusal) = self.release(&is_interrupted, lanes).await {
            self.run.fail(refusal).await;
        }
    }

    /// Ends all commands, also frozen ones. Then applies the holds again, for commands that begin later.
    pub(crate) async fn end_commands(&self, lanes: &Lanes) {
        end_frozen(lanes).await;
        lanes.guest().sweep().await;
        self.run.disk.commands_are_gone();
        if let Err(refusal) = self.apply(lanes).await {
            tracing::error!(run = %self.record.borrow().id, why = refusal.message, "the freezer state of a run's commands could not be set");
        }
    }

    /// Removes all holds, because the run ends. Returns true if there were any.
    pub(crate) fn let_go(&self) -> bool {
        let held = !self.record.borrow().holds.is_empty();
        self.record.send_modify(|record: &mut Record| record.holds.clear());
        held
    }
}

/// Ends the commands of a run that ends, while they are frozen. On cgroup v1, a process that stays frozen cannot be killed.
pub(crate) async fn end_frozen(lanes: &Lanes) {
    for commands in Group::ALL.into_iter().filter_map(|group| lanes.commands(group)) {
        if let Err(refusal) = with(commands, |commands| commands.end(WITHIN)).await {
            tracing::error!(why = refusal.message, "the commands of a paused run could not be ended");
        }
    }
}

/// Ends the processes of a terminal for which the run was paused. The caller thaws the other commands, which must not read it, after that.
async fn end_terminal(lanes: &Lanes) -> Result<(), Refusal> {
    let Some(commands) = lanes.commands(Group::Terminal) else { return Ok(()) };
    let evidence = with(commands, |commands| commands.end(WITHIN)).await?;
    if evidence.left == 0 {
        return Ok(());
    }
    let message =
        format!("{} processes of a terminal for which the run was paused could not be ended", evidence.left);
    Err(Refusal::new(Reason::PreconditionFailed, message))
}

/// Ends frozen processes in a container that an earlier daemon left, so that the container can be removed.
pub(crate) async fn end_leftover(engine: &Engine, container: &ContainerId) {
    let pid = engine.inspect(container).await.ok().and_then(|inspection| inspection.host_pid);
    // The daemon froze a process only if a process and a cgroup are visible.
    let Some(cgroup) = pid.and_then(|pid| ContainerCgroup::of_pid(pid, container).ok()) else { return };
    for commands in Group::ALL.map(|group| cgroup.commands(group)) {
        if let Err(refusal) = with(commands, |commands| commands.end(WITHIN)).await {
            tracing::warn!(%container, why = refusal.message, "a container from before the restart may be frozen");
        }
    }
}

async fn with<T: Send + 'static>(
    commands: Commands,
    job: impl FnOnce(&Commands) -> Result<T, CgroupError> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(move || job(&commands)).await;
    done.map_err(|error| Refusal::internal("freezing the run's commands", &error))?
        .map_err(|error| Refusal::internal("freezing the run's commands", &chain(&error)))
}
