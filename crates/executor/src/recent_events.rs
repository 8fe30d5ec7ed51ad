//! Counts of a container's limit events from shortly before now.
//!
//! Only an event around the loss of a worker, or around the end of its container, explains it. A program must not gain by one of long ago.

use std::time::{Duration, Instant};

use containers::LimitEvents;

/// Time between two samples, at least.
pub(crate) const APART: Duration = Duration::from_secs(10);

/// The last two samples of the counts.
#[derive(Debug)]
pub(crate) struct RecentEvents {
    before: LimitEvents,
    last: LimitEvents,
    at: Instant,
}

impl RecentEvents {
    pub(crate) fn new(events: LimitEvents, now: Instant) -> Self {
        Self { before: events, last: events, at: now }
    }

    /// Takes another sample if the last one is old enough.
    pub(crate) fn sample(&mut self, now: Instant, read: impl FnOnce() -> LimitEvents) {
        if now.saturating_duration_since(self.at) >= APART {
            (self.before, self.last, self.at) = (self.last, read(), now);
        }
    }

    /// Returns the events since the last sample but one: the last one may have been taken after the events that are looked for.
    pub(crate) fn until(&self, events: LimitEvents) -> LimitEvents {
        events.since(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_count_for_one_interval_at_least_and_for_two_at_most() {
        let kills = |oom_kills| LimitEvents { oom_kills, ..LimitEvents::default() };
        let start = Instant::now();
        let mut recent = RecentEvents::new(kills(0), start);
        let moment = Duration::from_millis(1);
        recent.sample((start + APART).checked_sub(moment).unwrap(), || kills(1));
        assert_eq!(recent.until(kills(1)).oom_kills, 1);
        recent.sample(start + APART, || kills(1));
        assert_eq!(recent.until(kills(1)).oom_kills, 1, "it was killed just before the sample");
        recent.sample(start + 2 * APART, || kills(1));
        assert_eq!(recent.until(kills(1)).oom_kills, 0, "it was killed long ago");
        assert_eq!(recent.until(kills(2)).oom_kills, 1);
    }
}
