//! The line from a keyboard to a terminal: when something may be sent on it, and how much.

use tokio::sync::{Semaphore, SetOnce};

use crate::terminal::MAX_UNTAKEN;

/// Shared by the keyboard, who waits; the driver, who begins and ends it; and the table, who hears what was taken.
#[derive(Debug)]
pub(super) struct Line {
    /// Set when the Start was sent: a call is not known to the worker before.
    begun: SetOnce<()>,
    /// A permit for each byte that may be sent.
    pub(super) room: Semaphore,
    /// It leads to a pipe: there is a standard error beside the output.
    pub(super) pipes: bool,
}

impl Line {
    pub(super) fn new(pipes: bool) -> Self {
        Self { begun: SetOnce::new(), room: Semaphore::new(MAX_UNTAKEN), pipes }
    }

    /// The worker knows the call by the time that it hears what is sent from now on.
    pub(super) fn begin(&self) {
        // Once a call.
        let _ = self.begun.set(());
    }

    /// Waits until something may be sent.
    pub(super) async fn begun(&self) {
        self.begun.wait().await;
    }

    /// There is nothing to type at any more: nobody waits for room.
    pub(super) fn end(&self) {
        self.room.close();
    }
}
