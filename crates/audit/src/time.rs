//! Time of a record: UTC with nanoseconds, always in the same 30 characters.
//!
//! The wall clock may go back, so the order of records comes only from their sequence numbers.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

/// Error: the text is not `YYYY-MM-DDTHH:MM:SS.nnnnnnnnnZ`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a UTC time like 2026-01-31T12:00:00.000000000Z")]
pub struct ParseTimeError;

/// A point in time, UTC, to the nanosecond.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(Timestamp);

impl Time {
    /// Number of characters of every time.
    pub(crate) const WIDTH: usize = 30;

    /// Returns the present time of the wall clock.
    pub fn now() -> Self {
        Self(Timestamp::now())
    }

    /// Returns the whole seconds since 1970, rounded down.
    pub fn unix_seconds(self) -> i64 {
        self.0.as_nanosecond().div_euclid(1_000_000_000).try_into().unwrap_or(i64::MAX)
    }

    /// Returns the time from here to `later`, or zero if `later` is earlier.
    pub(crate) fn until(self, later: Self) -> std::time::Duration {
        let nanos = later.0.as_nanosecond().saturating_sub(self.0.as_nanosecond()).max(0);
        std::time::Duration::from_nanos(nanos.try_into().unwrap_or(u64::MAX))
    }

    /// Returns the nanoseconds within that second: 0 to 999,999,999.
    pub fn subsecond_nanos(self) -> u32 {
        self.0.as_nanosecond().rem_euclid(1_000_000_000).try_into().unwrap_or(0)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.9}", self.0)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Time {
    type Err = ParseTimeError;

    fn from_str(text: &str) -> Result<Self, ParseTimeError> {
        let shape = b"dddd-dd-ddTdd:dd:dd.dddddddddZ";
        let fits = text.len() == Self::WIDTH
            && text.bytes().zip(shape).all(|(b, s)| if *s == b'd' { b.is_ascii_digit() } else { b == *s });
        if !fits {
            return Err(ParseTimeError);
        }
        text.parse().map(Self).map_err(|_| ParseTimeError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_always_thirty_characters() {
        for text in [
            "2026-11-21T21:33:00.000000000Z",
            "1969-12-31T23:59:59.999999999Z",
            "9999-12-30T00:00:00.000000001Z",
        ] {
            let time: Time = text.parse().unwrap();
            assert_eq!(time.to_string(), text);
        }
        assert_eq!(Time::now().to_string().len(), Time::WIDTH);
        let before: Time = "1969-12-31T23:59:59.999999999Z".parse().unwrap();
        assert_eq!((before.unix_seconds(), before.subsecond_nanos()), (-1, 999_999_999));
    }

    #[test]
    fn other_spellings_are_refused() {
        for text in [
            "2026-11-21T21:33:00Z",
            "2026-11-21 21:33:00.000000000Z",
            "2026-11-21T21:33:00.000000000z",
            "2026-13-21T21:33:00.000000000Z",
            "2026-11-21T21:33:00.00000000+00",
            "",
        ] {
            assert_eq!(text.parse::<Time>(), Err(ParseTimeError), "{text}");
        }
    }
}
