//! A run, as everybody but its task sees it: its record, its lanes while it takes calls, and what it can be told.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use executor::Lanes;
use gateway::RunScope;
use identity::TokenHash;
use ops::{Operation, Reason};
use parking_lot::{Mutex, RwLock};
use refusal::Refusal;
use store::allowance::Allowance;
use store::run::{Held, Hold, Record, Spec, State, Workspace};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::held::{takes_no_call, takes_no_calls};
use crate::lease::Lease;
use crate::quota::Account;

/// A run, as everybody but its task sees it.
pub struct Run {
    pub(crate) record: watch::Receiver<Record>,
    spec: Arc<Spec>,
    pub(crate) lanes: Arc<RwLock<Option<Arc<Lanes>>>>,
    pub(crate) commands: mpsc::Sender<Command>,
    activity: Mutex<Activity>,
    lease: Option<Lease>,
    /// Held shared by calls that change files on the host.
    pub writing: Arc<tokio::sync::RwLock<()>>,
    /// Held by the call that was approved and is executed while the run stands still.
    pub alone: Arc<tokio::sync::Mutex<()>>,
    /// Held by the first of the calls that wait beside an approval, in the order of arrival, until it has its slot.
    pub line: Arc<tokio::sync::Mutex<()>>,
    /// What it has on the state disk.
    pub disk: Arc<Account>,
    /// The watch of the disk has frozen its commands.
    pub(crate) stands_still: AtomicBool,
    /// What may be kept of its processes, sessions and terminals.
    pub allowance: Arc<Allowance>,
    /// Cancelled when the run no longer takes calls.
    pub ended: CancellationToken,
}

/// What a run's task is told.
pub(crate) enum Command {
    /// End; answered when no process and no mount of the run is left.
    Stop(oneshot::Sender<()>),
    /// End as failed.
    Fail(String),
    /// Make the commands stand still, or let them go.
    Freeze(Freeze),
    /// End all commands: they have used up the disk.
    EndCommands,
    /// Freeze the commands or let them go on, as the holds say: the watch of the disk had frozen them.
    Settle,
    /// Live longer.
    Extend(Extend),
    /// Be opened by another token.
    Token(NewToken),
    /// Give the run up without ending it, for the next daemon; answered when nobody works in it any more.
    Leave(oneshot::Sender<()>),
}

/// What a run's task is to do about its holds.
pub(crate) struct Freeze {
    pub(crate) change: Change,
    pub(crate) done: oneshot::Sender<Result<(), Refusal>>,
}

pub(crate) enum Change {
    Hold(Held),
    /// All holds of which this is true.
    Release(Box<dyn Fn(&Hold) -> bool + Send + Sync>),
}

/// What a run's task is to do about its `ttl`.
pub(crate) struct Extend {
    pub(crate) ttl: Duration,
    /// Who asked.
    pub(crate) by: String,
    pub(crate) done: oneshot::Sender<Result<Record, Refusal>>,
}

/// What a run's task is to do about its token.
pub(crate) struct NewToken {
    pub(crate) hash: TokenHash,
    /// Who asked.
    pub(crate) by: String,
    pub(crate) done: oneshot::Sender<Result<Record, Refusal>>,
}

/// When a run was last used.
struct Activity {
    under_way: usize,
    last: Instant,
    /// Idle already at `last`, under a former daemon.
    before: Duration,
}

