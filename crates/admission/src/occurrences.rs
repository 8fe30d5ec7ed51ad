//! Counts events that a client can cause, for lines of a log of which a minute has few.

use std::time::{Duration, Instant};

/// Time within which there are so many lines.
const INTERVAL: Duration = Duration::from_secs(60);

/// Events since the last line of the log.
#[derive(Debug)]
pub struct Occurrences {
    /// Most lines within [`INTERVAL`].
    most: u32,
    /// Time of the first of the lines that count.
    since: Option<Instant>,
    lines: u32,
    /// Number of events without a line.
    pub(crate) count: u64,
}

impl Default for Occurrences {
    fn default() -> Self {
        Self::new()
    }
}

impl Occurrences {
    /// A line a minute.
    #[must_use]
    pub const fn new() -> Self {
        Self::with_lines(1)
    }

    /// `most`: lines a minute.
    pub(crate) const fn with_lines(most: u32) -> Self {
        Self { most, since: None, lines: 0, count: 0 }
    }

    /// Adds an event. Returns the number of events since the last line, this one included, if it is time for another line.
    pub fn add(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        if self.since.is_none_or(|since| now.duration_since(since) >= INTERVAL) {
            (self.since, self.lines) = (Some(now), 0);
        }
        if self.lines >= self.most {
            return None;
        }
        self.lines += 1;
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
