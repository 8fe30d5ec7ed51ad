//! Counts events that a client can cause, for a line of the log that is written at most once a minute.

use std::time::{Duration, Instant};

/// Time between two lines of the log.
const INTERVAL: Duration = Duration::from_secs(60);

/// Events since the last line of the log.
#[derive(Debug, Default)]
pub struct Occurrences {
    said: Option<Instant>,
    count: u64,
}

impl Occurrences {
    #[must_use]
    pub const fn new() -> Self {
        Self { said: None, count: 0 }
    }

    /// Adds an event. Returns the number of events since the last line, this one included, if it is time for another line.
    pub fn add(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        if self.said.is_some_and(|said| now.duration_since(said) < INTERVAL) {
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Occurrences;

    #[test]
    fn a_line_a_minute_has_all_events_since_the_last() {
        let (start, mut occurrences) = (Instant::now(), Occurrences::new());
        let mut add = |seconds| occurrences.add(start + Duration::from_secs(seconds));
        assert_eq!([add(0), add(1), add(59), add(60), add(61)], [Some(1), None, None, Some(3), None]);
    }
}
