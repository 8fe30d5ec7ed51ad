//! The signals that stop the daemon, from its start to a hand-over.

use std::io;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::program::release_stops;

/// Time in which a runtime delivers a signal that has come.
const DELIVERY: Duration = Duration::from_millis(20);

/// SIGTERM and SIGINT, which stop the daemon.
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Notes the signals from now on, also those that come while nothing waits for them.
    pub fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Notes the signals from now on, and those that were held back by a hand-over that failed.
    pub fn with_held_back() -> io::Result<Self> {
        let noted = Self::new()?;
        release_stops()?;
        Ok(noted)
    }

    /// Waits for one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Returns true if one came that nothing waited for, also after the end of the daemon's runtime.
    pub(crate) fn came(mut self) -> bool {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.is_ok_and(|runtime| {
            runtime.block_on(async { tokio::time::timeout(DELIVERY, self.next()).await.is_ok() })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_to_stop_that_came_while_nothing_waited_is_not_lost() {
        let stop = || rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM);
        let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
        let within = runtime();
        let [mut waits, one, other] =
            within.block_on(async { [(); 3].map(|()| StopSignals::new().unwrap()) });
        stop().unwrap();
        within.block_on(async { tokio::time::timeout(Duration::from_secs(10), waits.next()).await.unwrap() });
        assert!(one.came(), "it came while the runtime lived, and was not waited for");
        drop(within);
        assert!(other.came(), "the same, after the end of the runtime");
        let [before, after] = runtime().block_on(async { [(); 2].map(|()| StopSignals::new().unwrap()) });
        assert!(!before.came());
        stop().unwrap();
        assert!(after.came(), "it came when there was no runtime");
    }

    #[test]
    fn a_request_to_stop_that_was_held_back_is_not_lost() {
        crate::program::hold_signals().unwrap();
        crate::program::ask_to_stop().unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let noted = runtime.block_on(async { StopSignals::with_held_back().unwrap() });
        assert!(noted.came());
    }
}
