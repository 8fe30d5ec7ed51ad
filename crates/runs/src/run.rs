//! A run, as all code except its task sees it: its record, its lanes while it takes calls, and the commands that it accepts.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::record::{EndCause, Held, Hold, Record, Spec, State, Workspace};
use companions::{Companion, Companions};
use disk_quotas::Account;
use egress::{Egress, View};
use egress_rules::Rules;
use executor::Lanes;
use identity::{RunId, TokenHash};
use operations::{Evidence, Fault, Operation, Reason, ToolFailure};
use parking_lot::{Mutex, RwLock};
use policy::RunScope;
use refusal::Refusal;
use store::allowance::Allowance;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::held::{is_over, takes_no_call};
use crate::lease::Lease;

/// Time in which a run without a worker gets another one, or ends: longer than it takes to find out how its container ended.
const DECIDED: Duration = Duration::from_secs(20);

/// Companions that a launch has started, by the ids under which they were made.
pub(crate) type Starting = Arc<Mutex<Vec<(RunId, Arc<Companion>)>>>;

/// A run, as all code except its task sees it.
pub struct Run {
    pub(crate) record: watch::Receiver<Record>,
    spec: Arc<Spec>,
    pub(crate) lanes: Arc<RwLock<Option<Arc<Lanes>>>>,
    pub(crate) commands: mpsc::Sender<Command>,
    activity: Mutex<Activity>,
    lease: Option<Lease>,
    /// Held for reading by calls that change files on the host.
    pub writing: Arc<tokio::sync::RwLock<()>>,
    /// Held by an approved call that is executed while the run is frozen.
    pub alone: Arc<tokio::sync::Mutex<()>>,
    /// Held by the first of the calls that wait beside an approval, in the order of arrival, until it has its slot.
    pub line: Arc<tokio::sync::Mutex<()>>,
    /// The run's space on the state disk.
    pub disk: Arc<Account>,
    /// True while the watch of the disk has frozen the run's commands.
    pub stands_still: AtomicBool,
    /// Output of processes, sessions and terminals that may be kept.
    pub allowance: Arc<Allowance>,
    /// The run's connections, if it has a way out.
    pub(crate) egress: RwLock<Option<Arc<Egress>>>,
    /// The connections of its companions that have a way out, by their names.
    pub(crate) beside: RwLock<BTreeMap<String, Arc<Egress>>>,
    /// Connections of the run and of its companions, for people.
    pub(crate) connections: View,
    /// Its companions. Set once they are ready.
    companions: OnceLock<Arc<Companions>>,
    /// Its companions until all of them are ready.
    pub(crate) starting: Starting,
    /// Cancelled when a launch may wait for companions and servers no longer: the run or its daemon is stopped, or the run has used up
    /// its space on the disk.
    pub(crate) stopping: CancellationToken,
    /// Cancelled when the run no longer takes calls.
    pub ended: CancellationToken,
}

/// Commands to a run's task.
pub(crate) enum Command {
    /// Ends the run. Answered when it has no process and no mount left.
    Stop(oneshot::Sender<()>),
    /// Ends the run as failed.
    Fail(Box<ToolFailure>),
    /// Ends the run for a cause that is not its own.
    End(EndCause),
    /// Freezes the commands, or lets them continue.
    Freeze(Freeze),
    /// Ends all commands, because they have used up the disk.
    EndCommands,
    /// Freezes or thaws the commands as the holds require, after the watch of the disk had frozen them.
    Settle,
    /// Gives the run a longer `ttl`.
    Extend(Extend),
    /// Gives the run another token.
    Token(NewToken),
    /// Narrows or widens the rules for its connections.
    Phase(Box<Phase>),
    /// Leaves the run for the next daemon without ending it. Answered when no call uses it.
    Leave(oneshot::Sender<()>),
}

/// Command to change a run's holds.
pub(crate) struct Freeze {
    pub(crate) change: Change,
    pub(crate) done: oneshot::Sender<Result<(), Refusal>>,
}

pub(crate) enum Change {
    Hold(Held),
    /// Ends all holds for which this returns true.
    Release(Box<dyn Fn(&Hold) -> bool + Send + Sync>),
    /// Ends all commands, also frozen ones.
    EndCommands,
}

/// Command to change a run's `ttl`.
pub(crate) struct Extend {
    pub(crate) ttl: Duration,
    /// Principal that asked for it.
    pub(crate) by: String,
    pub(crate) done: oneshot::Sender<Result<Record, Refusal>>,
}

