//! Signals that end a command. From its creation on, none of them kills the process, so that clean-up is complete.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// Signals that were asked for.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Catches Ctrl-C, SIGTERM and the end of the terminal.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let catch = |kind| {
            signal(kind).map_err(|error| Failure::failed(format!("signals cannot be caught: {error}"), ""))
        };
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            hangup: catch(SignalKind::hangup())?,
        })
    }

    /// Does the work, or drops it at a signal.
    pub(crate) async fn or<T>(
        &mut self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            done = work => done,
            _ = self.interrupt.recv() => Err(interrupted(SignalKind::interrupt())),
            _ = self.terminate.recv() => Err(interrupted(SignalKind::terminate())),
            _ = self.hangup.recv() => Err(interrupted(SignalKind::hangup())),
        }
    }
}

fn interrupted(kind: SignalKind) -> Failure {
    Failure::Interrupted(u8::try_from(kind.as_raw_value()).unwrap_or_default())
}
