//! Time, injected: the gateway never reads the system's clock itself.

use std::fmt;
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A moment, in milliseconds since 1970-01-01 UTC. Approvals outlive the daemon, so they need the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// Returns this moment plus `duration`, or the largest time if that overflows.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Returns the time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

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
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMillis(0).after(since)
    }

    fn uptime(&self) -> Duration {
        static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
        BEGAN.elapsed()
    }
}
