//! The line from a keyboard to a terminal. It controls when input may be sent on it, and how much.

use tokio::sync::{Semaphore, SetOnce};

use crate::terminal::MAX_UNTAKEN;

/// Shared by the keyboard, which waits; the driver, which begins and ends it; and the table, which learns of taken input.
#[derive(Debug)]
pub(super) struct Line {
    /// Set when the Start was sent. The worker does not know the call before.
    begun: SetOnce<()>,
    /// One permit for each byte that may be sent.
    pub(super) space: Semaphore,
    /// True if it leads to a pipe, so that there is a standard error besides the output.
    pub(super) pipes: bool,
}

impl Line {
    pub(super) fn new(pipes: bool) -> Self {
        Self { begun: SetOnce::new(), space: Semaphore::new(MAX_UNTAKEN), pipes }
    }

    /// Permits input, because the worker receives it after the Start of the call.
    pub(super) fn begin(&self) {
        // Called once for each call.
        let _ = self.begun.set(());
    }

    /// Waits until input may be sent.
    pub(super) async fn begun(&self) {
        self.begun.wait().await;
    }

    /// Ends the line, so that no task waits for space.
    pub(super) fn end(&self) {
        self.space.close();
    }
}
