//! The signals that stop the daemon.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT, which stop the daemon.
pub(super) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Notes the signals from now on, also those that come while nothing waits for them.
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for one.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Returns true if one came that nothing waited for.
    pub(super) async fn came(&mut self) -> bool {
        tokio::time::timeout(Duration::ZERO, self.next()).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_to_stop_that_came_while_nothing_waited_is_not_lost() {
        let mut stops = StopSignals::new().unwrap();
        assert!(!stops.came().await);
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
        tokio::time::timeout(Duration::from_secs(10), stops.next()).await.unwrap();
        assert!(!stops.came().await);
    }
}
