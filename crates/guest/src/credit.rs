//! How much output of a call the daemon has room for.

use tokio::sync::watch;

/// The account of one call: what was granted altogether. What was used is counted by who uses it.
pub(crate) struct Credit(watch::Sender<u64>);

impl Credit {
    /// With the window that the call began with.
    pub(crate) fn new(window: u64) -> Self {
        Self(watch::Sender::new(window))
    }

    /// There is room for more.
    pub(crate) fn grant(&self, bytes: u64) {
        self.0.send_modify(|granted| *granted = granted.saturating_add(bytes));
    }

    /// Bytes that may be sent after `used`.
    pub(crate) fn left(&self, used: u64) -> u64 {
        self.0.borrow().saturating_sub(used)
    }

    /// Waits until another credit comes, or there is something left after what `used` says then.
    pub(crate) async fn more(&self, used: impl Fn() -> u64) {
        // The sender is `self`.
        let _ = self.0.subscribe().wait_for(|granted| *granted > used()).await;
    }
}
