//! One call in the guest, and the table of those in flight.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ops::{Bounds, KillEvidence};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::credit::Credit;
use crate::outbox::Outbox;
use crate::terminal_input::TerminalInput;

/// Calls at once. The daemon has its own, lower limit.
pub(crate) const MAX_CALLS: usize = 64;
/// A well-behaved daemon sends a call at most Go, Go and Cancel of these.
const SIGNALS: usize = 4;

/// What the daemon says about a call that runs.
#[derive(Debug)]
pub(crate) enum Signal {
    /// Go on, after Spawned or after Ended.
    Go(Option<KillEvidence>),
    Cancel,
}

pub(crate) struct Call {
    /// As the daemon numbers it.
    pub(crate) id: u64,
    /// When it must be over.
    pub(crate) deadline: Instant,
    /// The daemon puts commands into cgroups and ends them there.
    pub(crate) placed: bool,
    /// The number of a process that waits to become its command; 0 for none.
    pub(crate) prepared: u64,
    pub(crate) preview: bool,
    pub(crate) bounds: Bounds,
    pub(crate) credit: Arc<Credit>,
    /// The terminal that a command is to get instead of pipes.
    pub(crate) input: Option<Arc<TerminalInput>>,
    pub(crate) signals: mpsc::Receiver<Signal>,
    /// A Cancel has come while something else was waited for.
    pub(crate) is_cancelled: bool,
    pub(crate) outbox: Outbox,
}

impl Call {
    /// Waits until the daemon asks to end the call, or is gone. A Go that nobody waits for is ignored.
    pub(crate) async fn cancelled(&mut self) {
        while !self.is_cancelled {
            self.is_cancelled = !matches!(self.signals.recv().await, Some(Signal::Go(_)));
        }
    }
}

#[derive(Default)]
pub(crate) struct Calls(Mutex<HashMap<u64, Hearing>>);

pub(crate) struct Hearing {
    signals: mpsc::Sender<Signal>,
    credit: Arc<Credit>,
    input: Option<Arc<TerminalInput>>,
}

pub(crate) enum NotTaken {
    /// There are too many.
    Full,
    /// There is one of this id.
    Duplicate,
}

impl Calls {
    pub(crate) fn begin(
        &self,
        id: u64,
        credit: &Arc<Credit>,
        input: Option<&Arc<TerminalInput>>,
    ) -> Result<mpsc::Receiver<Signal>, NotTaken> {
        let mut calls = self.0.lock();
        if calls.contains_key(&id) {
            return Err(NotTaken::Duplicate);
        }
        if calls.len() >= MAX_CALLS {
            return Err(NotTaken::Full);
        }
        let (signals, receiver) = mpsc::channel(SIGNALS);
        calls.insert(id, Hearing { signals, credit: Arc::clone(credit), input: input.map(Arc::clone) });
        Ok(receiver)
    }

    /// Whether there is one of this id.
    pub(crate) fn has(&self, id: u64) -> bool {
        self.0.lock().contains_key(&id)
    }

    /// Passes a signal on. A call that has just ended does not hear it.
    pub(crate) fn signal(&self, id: u64, signal: Signal) {
        if let Some(call) = self.0.lock().get(&id) {
            let _ = call.signals.try_send(signal);
        }
    }

    /// There is room for more output of a call, unless it has just ended.
    pub(crate) fn grant(&self, id: u64, bytes: u64) {
        if let Some(call) = self.0.lock().get(&id) {
            call.credit.grant(bytes);
        }
    }

    /// Says something to a call's terminal: whether it could be said. To one that has just ended everything can.
    pub(crate) fn at_terminal(&self, id: u64, say: impl FnOnce(&TerminalInput) -> bool) -> bool {
        match self.0.lock().get(&id) {
            Some(call) => call.input.as_deref().is_some_and(say),
            None => true,
        }
    }

    pub(crate) fn forget(&self, id: u64) {
        self.0.lock().remove(&id);
    }
}

/// The moment that lies so many milliseconds ahead, capped where a clock would overflow.
pub(crate) fn deadline(millis: u64) -> Instant {
    const LONGEST: u64 = 24 * 60 * 60 * 1000;
    Instant::now() + Duration::from_millis(millis.min(LONGEST))
}
