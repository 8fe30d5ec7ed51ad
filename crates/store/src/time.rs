//! Wall-clock time in the formats of the API and the store.

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

    /// Returns the time at which a record of the audit log was written.
    pub fn of_record(time: audit::Time) -> Self {
        let seconds = time.unix_seconds().saturating_mul(1_000_000_000);
        Self(seconds.saturating_add(time.subsecond_nanos().into()))
    }

    /// Returns the time that has passed since, or zero if the clock was set back meanwhile.
    pub fn elapsed(self) -> Duration {
        let nanos = Self::now().0.saturating_sub(self.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    /// Returns the time that is later by this duration.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)))
    }

    pub fn to_wire(self) -> wire::Timestamp {
        let nanos = i32::try_from(self.0.rem_euclid(1_000_000_000)).unwrap_or(0);
        wire::Timestamp { seconds: self.0.div_euclid(1_000_000_000), nanos }
    }
}

/// Returns the duration in microseconds, at most `u64::MAX`.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Converts a duration from a request. `None` if it is zero, negative or longer than 366 days.
pub fn duration_from_wire(duration: &wire::Duration) -> Option<Duration> {
    let seconds = u64::try_from(duration.seconds).ok()?;
    let nanos = u32::try_from(duration.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(seconds, nanos)).filter(|duration| !duration.is_zero() && seconds <= 366 * 24 * 3600)
}
