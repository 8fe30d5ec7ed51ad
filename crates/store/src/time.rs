//! Wall-clock time as the API and the store have it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Nanoseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
    }

    pub fn from_millis(millis: u64) -> Self {
        Self(i64::try_from(millis).unwrap_or(i64::MAX).saturating_mul(1_000_000))
    }

    /// When a record of the audit log was written.
    pub fn of_record(time: audit::Time) -> Self {
        let seconds = time.unix_seconds().saturating_mul(1_000_000_000);
        Self(seconds.saturating_add(time.subsecond_nanos().into()))
    }

    /// How long ago that was; nothing when the clock was set back meanwhile.
    pub fn elapsed(self) -> Duration {
        let nanos = Self::now().0.saturating_sub(self.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    /// So much later.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)))
    }

    pub fn to_wire(self) -> wire::Timestamp {
        let nanos = i32::try_from(self.0.rem_euclid(1_000_000_000)).unwrap_or(0);
        wire::Timestamp { seconds: self.0.div_euclid(1_000_000_000), nanos }
    }
}

/// Saturates at `u64::MAX` microseconds.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A duration from a request: not negative, not absurd.
pub fn duration_from_wire(duration: &wire::Duration) -> Option<Duration> {
    let seconds = u64::try_from(duration.seconds).ok()?;
    let nanos = u32::try_from(duration.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(seconds, nanos)).filter(|duration| !duration.is_zero() && seconds <= 366 * 24 * 3600)
}