/// Command to change the rules for a run's connections.
pub(crate) struct Phase {
    pub(crate) change: RuleChange,
    pub(crate) rules: Rules,
    /// Principal that asked for it, or that gave the consent.
    pub(crate) by: String,
    pub(crate) done: oneshot::Sender<Result<Record, Refusal>>,
}

/// Kind of a change to a run's rules.
pub(crate) enum RuleChange {
    Narrow,
    Widen {
        /// The approval whose consent is remembered.
        approval_id: Option<String>,
    },
}

/// Command to change a run's token.
pub(crate) struct NewToken {
    pub(crate) hash: TokenHash,
    /// Principal that asked for it.
    pub(crate) by: String,
    pub(crate) done: oneshot::Sender<Result<Record, Refusal>>,
}

/// Time of a run's last use.
struct Activity {
    under_way: usize,
    last: Instant,
    /// Time for which the run was already idle at `last`, under a previous daemon.
    before: Duration,
}

/// Keeps a run from being idle while a call is under way or waits for its reviewer.
pub struct Busy(Arc<Run>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut activity = self.0.activity.lock();
        activity.under_way -= 1;
        activity.last = Instant::now();
        activity.before = Duration::ZERO;
    }
}

impl Run {
    /// Makes a run whose lanes its task sets later. `idle` is the time for which it was not used before.
    ///
    /// The specification never changes, so this copies it once.
    pub(crate) fn new(
        record: watch::Receiver<Record>,
        commands: mpsc::Sender<Command>,
        idle: Duration,
    ) -> Self {
        let spec = Arc::new(record.borrow().spec.clone());
        let has_workspace = !matches!(spec.workspace, Workspace::Bind { .. });
        let disk = Arc::new(Account::new(spec.limits.disk(), has_workspace));
        let allowance = Allowance::new(spec.limits.output());
        let lease = spec.lease.map(|lasts| Lease::new(lasts, Instant::now()));
        Self {
            record,
            spec,
            lanes: Arc::default(),
            commands,
            activity: Mutex::new(Activity { under_way: 0, last: Instant::now(), before: idle }),
            lease,
            writing: Arc::default(),
            alone: Arc::default(),
            line: Arc::default(),
            disk,
            stands_still: AtomicBool::new(false),
            allowance,
            egress: RwLock::default(),
            beside: RwLock::default(),
            connections: View::default(),
            companions: OnceLock::new(),
            starting: Starting::default(),
            stopping: CancellationToken::new(),
            ended: CancellationToken::new(),
        }
    }

    pub fn record(&self) -> Record {
        self.record.borrow().clone()
    }

    /// Returns the specification that the run was made from.
    pub fn spec(&self) -> Arc<Spec> {
        self.spec.clone()
    }

    /// Returns the run's connections, if it has a way out.
    pub fn egress(&self) -> Option<Arc<Egress>> {
        self.egress.read().clone()
    }

    /// Returns the connections of a companion, if it has a way out.
    pub fn egress_beside(&self, companion: &str) -> Option<Arc<Egress>> {
        self.beside.read().get(companion).cloned()
    }

    /// Returns the run's companions. None of them is there before they are ready.
    pub fn companions(&self) -> Arc<Companions> {
        self.companions.get().cloned().unwrap_or_default()
    }

    /// Notes the companions that are ready.
    pub(crate) fn has_companions(&self, companions: Companions) {
        // Only the run's launch, or its reattachment, does so.
        let _ = self.companions.set(Arc::new(companions));
        self.starting.lock().clear();
    }

    /// Returns the companions that a launch has started so far, and the ids under which they were made. Empty once all are ready.
    pub fn starting(&self) -> (Vec<RunId>, Companions) {
        let (made_as, live) = self.starting.lock().iter().cloned().unzip();
        (made_as, Companions::new(live))
    }

    /// Returns the part of the run that the gateway needs.
    pub fn scope(&self) -> RunScope {
        let record = self.record.borrow();
        let image_id = record.started.as_ref().map(|started| started.image_id.clone()).unwrap_or_default();
        RunScope { profile: record.spec.profile.clone(), image_id }
    }

    /// Refuses a request that would exceed the run's allowance. `what` is the consequence, for the message.
    pub fn no_room(&self, what: &str) -> Refusal {
        let (used, most) = (self.allowance.used(), self.allowance.most());
        let message = format!(
            "the stored input and output of this run's processes, sessions and terminals take {} MiB of at \
             most {} MiB (limits.output_mib of its profile), so {what}",
            used.div_ceil(1 << 20),
            most >> 20
        );
        Refusal::new(Reason::WriteLimit, message)
            .with("limit", "kept-output")
            .with("used_bytes", used.to_string())
            .with("max_bytes", most.to_string())
    }

