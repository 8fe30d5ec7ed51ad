//! Spans of time as requests have them.

use std::time::Duration;

/// A duration from a request: not negative, not absurd.
pub(crate) fn duration_from_wire(duration: &wire::Duration) -> Option<Duration> {
    let seconds = u64::try_from(duration.seconds).ok()?;
    let nanos = u32::try_from(duration.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(seconds, nanos)).filter(|duration| !duration.is_zero() && seconds <= 366 * 24 * 3600)
}
