//! A source of time that tests can replace.

use std::fmt;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::UnixMillis;

/// A source of time.
///
/// The wall clock may jump. A jump forward lets approvals expire early; a jump backward lets them live longer. Neither
/// lets a call run without consent. Rate limits use [`Clock::uptime`], which does not jump.
pub trait Clock: fmt::Debug + Send + Sync {
    fn now(&self) -> UnixMillis;

    /// Returns the time since a fixed moment in the past.
    ///
    /// It never goes back and never jumps when the wall clock is set. It may stop while the host sleeps.
    fn uptime(&self) -> Duration;
}

/// The system's wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> UnixMillis {
        UnixMillis::now()
    }

    fn uptime(&self) -> Duration {
        static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
        BEGAN.elapsed()
    }
}
