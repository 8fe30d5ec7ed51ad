//! Recent requests for containers of one kind.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time for which a request for a run counts.
const LATELY: Duration = Duration::from_secs(60);

/// Recent requests that a pool could have served, whether it did or not.
#[derive(Debug, Default)]
pub(crate) struct Demand(VecDeque<Instant>);

impl Demand {
    /// Records a request for a run. Forgets the oldest beyond `most`.
    pub(crate) fn note(&mut self, now: Instant, most: usize) {
        self.0.push_back(now);
        while self.0.len() > most {
            self.0.pop_front();
        }
    }

    /// Returns the number of recent requests.
    pub(crate) fn asked(&self, now: Instant) -> usize {
        self.0.iter().filter(|asked| now.duration_since(**asked) < LATELY).count()
    }

    /// Returns the time of the last recent request.
    pub(crate) fn last(&self) -> Option<Instant> {
        self.0.back().copied()
    }

    /// Forgets all requests.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_count_for_a_minute_up_to_a_bound() {
        let begin = Instant::now();
        let mut demand = Demand::default();
        assert_eq!((demand.asked(begin), demand.last()), (0, None));
        for asked in 1..=10 {
            demand.note(begin + Duration::from_secs(asked), 4);
        }
        assert_eq!(demand.asked(begin + Duration::from_secs(10)), 4);
        assert_eq!(demand.last(), Some(begin + Duration::from_secs(10)));
        // The last four came in the seventh to the tenth second.
        assert_eq!(demand.asked(begin + Duration::from_secs(67)), 3);
        assert_eq!(demand.asked(begin + Duration::from_secs(69)), 1);
        assert_eq!(demand.asked(begin + Duration::from_secs(70)), 0);
        demand.note(begin, 4);
        demand.clear();
        assert_eq!(demand.asked(begin), 0);
    }
}
