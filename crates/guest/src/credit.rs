//! Credit: the number of bytes of a call's output that the daemon can take.

use tokio::sync::watch;

/// Total credit of one call. The code that uses it counts the bytes that were used.
pub(crate) struct Credit(watch::Sender<u64>);

impl Credit {
    /// Starts with the window that the call began with.
    pub(crate) fn new(window: u64) -> Self {
        Self(watch::Sender::new(window))
    }

    /// Adds credit.
    pub(crate) fn grant(&self, bytes: u64) {
        self.0.send_modify(|granted| *granted = granted.saturating_add(bytes));
    }

    /// Returns the bytes that may be sent after `used`.
    pub(crate) fn left(&self, used: u64) -> u64 {
        self.0.borrow().saturating_sub(used)
    }

    /// Waits until there is credit beyond `used`, which is read again after each grant.
    pub(crate) async fn more(&self, used: impl Fn() -> u64) {
        // The sender lives as long as `self`.
        let _ = self.0.subscribe().wait_for(|granted| *granted > used()).await;
    }
}
