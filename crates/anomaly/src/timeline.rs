//! The clock of the rules: the records' times, made to never go back.
//!
//! The wall clock may jump. A step back counts as no time, and a step forward as the time that it claims. The first can lengthen a
//! window by the same amount, the second empties windows early. Neither fires a rule by itself, and neither has a lasting effect:
//! only differences count.

use super::seen::Moment;

#[derive(Debug, Default)]
pub(super) struct Timeline {
    last: Option<u64>,
    now: Moment,
}

impl Timeline {
    /// Returns the moment of a record that was written at `millis`.
    pub(super) fn at(&mut self, millis: u64) -> Moment {
        let passed = self.last.map_or(0, |last| millis.saturating_sub(last));
        self.last = Some(millis);
        self.now = self.now.saturating_add(passed);
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::Timeline;

    #[test]
    fn clock_jump_neither_reverses_nor_stops_time() {
        let mut time = Timeline::default();
        let moments: Vec<_> =
            [5_000, 6_000, 1_000, 2_000, 900_000, 3_000, 4_000].map(|at| time.at(at)).into();
        assert_eq!(moments, [0, 1_000, 1_000, 2_000, 900_000, 900_000, 901_000]);
    }
}
