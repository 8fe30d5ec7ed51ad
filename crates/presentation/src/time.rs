//! Parses and formats times and durations.

use std::time::Duration;

use jiff::Timestamp;

/// Parses a duration such as `90s`, `10m`, `1h30m`, `7d` or `250ms`.
pub fn parse(text: &str) -> Result<Duration, String> {
    match document::parse_duration(text) {
        Some(duration) if duration.is_zero() => Err("a duration must be longer than zero".into()),
        Some(duration) => Ok(duration),
        None => {
            let meant = document::meant_duration(text).map(|meant| format!("; did you mean `{meant}`?"));
            let meant = meant.unwrap_or_default();
            Err(format!("`{text}` is not a duration; write it as in 90s, 10m or 1h30m{meant}"))
        }
    }
}

/// Formats a duration in at most two units: `312 ms`, `3.4 s`, `5m 12s`, `2h 3m`, `4d 1h`.
pub fn brief(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 if duration.as_micros() < 1000 => format!("{} µs", duration.as_micros()),
        0 => format!("{} ms", duration.as_millis()),
        1..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Formats a moment in UTC with milliseconds. Returns `-` if there is none or it is invalid.
pub fn moment(time: Option<&wire::Timestamp>) -> String {
    time.and_then(|time| Timestamp::new(time.seconds, time.nanos).ok())
        .map_or_else(|| "-".into(), |time| time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

/// Formats a moment like [`moment`]. Returns an empty text if there is none.
pub fn known(time: Option<&wire::Timestamp>) -> String {
    time.map(|time| moment(Some(time))).unwrap_or_default()
}

/// Formats the time from `start` to `end`. Returns `-` if one of them is missing.
pub fn span(start: Option<&wire::Timestamp>, end: Option<&wire::Timestamp>) -> String {
    between(start, end).map_or_else(|| "-".into(), brief)
}

/// Formats a number of milliseconds since the epoch like [`moment`].
pub fn moment_of_millis(millis: u64) -> String {
    moment(Some(&timestamp::UnixMillis(millis).to_wire()))
}

/// Returns the time from `start` to `end`, if both exist and are in order.
pub fn between(start: Option<&wire::Timestamp>, end: Option<&wire::Timestamp>) -> Option<Duration> {
    since_epoch(end?)?.checked_sub(since_epoch(start?)?)
}

/// Returns the present time in the form of the API.
pub fn now() -> wire::Timestamp {
    timestamp::Timestamp::now().to_wire()
}

fn since_epoch(time: &wire::Timestamp) -> Option<Duration> {
    Some(Duration::new(u64::try_from(time.seconds).ok()?, u32::try_from(time.nanos).ok()?.min(999_999_999)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64, nanos: i32) -> wire::Timestamp {
        wire::Timestamp { seconds, nanos }
    }

    #[test]
    fn durations_are_parsed_with_their_units() {
        assert_eq!(parse("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse("7d"), Ok(Duration::from_secs(604_800)));
        assert_eq!(parse("12h"), Ok(Duration::from_secs(43_200)));
        assert!(parse("0d").is_err() && parse("-1d").is_err());
        assert!(parse("10").is_err());
        assert!(parse("-10s").is_err());
        assert!(parse("0s").is_err());
        assert!(parse("soon").is_err());
    }

    #[test]
    fn is_brief() {
        assert_eq!(brief(Duration::from_micros(79)), "79 µs");
        assert_eq!(brief(Duration::from_millis(312)), "312 ms");
        assert_eq!(brief(Duration::from_millis(3400)), "3.4 s");
        assert_eq!(brief(Duration::from_secs(312)), "5m 12s");
        assert_eq!(brief(Duration::from_secs(7380)), "2h 3m");
        assert_eq!(brief(Duration::from_secs(349_200)), "4d 1h");
    }

    #[test]
    fn moments_and_nonsense() {
        assert_eq!(moment(Some(&at(0, 5_000_000))), "1970-01-01T00:00:00.005Z");
        assert_eq!(moment(None), "-");
        assert_eq!(moment(Some(&at(i64::MAX, -1))), "-");
        assert_eq!(between(Some(&at(1, 0)), Some(&at(2, 500_000_000))), Some(Duration::from_millis(1500)));
        assert_eq!(between(Some(&at(2, 0)), Some(&at(1, 0))), None);
        assert_eq!(between(Some(&at(-9, -9)), Some(&at(1, i32::MAX))), None);
    }
}
