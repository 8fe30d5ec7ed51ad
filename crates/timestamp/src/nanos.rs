use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const SECOND: i128 = 1_000_000_000;

/// A text that is not `YYYY-MM-DDTHH:MM:SS.nnnnnnnnnZ`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a UTC time like 2026-01-31T12:00:00.000000000Z")]
pub struct ParseTimestampError;

/// A moment, UTC, to the nanosecond.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(jiff::Timestamp);

impl Timestamp {
    /// Number of characters of every moment's text.
    pub const WIDTH: usize = 30;

    /// Returns the time of the system's clock.
    pub fn now() -> Self {
        Self(jiff::Timestamp::now())
    }

    /// Returns the moment so many nanoseconds after 1970, or the first or last there is.
    fn from_nanos(nanos: i128) -> Self {
        let end = if nanos < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        Self(jiff::Timestamp::from_nanosecond(nanos).unwrap_or(end))
    }

    /// Returns the nanoseconds since 1970, or the first or last that there is.
    pub fn unix_nanos(self) -> i64 {
        let nanos = self.0.as_nanosecond();
        nanos.try_into().unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
    }

    /// Returns the whole seconds since 1970, rounded down.
    pub fn unix_seconds(self) -> i64 {
        self.0.as_nanosecond().div_euclid(SECOND).try_into().unwrap_or(i64::MAX)
    }

    /// Returns the nanoseconds within that second: 0 to 999,999,999.
    pub fn subsecond_nanos(self) -> u32 {
        self.0.as_nanosecond().rem_euclid(SECOND).try_into().unwrap_or(0)
    }

    /// Returns the time from this moment to `later`, or zero if `later` is earlier.
    pub fn until(self, later: Self) -> Duration {
        let nanos = later.0.as_nanosecond().saturating_sub(self.0.as_nanosecond()).max(0);
        Duration::from_nanos(nanos.try_into().unwrap_or(u64::MAX))
    }

    /// Returns the time that has passed since, or zero if the clock was set back meanwhile.
    pub fn elapsed(self) -> Duration {
        self.until(Self::now())
    }

    /// Returns the moment that is later by this duration.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        let nanos = i128::try_from(time.as_nanos()).unwrap_or(i128::MAX);
        Self::from_nanos(self.0.as_nanosecond().saturating_add(nanos))
    }

    pub fn to_wire(self) -> prost_types::Timestamp {
        let nanos = i32::try_from(self.subsecond_nanos()).unwrap_or(0);
        prost_types::Timestamp { seconds: self.unix_seconds(), nanos }
    }
}

/// As the number of nanoseconds since 1970.
impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self.unix_nanos())
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        i64::deserialize(deserializer).map(|nanos| Self::from_nanos(nanos.into()))
    }
}

/// RFC 3339, always of [`Timestamp::WIDTH`] characters.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.9}", self.0)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Timestamp {
    type Err = ParseTimestampError;

    fn from_str(text: &str) -> Result<Self, ParseTimestampError> {
        let shape = b"dddd-dd-ddTdd:dd:dd.dddddddddZ";
        let fits = text.len() == Self::WIDTH
            && text.bytes().zip(shape).all(|(b, s)| if *s == b'd' { b.is_ascii_digit() } else { b == *s });
        if !fits {
            return Err(ParseTimestampError);
        }
        text.parse().map(Self).map_err(|_| ParseTimestampError)
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
            let time: Timestamp = text.parse().unwrap();
            assert_eq!(time.to_string(), text);
        }
        assert_eq!(Timestamp::now().to_string().len(), Timestamp::WIDTH);
        let before: Timestamp = "1969-12-31T23:59:59.999999999Z".parse().unwrap();
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
            assert_eq!(text.parse::<Timestamp>(), Err(ParseTimestampError), "{text}");
        }
    }

    #[test]
    fn the_store_has_nanoseconds_and_the_api_seconds_with_nanoseconds() {
        let at: Timestamp = serde_json::from_str("1700000000123456789").unwrap();
        assert_eq!(at.to_string(), "2023-11-14T22:13:20.123456789Z");
        assert_eq!(serde_json::to_string(&at).unwrap(), "1700000000123456789");
        assert_eq!(at.to_wire(), prost_types::Timestamp { seconds: 1_700_000_000, nanos: 123_456_789 });
        let later = at.after(Duration::from_nanos(1));
        assert_eq!((at.until(later), later.until(at)), (Duration::from_nanos(1), Duration::ZERO));
        assert_eq!(at.after(Duration::MAX).unix_seconds(), jiff::Timestamp::MAX.as_second());
    }
}
