//! One call in the agent, from its Start frame to its outcome, and the table of those in flight.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ops::{Bounds, KillEvidence, OpResult, Operation, Outcome, Reason, ToolFailure};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::outbox::Outbox;
use crate::serve::Lane;
use crate::{exec, files};

/// Calls at once. The daemon has its own, lower limit.
pub(crate) const MAX_CALLS: usize = 64;
/// A well-behaved daemon sends a call at most Go, Go and Cancel.
const SIGNALS: usize = 4;

/// What the daemon says about a call that runs.
#[derive(Debug)]
pub(crate) enum Signal {
    /// Go on, after Spawned or after Ended.
    Go(Option<KillEvidence>),
    /// End it.
    Cancel,
}

/// A call that runs.
pub(crate) struct Call {
    /// As the daemon numbers it.
    pub(crate) id: u64,
    /// When it must be over.
    pub(crate) deadline: Instant,
    /// The daemon puts commands into cgroups and ends them there.
    pub(crate) placed: bool,
    /// Only look.
    pub(crate) preview: bool,
    /// The profile's bounds.
    pub(crate) bounds: Bounds,
    /// From the daemon.
    pub(crate) signals: mpsc::Receiver<Signal>,
    /// To the daemon.
    pub(crate) outbox: Outbox,
}

impl Call {
    /// Executes the operation and sends what came of it.
    pub(crate) async fn run(mut self, operation: Result<Operation, ToolFailure>, lane: &Lane) {
        let outcome = match operation {
            Ok(operation) => self.execute(operation, lane).await,
            Err(failure) => Err(failure),
        };
        // Before the daemon can know that the call is over, so that it never has more than it believes.
        lane.calls.forget(self.id);
        self.outbox.outcome(self.id, outcome).await;
    }

    async fn execute(&mut self, operation: Operation, lane: &Lane) -> Outcome {
        match operation {
            Operation::Exec(_) | Operation::Shell(_) if self.preview => {
                Err(ToolFailure::new(Reason::InvalidArgument, "exec: a command has no preview"))
            }
            Operation::Exec(exec) => exec::run(self, lane, exec).await.map(OpResult::Exec),
            Operation::Shell(shell) => exec::shell(self, lane, shell).await.map(OpResult::Shell),
            other => files::run(self, lane, other).await,
        }
    }

    /// Waits until the daemon asks to end the call, or is gone. A Go that nobody waits for is ignored.
    pub(crate) async fn cancelled(&mut self) {
        while let Some(Signal::Go(_)) = self.signals.recv().await {}
    }
}

/// The calls in flight.
#[derive(Default)]
pub(crate) struct Calls(Mutex<HashMap<u64, mpsc::Sender<Signal>>>);

/// Why a call was not taken.
pub(crate) enum NotTaken {
    /// There are too many.
    Full,
    /// There is one of this id.
    Duplicate,
}

impl Calls {
    /// Makes an entry.
    pub(crate) fn begin(&self, id: u64) -> Result<mpsc::Receiver<Signal>, NotTaken> {
        let mut calls = self.lock();
        if calls.contains_key(&id) {
            return Err(NotTaken::Duplicate);
        }
        if calls.len() >= MAX_CALLS {
            return Err(NotTaken::Full);
        }
        let (signals, receiver) = mpsc::channel(SIGNALS);
        calls.insert(id, signals);
        Ok(receiver)
    }

    /// Passes a signal on. A call that has just ended does not hear it.
    pub(crate) fn signal(&self, id: u64, signal: Signal) {
        if let Some(signals) = self.lock().get(&id) {
            let _ = signals.try_send(signal);
        }
    }

    fn forget(&self, id: u64) {
        self.lock().remove(&id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, mpsc::Sender<Signal>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The moment that lies so many milliseconds ahead, capped where a clock would overflow.
pub(crate) fn deadline(millis: u64) -> Instant {
    const LONGEST: u64 = 24 * 60 * 60 * 1000;
    Instant::now() + Duration::from_millis(millis.min(LONGEST))
}
