//! Rates of a run.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// Counts the connections of the last minute.
#[derive(Debug, Default)]
pub(crate) struct PerMinute(VecDeque<Instant>);

impl PerMinute {
    /// Counts one more at `now`. Returns false if there are `most` already.
    pub(crate) fn take(&mut self, most: u32, now: Instant) -> bool {
        while self.0.front().is_some_and(|then| now.saturating_duration_since(*then) >= MINUTE) {
            self.0.pop_front();
        }
        let free = self.0.len() < usize::try_from(most).unwrap_or(usize::MAX);
        if free {
            self.0.push_back(now);
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_has_so_many_connections_and_no_more() {
        let (mut rate, now) = (PerMinute::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(
            [0, 1, 2, 59, 60, 60, 61].map(|second| rate.take(2, at(second))),
            [true, true, false, false, true, false, true]
        );
    }
}
