//! Durations in the formats of the API and the audit log.

use std::time::Duration;

/// Returns the duration in microseconds, at most `u64::MAX`.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Converts a duration from a request. `None` if it is zero, negative or longer than 366 days.
pub fn duration_from_wire(duration: &prost_types::Duration) -> Option<Duration> {
    let seconds = u64::try_from(duration.seconds).ok()?;
    let nanos = u32::try_from(duration.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(seconds, nanos)).filter(|duration| !duration.is_zero() && seconds <= 366 * 24 * 3600)
}