    /// Returns the lanes while the run takes calls.
    pub fn lanes(&self) -> Result<Arc<Lanes>, Refusal> {
        let record = self.record.borrow();
        let lanes = self.lanes.read().clone();
        lanes.filter(|_| record.state == State::Ready).ok_or_else(|| takes_no_call(&record))
    }

    /// Returns whether a call of this operation can be made. A call without effect can, even while a reviewer decides about another call.
    pub fn readiness(&self, operation: &Operation) -> Readiness {
        let record = self.record.borrow();
        let lanes = self.lanes.read().clone();
        let Some(lanes) = lanes.filter(|_| matches!(record.state, State::Ready | State::Paused)) else {
            return Readiness::Over(is_over(&record));
        };
        let held = if operation.has_effect() { is_held } else { is_held_totally };
        if !held(&record) {
            Readiness::Ready(lanes)
        } else if is_resuming(&record) {
            Readiness::Resuming
        } else {
            Readiness::Held(takes_no_call(&record))
        }
    }

    /// Checks that a call may ask for consent: only calls that wait for theirs hold the run.
    pub fn check_asking(&self) -> Result<(), Refusal> {
        let record = self.record.borrow();
        if is_held_totally(&record) && !is_resuming(&record) {
            return Err(takes_no_call(&record));
        }
        drop(record);
        self.lanes_for_review().map(drop)
    }

    /// Returns the lanes. If the run is about to continue, waits for that first.
    pub async fn lanes_resumed(&self) -> Result<Arc<Lanes>, Refusal> {
        let mut record = self.record.clone();
        let _ = record.wait_for(|record| !is_resuming(record)).await;
        self.lanes()
    }

    /// Returns the lanes for looking at the subject of a review. They are available while the run is paused, when its commands are frozen.
    pub fn lanes_for_review(&self) -> Result<Arc<Lanes>, Refusal> {
        let record = self.record.borrow();
        let lanes = self.lanes.read().clone();
        let is_there = matches!(record.state, State::Ready | State::Paused);
        lanes.filter(|_| is_there).ok_or_else(|| is_over(&record))
    }

    /// Waits while the run is paused for calls of this operation. [`Self::readiness`] then returns its state.
    pub async fn resumed_for(&self, operation: &Operation) {
        let mut record = self.record.clone();
        let held = if operation.has_effect() { is_held } else { is_held_totally };
        // The sender is dropped with the run's task. Its last value stays readable.
        let _ = record.wait_for(|record| !held(record)).await;
    }

    /// Waits until only calls that wait for their approval hold the run.
    pub async fn resumed_but_for_approvals(&self) {
        let mut record = self.record.clone();
        let _ = record.wait_for(|record| !is_held_totally(record)).await;
    }

    /// Returns the approvals for which the run is frozen.
    pub fn awaited_approvals(&self) -> Vec<String> {
        let approval = |held: Held| if let Hold::Approval(id) = held.hold { Some(id) } else { None };
        self.record().holds.into_iter().filter_map(approval).collect()
    }

    /// Returns true if anything except calls that wait for their approval holds the run.
    pub fn is_held_totally(&self) -> bool {
        is_held_totally(&self.record.borrow())
    }

    /// Waits for the end of all calls that have begun and that change files on the host.
    pub async fn writes_end(&self) {
        drop(self.writing.write().await);
    }

    /// Keeps the run from being idle until the value is dropped.
    pub fn busy(self: &Arc<Self>) -> Busy {
        self.activity.lock().under_way += 1;
        Busy(self.clone())
    }

    pub(crate) fn idle(&self) -> Duration {
        let activity = self.activity.lock();
        if activity.under_way > 0 { Duration::ZERO } else { activity.before + activity.last.elapsed() }
    }

    /// Returns true if the run may have written since this moment: it was used, or has companions.
    pub fn was_used_since(&self, at: Instant) -> bool {
        let activity = self.activity.lock();
        let was_used = activity.under_way > 0 || activity.last >= at;
        drop(activity);
        let is_running = self.companions.get().is_some_and(|companions| companions.are_running());
        was_used || is_running || !self.starting.lock().is_empty()
    }