/// A call is under way, or waits for its reviewer: the run is not idle.
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
    /// A run whose lanes its task will fill in, and which has been `idle` for a while if it is not new. What was asked
    /// for never changes, so that it is copied here and once.
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
            ended: CancellationToken::new(),
        }
    }

    pub fn record(&self) -> Record {
        self.record.borrow().clone()
    }

    /// What was asked for.
    pub fn spec(&self) -> Arc<Spec> {
        self.spec.clone()
    }

    /// What the gateway has to know of the run.
    pub fn scope(&self) -> RunScope {
        let record = self.record.borrow();
        let image_id = record.started.as_ref().map(|started| started.image_id.clone()).unwrap_or_default();
        RunScope { profile: record.spec.profile.clone(), image_id }
    }

    /// Refuses what would keep more than the run's allowance. `what` follows from it.
    pub fn no_room(&self, what: &str) -> Refusal {
        let (used, most) = (self.allowance.used(), self.allowance.most());
        let message = format!(
            "the daemon keeps {} MiB of what the processes, sessions and terminals of this run write and are given, of at most {} MiB \
             (limits.output_mib of its profile), so that {what}",
            used.div_ceil(1 << 20),
            most >> 20
        );
        Refusal::new(Reason::WriteLimit, message)
            .with("limit", "kept-output")
            .with("used_bytes", used.to_string())
            .with("max_bytes", most.to_string())
    }

    /// The lanes, while the run takes calls.
    pub fn lanes(&self) -> Result<Arc<Lanes>, Refusal> {
        let record = self.record.borrow();
        let lanes = self.lanes.read().clone();
        lanes.filter(|_| record.state == State::Ready).ok_or_else(|| takes_no_call(&record))
    }

    /// Returns whether a call of this operation can be made. One that only looks can, also while a reviewer is asked about another
    /// call.
    pub fn readiness(&self, operation: &Operation) -> Readiness {
        let record = self.record.borrow();
        let lanes = self.lanes.read().clone();
        let Some(lanes) = lanes.filter(|_| matches!(record.state, State::Ready | State::Paused)) else {
            return Readiness::Over(takes_no_calls(record.state));
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

    /// Checks that a call may ask for consent: nothing holds the run but calls that wait for theirs.
    pub fn check_asking(&self) -> Result<(), Refusal> {
        let record = self.record.borrow();
        if is_held_totally(&record) && !is_resuming(&record) {
            return Err(takes_no_call(&record));
        }
        drop(record);
        self.lanes_for_review().map(drop)
    }

    /// The lanes, after the moment in which the run goes on again if it is in that.
    pub async fn lanes_resumed(&self) -> Result<Arc<Lanes>, Refusal> {
        let mut record = self.record.clone();
        let _ = record.wait_for(|record| !is_resuming(record)).await;
        self.lanes()
    }

    /// The lanes for looking at what a reviewer decides on: also while the run is paused, when its commands stand still.
    pub fn lanes_for_review(&self) -> Result<Arc<Lanes>, Refusal> {
        let state = self.record.borrow().state;
        let lanes = self.lanes.read().clone();
        lanes.filter(|_| matches!(state, State::Ready | State::Paused)).ok_or_else(|| takes_no_calls(state))
    }

    /// Waits while the run is paused for calls of this operation. What it is then is for [`Self::readiness`] to say.
    pub async fn resumed_for(&self, operation: &Operation) {
        let mut record = self.record.clone();
        let held = if operation.has_effect() { is_held } else { is_held_totally };
        // The sender goes with the run's task; its last word stays readable.
        let _ = record.wait_for(|record| !held(record)).await;
    }

    /// Waits until nothing holds the run but calls that wait for their approval.
    pub async fn resumed_but_for_approvals(&self) {
        let mut record = self.record.clone();
        let _ = record.wait_for(|record| !is_held_totally(record)).await;
    }

    /// Whether more than calls that wait for their approval holds the run.
    pub fn is_held_totally(&self) -> bool {
        is_held_totally(&self.record.borrow())
    }

    /// Waits until no call changes a file on the host that had begun before.
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

    /// Whether anything was done in it since.
    pub(crate) fn was_used_since(&self, at: Instant) -> bool {
        let activity = self.activity.lock();
        activity.under_way > 0 || activity.last >= at
    }

    /// Whether somebody waits for the run, or for a call of it.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.record.borrow().state == State::Creating || self.activity.lock().under_way > 0
    }

    /// Ends all commands of the run. Whoever asks does not wait.
    pub(crate) fn end_commands(&self) {
        // With so much to do already it ends, or will be asked again.
        let _ = self.commands.try_send(Command::EndCommands);
    }

    /// Lets commands go on that stood still to be measured, unless something holds them.
    pub(crate) async fn settle_commands(&self) {
        // A run that is over has none.
        let _ = self.commands.send(Command::Settle).await;
    }

    /// It was used just now.
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
        let message =
            "the run has ended, or is ending: nobody renewed its lease in time, or somebody stopped it";
        Err(Refusal::new(Reason::RunNotReady, message))
    }

    /// Until the lease ends, if there is one.
    pub fn lease_left(&self) -> Option<Duration> {
        self.lease.as_ref().map(|lease| lease.left(Instant::now()))
    }

    /// It took until now to be READY.
    pub(crate) fn begin_lease(&self) {
        if let Some(lease) = &self.lease {
            lease.begin(Instant::now());
        }
    }

    /// Ends the run as failed: something is wrong with it that no call may go on with.
    pub async fn fail(&self, why: String) {
        let _ = self.commands.send(Command::Fail(why)).await;
    }
}

/// A run as a call finds it.
pub enum Readiness {
    /// The call can be made now.
    Ready(Arc<Lanes>),
    /// It can be made in a moment: the last hold has ended, and the run is about to go on.
    Resuming,
    /// Something holds the run from it, which the refusal names.
    Held(Refusal),
    /// The run takes no calls, or not yet.
    Over(Refusal),
}

/// Holds are in the record before the run is PAUSED, and it is READY again when they have left it.
fn is_held(record: &Record) -> bool {
    !record.holds.is_empty() || record.state == State::Paused
}

fn is_held_totally(record: &Record) -> bool {
    is_resuming(record) || record.holds.iter().any(|held| held.hold.is_total())
}

/// Returns whether the last hold has ended and the commands are about to go on, which takes milliseconds.
fn is_resuming(record: &Record) -> bool {
    record.state == State::Paused && record.holds.is_empty()
}
