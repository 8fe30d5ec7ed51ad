//! The number of warm containers to keep, from the recent demand.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time for which a request for a run counts.
const LATELY: Duration = Duration::from_secs(60);

/// Recent requests that a pool could have served, whether it did or not.
#[derive(Debug, Default)]
pub(super) struct Demand(VecDeque<Instant>);

impl Demand {
    /// Records a request for a run. Forgets the oldest beyond `most`.
    pub(super) fn note(&mut self, now: Instant, most: usize) {
        self.0.push_back(now);
        while self.0.len() > most {
            self.0.pop_front();
        }
    }

    /// Returns the number of recent requests, within the bounds.
    pub(super) fn target(&mut self, now: Instant, min: usize, max: usize) -> usize {
        while self.0.front().is_some_and(|asked| now.duration_since(*asked) >= LATELY) {
            self.0.pop_front();
        }
        self.0.len().max(min).min(max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_follows_demand_within_its_bounds_and_falls_again() {
        let begin = Instant::now();
        let mut demand = Demand::default();
        assert_eq!(demand.target(begin, 0, 4), 0);
        assert_eq!(demand.target(begin, 2, 4), 2);
        for asked in 1..=10 {
            demand.note(begin + Duration::from_secs(asked), 4);
        }
        assert_eq!(demand.target(begin + Duration::from_secs(10), 2, 4), 4);
        // The last four came in the seventh to the tenth second.
        assert_eq!(demand.target(begin + Duration::from_secs(67), 2, 4), 3);
        assert_eq!(demand.target(begin + Duration::from_secs(69), 0, 4), 1);
        assert_eq!(demand.target(begin + Duration::from_secs(70), 0, 4), 0);
        assert_eq!(demand.target(begin + Duration::from_secs(70), 2, 4), 2);
        assert_eq!(demand.target(begin, 5, 4), 4, "the upper bound holds");
    }
}
