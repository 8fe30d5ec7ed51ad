use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// The first moment after the year 9999, which is no date.
const END: u64 = 253_402_300_800_000;

/// A moment, in milliseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// Returns the time of the system's clock.
    pub fn now() -> Self {
        Self(0).after(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// Returns this moment plus `duration`, or the largest time if that overflows.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Returns the time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Returns the whole seconds since 1970.
    pub fn seconds(self) -> u64 {
        self.0 / 1_000
    }

    /// Converts to the API's form, which ends with the year 9999.
    pub fn to_wire(self) -> prost_types::Timestamp {
        let Self(millis) = self.min(Self(END - 1));
        prost_types::Timestamp {
            seconds: i64::try_from(millis / 1_000).unwrap_or(i64::MAX),
            nanos: i32::try_from(millis % 1_000).unwrap_or(0) * 1_000_000,
        }
    }

    /// Converts a moment from a request. `None` if it is before 1970 or after 9999.
    pub fn from_wire(at: &prost_types::Timestamp) -> Option<Self> {
        let seconds = u64::try_from(at.seconds).ok()?;
        let nanos = u64::try_from(at.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
        let millis = seconds.checked_mul(1_000)?.checked_add(nanos / 1_000_000)?;
        Some(Self(millis)).filter(|at| at.0 < END)
    }
}

/// Rounds down to milliseconds; a moment before 1970 becomes 1970.
impl From<Timestamp> for UnixMillis {
    fn from(at: Timestamp) -> Self {
        let seconds = u64::try_from(at.unix_seconds()).unwrap_or(0);
        Self(seconds.saturating_mul(1_000).saturating_add(u64::from(at.subsecond_nanos() / 1_000_000)))
    }
}

/// RFC 3339.
impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = i64::try_from(self.0).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
        at.map_or(Ok(()), |at| at.fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_of_a_request_is_from_1970_to_9999() {
        let moment = |seconds, nanos| UnixMillis::from_wire(&prost_types::Timestamp { seconds, nanos });
        assert_eq!(moment(0, 0), Some(UnixMillis(0)));
        assert_eq!(moment(253_402_300_799, 999_999_999), Some(UnixMillis(END - 1)));
        for (seconds, nanos) in [(-1, 0), (0, -1), (0, 1_000_000_000), (253_402_300_800, 0), (i64::MAX, 0)] {
            assert_eq!(moment(seconds, nanos), None, "{seconds} {nanos}");
        }
        let at = UnixMillis(1_700_000_000_123);
        assert_eq!(UnixMillis::from_wire(&at.to_wire()), Some(at));
        assert_eq!(UnixMillis(u64::MAX).to_wire(), UnixMillis(END - 1).to_wire());
        assert_eq!(at.to_string(), "2023-11-14T22:13:20.123Z");
    }
}