    /// Returns true if a client waits for the run, or for one of its calls.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.record.borrow().state == State::Creating || self.activity.lock().under_way > 0
    }

    /// Asks the run's task to end all commands, without waiting for it.
    pub fn end_commands(&self) {
        // The task of a run that is launched takes no commands yet.
        if !self.starting.lock().is_empty() {
            self.stopping.cancel();
        }
        // If the queue is full, the run is ending or the watch will ask again.
        let _ = self.commands.try_send(Command::EndCommands);
    }

    /// Lets commands continue that were frozen for a measure, unless a hold freezes them.
    pub async fn settle_commands(&self) {
        // An error means that the run is over and has no commands.
        let _ = self.commands.send(Command::Settle).await;
    }

    /// Records that the run is in use now.
    pub(crate) fn touch(&self) {
        let mut activity = self.activity.lock();
        activity.last = Instant::now();
        activity.before = Duration::ZERO;
    }

    /// Renews the lease.
    pub fn keep_alive(&self) -> Result<(), Refusal> {
        let lease = self.lease.as_ref().ok_or_else(|| {
            Refusal::new(Reason::PreconditionFailed, "the run has no lease: CreateRun gives it one")
        })?;
        if lease.renew(Instant::now()) && !self.ended.is_cancelled() {
            return Ok(());
        }
        let message = "the run has ended or is ending: its lease was not renewed in time, or it was stopped";
        Err(Refusal::new(Reason::RunNotReady, message))
    }

    /// Returns the time until the lease ends, if there is one.
    pub fn lease_left(&self) -> Option<Duration> {
        self.lease.as_ref().map(|lease| lease.left(Instant::now()))
    }

    /// Begins the first term of the lease, now that the run is READY.
    pub(crate) fn begin_lease(&self) {
        if let Some(lease) = &self.lease {
            lease.begin(Instant::now());
        }
    }

    /// Returns true if the run ends within `patience`, or if its worker is missed then and the run ends for that.
    pub async fn ends_within(&self, patience: Duration) -> bool {
        if timeout(patience, self.ended.cancelled()).await.is_ok() {
            return true;
        }
        let ended = timeout(DECIDED, self.ended.cancelled());
        match self.lanes_for_review() {
            Ok(lanes) if lanes.guest().is_connected() => false,
            Ok(lanes) => tokio::select! {
                ended = ended => ended.is_ok(),
                true = lanes.guest().restarted() => false,
            },
            Err(_) => ended.await.is_ok(),
        }
    }

    /// Has the run end for a cause that is not its own. A launch is given up.
    pub async fn end(&self, cause: EndCause) {
        // Before the launch is given up, so that its task finds the cause.
        let queued = self.commands.try_send(Command::End(cause));
        self.stopping.cancel();
        if let Err(TrySendError::Full(command)) = queued {
            // An error means that the run is over.
            let _ = self.commands.send(command).await;
        }
    }

    /// Ends the run as failed, because of a fault with which no call may continue.
    pub async fn fail(&self, why: impl Into<ToolFailure>) {
        let _ = self.commands.send(Command::Fail(Box::new(why.into()))).await;
    }

    /// Ends the run as failed, because so many processes could not be ended, which `whose` describes.
    ///
    /// They are processes of its programs, so that the failure is theirs.
    pub async fn fail_for_processes(&self, left: u32, whose: &str) {
        let why = format!("{left} processes {whose} could not be ended");
        let failure = ToolFailure::new(Reason::Internal, why).by(Fault::Program);
        self.fail(failure.shown_by(Evidence::new("processes.left", left))).await;
    }
}

/// State of a run, for a call.
pub enum Readiness {
    /// The call can be made now.
    Ready(Arc<Lanes>),
    /// The call can be made in a moment: the last hold has ended, and the run is about to continue.
    Resuming,
    /// A hold keeps the call from being made. The refusal names it.
    Held(Refusal),
    /// The run no longer takes calls, or not yet.
    Over(Refusal),
}

/// Returns true if anything holds the run.
///
/// A hold is in the record before the run is PAUSED, and the run is READY again only after its last hold has left the record.
fn is_held(record: &Record) -> bool {
    !record.holds.is_empty() || record.state == State::Paused
}

pub(crate) fn is_held_totally(record: &Record) -> bool {
    is_resuming(record) || record.holds.iter().any(|held| held.hold.is_total())
}

/// Returns true if the run continues by itself in a moment: only a checkpoint or a restore holds it, or the last hold has ended.
pub(crate) fn is_resuming(record: &Record) -> bool {
    is_held(record)
        && record.holds.iter().all(|held| matches!(held.hold, Hold::Checkpoint(_) | Hold::Restore { .. }))
}
