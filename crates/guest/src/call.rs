//! One call in the guest, and the table of the calls that are under way.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use operations::{Bounds, KillEvidence};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::credit::Credit;
use crate::outbox::Outbox;
use crate::terminal_input::TerminalInput;

/// Most calls at the same time. The daemon has a lower limit.
pub(crate) const MAX_CALLS: usize = 64;
/// Queue of a call's signals. A correct daemon sends a call at most Go, Go and Cancel.
const SIGNALS: usize = 4;

/// Message of the daemon to a call that runs.
#[derive(Debug)]
pub(crate) enum Signal {
    /// Continue, after Spawned or after Ended.
    Go(Option<KillEvidence>),
    Cancel,
}

pub(crate) struct Call {
    /// Number that the daemon gave to the call.
    pub(crate) id: u64,
    /// Time by which the call must be over.
    pub(crate) deadline: Instant,
    /// True if the daemon puts commands into cgroups and ends them there.
    pub(crate) placed: bool,
    /// Number of a process that waits to become the call's command. 0 is none.
    pub(crate) prepared: u64,
    pub(crate) preview: bool,
    pub(crate) bounds: Bounds,
    pub(crate) credit: Arc<Credit>,
    /// The terminal that the command gets instead of pipes.
    pub(crate) input: Option<Arc<TerminalInput>>,
    pub(crate) signals: mpsc::Receiver<Signal>,
    /// A Cancel came while the call waited for another event.
    pub(crate) is_cancelled: bool,
    pub(crate) outbox: Outbox,
}

impl Call {
    /// Waits until the daemon cancels the call, or is gone. Ignores an unexpected Go.
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
    /// There are too many calls.
    Full,
    /// There is a call with this id.
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

    /// Returns true if there is a call with this id.
    pub(crate) fn has(&self, id: u64) -> bool {
        self.0.lock().contains_key(&id)
    }

    /// Forwards a signal to a call. A call that has just ended does not get it.
    pub(crate) fn signal(&self, id: u64, signal: Signal) {
        if let Some(call) = self.0.lock().get(&id) {
            let _ = call.signals.try_send(signal);
        }
    }

    /// Adds to the credit of a call, unless the call has just ended.
    pub(crate) fn grant(&self, id: u64, bytes: u64) {
        if let Some(call) = self.0.lock().get(&id) {
            call.credit.grant(bytes);
        }
    }

    /// Sends a message to a call's terminal, and returns true if that was possible. For a call that has just ended this returns true.
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

/// Returns the time that is this many milliseconds from now. A limit keeps clocks from overflowing.
pub(crate) fn deadline(millis: u64) -> Instant {
    const LONGEST: u64 = 24 * 60 * 60 * 1000;
    Instant::now() + Duration::from_millis(millis.min(LONGEST))
}
