//! Reasons why output is not stored, and a rate-limited log line about it.
//!
//! Commands decide how much they write, and must not decide how much is logged.

use std::io;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use refusal::chain;

use super::ledger::Key;

/// Interval between two log lines.
const QUIET: Duration = Duration::from_secs(10);

/// Reason why a piece of output is not stored.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotKept {
    #[error("spool.max_total is reached, and no output of an ended command is left to remove")]
    Full,
    #[error(
        "less than spool.min_free is left on its file system, and removing the output of ended commands did \
         not help"
    )]
    Scarce,
    #[error("its disk failed")]
    Io(#[from] io::Error),
    #[error("its disk does not answer")]
    Slow,
    #[error("a piece does not follow the last one")]
    Gap,
}

#[derive(Debug, Default)]
pub(super) struct Trouble(Mutex<Said>);

#[derive(Debug, Default)]
struct Said {
    last: Option<Instant>,
    /// Calls that were not mentioned since the last line.
    silent: u64,
}

impl Trouble {
    /// Logs that the rest of a call's output is not stored.
    pub(super) fn report(&self, key: Key, stream: &str, why: &NotKept) {
        if let Some(silent) = self.turn(Instant::now()) {
            tracing::warn!(
                run = %key.run, call = %key.call, stream, silent, error = %chain(why),
                "the output of a command is no longer stored; the command goes on",
            );
        }
    }

    /// A stream of a call that is over has no last piece.
    pub(super) fn report_without_end(&self, key: Key, stream: &str) {
        if let Some(silent) = self.turn(Instant::now()) {
            tracing::warn!(
                run = %key.run, call = %key.call, stream, silent,
                "the stored output of a command is incomplete: the daemon was lost meanwhile, or the file \
                 was cut",
            );
        }
    }

    /// Returns the number of lines left out since the last one, if it is time for another.
    fn turn(&self, now: Instant) -> Option<u64> {
        let mut said = self.0.lock();
        if said.last.is_some_and(|last| now.duration_since(last) < QUIET) {
            said.silent += 1;
            return None;
        }
        said.last = Some(now);
        Some(std::mem::take(&mut said.silent))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{QUIET, Trouble};

    #[test]
    fn many_calls_are_one_line_with_their_count() {
        let trouble = Trouble::default();
        let now = Instant::now();
        assert_eq!([now, now, now].map(|now| trouble.turn(now)), [Some(0), None, None]);
        assert_eq!([now + QUIET, now + QUIET].map(|now| trouble.turn(now)), [Some(2), None]);
    }
}
