//! Cancellation of file operations. An operation checks for it between two blocks or two files.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use operations::{Reason, ToolFailure};

/// Switch that stops one operation. Clones share its state.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    flag: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Cancel {
    /// Creates a switch that stops at `deadline`, if there is one, or when [`cancel`](Self::cancel) is called.
    pub fn new(deadline: Option<Instant>) -> Self {
        Self { flag: Arc::default(), deadline }
    }

    /// Asks the operation to stop. It answers `CANCELLED` at its next check.
    pub fn cancel(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// Returns true if the operation has to stop, for either cause.
    pub fn is_cancelled(&self) -> bool {
        self.check().is_err()
    }

    /// Returns true if the operation was cancelled or its deadline has passed.
    pub fn is_over(&self) -> bool {
        self.check().is_err()
    }

    pub(crate) fn check(&self) -> Result<(), Stopped> {
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Stopped::TimedOut);
        }
        if self.flag.load(Ordering::Relaxed) { Err(Stopped::Cancelled) } else { Ok(()) }
    }
}

/// Reason for which an operation stopped before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    Cancelled,
    TimedOut,
}

impl Stopped {
    /// Returns the failure, with the progress that was made until then.
    pub(crate) fn failure(self, done: impl fmt::Display) -> ToolFailure {
        let (reason, what) = match self {
            Self::Cancelled => (Reason::Cancelled, "cancelled"),
            Self::TimedOut => (Reason::TimedOut, "stopped by the call's deadline"),
        };
        ToolFailure::new(reason, format!("{what}: {done}"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_clone_is_the_same_switch() {
        let cancel = Cancel::new(None);
        let other = cancel.clone();
        assert!(!other.is_cancelled());
        cancel.cancel();
        assert_eq!(other.check(), Err(Stopped::Cancelled));
    }

    #[test]
    fn the_deadline_stops_too() {
        let now = Instant::now();
        let late = Cancel::new(Some(now));
        assert_eq!(late.check(), Err(Stopped::TimedOut));
        late.cancel();
        assert_eq!(
            late.check(),
            Err(Stopped::TimedOut),
            "whoever insists on the deadline does not change the reason"
        );
        assert_eq!(Cancel::new(Some(now + Duration::from_secs(3600))).check(), Ok(()));
    }
}
