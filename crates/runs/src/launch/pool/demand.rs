//! How many warm containers are wanted, by what was asked for lately.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// For so long a run that was asked for counts.
const LATELY: Duration = Duration::from_secs(60);

/// The runs that a pool could have served lately, whether it did or not.
#[derive(Debug, Default)]
pub(super) struct Demand(VecDeque<Instant>);

impl Demand {
    /// A run was asked for. More than `most` need not be remembered.
    pub(super) fn note(&mut self, now: Instant, most: usize) {
        self.0.push_back(now);
        while self.0.len() > most {
            self.0.pop_front();
        }
    }

    /// As many as were asked for lately, within the bounds.
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
    fn the_target_follows_what_is_asked_for_within_its_bounds_and_falls_again() {
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
