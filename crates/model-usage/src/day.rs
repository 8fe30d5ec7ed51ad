//! Days of UTC.

use std::fmt;
use std::time::Duration;

use timestamp::{Timestamp, UnixMillis};

const SECONDS: u64 = 86_400;

/// A day of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(u32);

impl Day {
    /// Returns the day of a moment. A moment before 1970 is on the first day of it.
    pub fn of(moment: Timestamp) -> Self {
        Self(u32::try_from(UnixMillis::from(moment).seconds() / SECONDS).unwrap_or(u32::MAX))
    }

    /// Returns the day so many days before.
    #[must_use]
    pub fn before(self, days: u32) -> Self {
        Self(self.0.saturating_sub(days))
    }

    /// Returns the moment at which the day begins.
    pub fn begin(self) -> UnixMillis {
        UnixMillis(0).after(Duration::from_secs(u64::from(self.0).saturating_mul(SECONDS)))
    }

    /// Returns the day after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns the number of the day since 1970, as the database has it.
    pub(crate) fn number(self) -> i64 {
        self.0.into()
    }

    pub(crate) fn from_number(number: i64) -> Option<Self> {
        u32::try_from(number).ok().map(Self)
    }
}

/// `2026-11-29`
impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = self.begin().to_string();
        f.write_str(moment.get(..10).unwrap_or(&moment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_ends_at_midnight_of_utc() {
        let last: Timestamp = "2026-11-29T23:59:59.999999999Z".parse().unwrap();
        let day = Day::of(last);
        let next = Day::of(last.after(Duration::from_nanos(1)));
        assert_eq!((day.to_string(), next.to_string()), ("2026-11-29".into(), "2026-11-30".into()));
        assert_eq!((day.next(), next.before(1)), (next, day));
        assert_eq!(next.begin().to_string(), "2026-11-30T00:00:00Z");
        assert_eq!(Day::from_number(day.number()), Some(day));
        assert_eq!((Day::from_number(-1), Day(3).before(5)), (None, Day(0)));
    }
}
