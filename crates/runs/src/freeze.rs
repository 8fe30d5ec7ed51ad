//! Pausing: while anything holds a run its commands stand still and it takes no calls.
//!
//! What is frozen is the cgroup above all leaves of the container ([`Commands`]): every process that a call or a terminal
//! has started, and every one that is still to begin. While only approvals hold the run, a command that was approved goes on
//! among them, by itself ([`Group::Alone`]). A terminal for which the run is paused goes on likewise ([`Group::Terminal`]). The
//! guest and PID 1, which are ours, go on: so the guest's heartbeat goes on, and a reviewer's previews and hashes can be made of
//! files that nothing changes. A file operation that the host lane has begun comes to its end; the next one waits, or is refused.
//!
//! Each hold ends with its own cause, and the run goes on with the end of the last. Holds are in the run's record before
//! anything is frozen and leave it after it was thawed, so that a daemon that takes the run over finds at least as many as
//! there should be, and makes them true again ([`Shared::freeze_again`]).
//!
//! The clock of calls does not stop: a timeout is a promise to whoever waits, whose own deadline does not stop either. A
//! command whose time is over, or that is cancelled, is ended where it stands.

use std::time::Duration;

use containers::{CgroupError, Commands, ContainerCgroup, ContainerId, Engine, Group};
use executor::Lanes;
use identity::RunId;
use ops::Reason;
use refusal::{Refusal, chain};
use store::run::{Held, Hold, Record, State};
use timestamp::Timestamp;

use crate::held::takes_no_call;
use crate::registry::Runs;
use crate::run::{Change, Command, Freeze};
use crate::shared::Shared;

/// For commands to stand still, or to be gone. What waits in the kernel for longer does so without running on.
const WITHIN: Duration = Duration::from_secs(2);
/// Holds of one run.
const MOST: usize = 256;

impl Runs {
    /// Makes a run stand still until [`Self::release`]. A hold that is there already is no error.
    pub async fn hold(&self, id: RunId, hold: Hold, by: Option<&str>) -> Result<(), Refusal> {
        let change = Change::Hold(Held { hold, by: by.map(str::to_owned), since: Timestamp::now() });
        self.freeze(id, change).await
    }

    /// Ends a hold; the run goes on when it was the last. One that is not there, or whose run has ended, is no error.
    pub async fn release(&self, id: RunId, hold: &Hold) -> Result<(), Refusal> {
        let hold = hold.clone();
        self.release_all(id, move |held| *held == hold).await
    }

    /// Ends all holds of which `which` is true.
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

    async fn freeze(&self, id: RunId, change: Change) -> Result<(), Refusal> {
        self.ask(id, |done| Command::Freeze(Freeze { change, done })).await
    }
}

impl Shared {
    pub(crate) fn is_paused(&self) -> bool {
        self.record.borrow().state == State::Paused
    }

    /// Does what was asked, and answers.
    pub(crate) async fn freeze(&mut self, freeze: Freeze, lanes: &Lanes) {
        let outcome = match freeze.change {
            Change::Hold(held) => self.hold(held, lanes).await,
            Change::Release(which) => self.release(which.as_ref(), lanes).await,
        };
        // The client may be gone; the run is as it is.
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
            return Err(Refusal::new(Reason::Overloaded, format!("{MOST} causes hold the run already")));
        }
        if lanes.commands(Group::Ordinary).is_none() {
            return Err(Refusal::new(
                Reason::PreconditionFailed,
                "the run's commands are in no cgroup that the daemon sees (a rootless engine, or gVisor), without which they cannot be made to stand still",
            ));
        }
        self.record.send_modify(|record| record.holds.push(held.clone()));
        self.enter(State::Paused, None).await;
        let refusal = match self.apply(lanes).await {
            Ok(true) => return Ok(()),
            // An operator types secrets on the word that everything else is frozen.
            Ok(false) if matches!(held.hold, Hold::Terminal(_)) => Refusal::new(
                Reason::PreconditionFailed,
                format!(
                    "a process of the run waits in the kernel and was not frozen within {WITHIN:?}, so the terminal was not opened: try \
                     again, or open it without pausing the run"
                ),
            ),
            Ok(false) => {
                let run = self.record.borrow().id;
                tracing::warn!(%run, "a paused run has a process that waits in the kernel; it freezes after that");
                return Ok(());
            }
            Err(refusal) => refusal,
        };
        self.record.send_modify(|record| record.holds.retain(|other| other.hold != held.hold));
        if let Err(error) = self.apply(lanes).await {
            // A run with so much to do already is not ended for it, and is frozen until somebody stops it.
            let _ = self.run.commands.try_send(Command::Fail(error.message));
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

    /// Has each group of commands stand still, or go on, as the holds say. Whether what is to stand still does.
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
        Ok(still)
    }

    /// What holds a run that an earlier daemon has left holds it still, and nothing else does.
    pub(crate) async fn freeze_again(&mut self, lanes: &Lanes) {
        if let Err(refusal) = self.apply(lanes).await {
            tracing::error!(run = %self.record.borrow().id, why = refusal.message, "a run's commands are not as they should be");
        }
        if !self.record.borrow().holds.is_empty() && !self.is_paused() {
            self.enter(State::Paused, None).await;
        }
    }

    /// Ends the holds of terminals that a former daemon had open, and fails the run if that cannot be done.
    pub(crate) async fn release_terminals(&mut self, lanes: &Lanes) {
        if let Err(refusal) = self.release(&|hold| matches!(hold, Hold::Terminal(_)), lanes).await {
            self.run.fail(refusal.message).await;
        }
    }

    /// Ends all commands, also those that stand still. What holds the run holds what begins after that.
    pub(crate) async fn end_commands(&self, lanes: &Lanes) {
        end_frozen(lanes).await;
        lanes.guest().sweep().await;
        self.run.disk.commands_are_gone();
        if let Err(refusal) = self.apply(lanes).await {
            tracing::error!(run = %self.record.borrow().id, why = refusal.message, "a run's commands are not as they should be");
        }
    }

    /// Nothing holds the run any more, because it ends: whether something did.
    pub(crate) fn let_go(&self) -> bool {
        let held = !self.record.borrow().holds.is_empty();
        self.record.send_modify(|record: &mut Record| record.holds.clear());
        held
    }
}

/// The run ends: its commands do so where they stand. Processes that stay frozen could not be killed on cgroup v1.
pub(crate) async fn end_frozen(lanes: &Lanes) {
    for commands in Group::ALL.into_iter().filter_map(|group| lanes.commands(group)) {
        if let Err(refusal) = with(commands, |commands| commands.end(WITHIN)).await {
            tracing::error!(why = refusal.message, "the commands of a paused run could not be ended");
        }
    }
}

/// Ends what is left of a terminal for which the run was paused, before those go on that must not read it.
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

/// Ends what stands still in a container that an earlier daemon has left, so that it can be removed.
pub(crate) async fn end_leftover(engine: &dyn Engine, container: &ContainerId) {
    let pid = engine.inspect(container).await.ok().and_then(|inspection| inspection.host_pid);
    // Without a process or a cgroup in sight nothing of ours was frozen.
    let Some(cgroup) = pid.and_then(|pid| ContainerCgroup::of_pid(pid, container).ok()) else { return };
    for commands in Group::ALL.map(|group| cgroup.commands(group)) {
        if let Err(refusal) = with(commands, |commands| commands.end(WITHIN)).await {
            tracing::warn!(%container, why = refusal.message, "a container that a former daemon left may stand still");
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
