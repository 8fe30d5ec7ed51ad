//! Reads times and sizes as people write them. A problem names the value that was probably meant.

use std::time::Duration;

use super::walk::{At, Fields};

/// Units of sizes and their powers of two, largest first.
const SIZES: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];

/// Units of durations and their milliseconds, longest first.
const PARTS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Units of times and their seconds, longest first.
const TIMES: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];

/// Words that people write for the units of times.
const WORDS: [(&str, &str); 4] = [("day", "d"), ("hour", "h"), ("minute", "m"), ("second", "s")];

/// Largest size that is accepted, bytes. Larger ones are mistakes.
const MAX_SIZE: u64 = 1 << 50;

/// Parses a duration such as `90s`, `5m`, `1h30m`, `7d` or `250ms`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut shorter = &PARTS[..];
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count());
        let (unit, next) = after.split_at(after.bytes().take_while(u8::is_ascii_lowercase).count());
        let at = shorter.iter().position(|(name, _)| *name == unit)?;
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(shorter[at].1)?)?;
        // Each unit is shorter than the one before, so that `30m1h` and `1h1h` are mistakes.
        shorter = &shorter[at + 1..];
        rest = next;
    }
    Some(Duration::from_millis(total)).filter(|_| !text.is_empty())
}

/// Parses a size such as `512M`, `64MiB`, `4G` or `1TiB`, or a number of bytes, and returns its bytes.
///
/// All units are powers of 1024, in any case. `GB` is refused, because it means a power of 1000 to some.
pub fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let power = if unit.is_empty() {
        0
    } else {
        let is = |name: &str| unit.eq_ignore_ascii_case(name) || unit.eq_ignore_ascii_case(&name[..1]);
        SIZES.iter().find(|(name, _)| is(name))?.1
    };
    number.parse::<u64>().ok()?.checked_mul(1 << power)
}

/// Returns the duration that was probably meant by a text that [`parse_duration`] refuses.
pub fn meant_duration(written: &str) -> Option<String> {
    let meant = meant(written, |number, unit| match unit {
        "" => Some(format!("{number}s")),
        unit => {
            let one = unit.strip_suffix('s').filter(|one| one.len() > 1).unwrap_or(unit);
            let (_, name) = WORDS.iter().find(|(word, _)| word.starts_with(one))?;
            Some(format!("{number}{name}"))
        }
    });
    meant.filter(|meant| parse_duration(meant).is_some())
}

/// Returns the size that was probably meant by a text that [`parse_size`] refuses.
pub fn meant_size(written: &str) -> Option<String> {
    let meant = meant(written, |number, unit| {
        let letter = unit.strip_suffix("ib").or(unit.strip_suffix('b')).unwrap_or(unit);
        let (name, _) = SIZES.iter().find(|(name, _)| name.to_ascii_lowercase() == format!("{letter}ib"))?;
        Some(format!("{number}{name}"))
    });
    meant.filter(|meant| parse_size(meant).is_some())
}

/// Reads a time from `least` to `most` seconds.
pub fn time(at: &At<'_>, least: u64, most: u64) -> Option<Duration> {
    read_time(at, &at.argument()?, (least, most), "")
}

/// Word for "no time" in place of a time.
pub const NEVER: &str = "never";

/// Reads the time under `key`. Returns the default, in seconds, if it is missing, and `None` for `never`.
pub fn age_or(fields: &Fields<'_>, key: &str, most: u64, default: Option<u64>) -> Option<Duration> {
    let default = default.map(Duration::from_secs);
    let Some(at) = fields.get(key) else { return default };
    match at.argument() {
        Some(written) if written == NEVER => None,
        Some(written) => read_time(at, &written, (1, most), ", or never").or(default),
        None => default,
    }
}

fn read_time(at: &At<'_>, written: &str, (least, most): (u64, u64), others: &str) -> Option<Duration> {
    let range = least..=most;
    let seconds = seconds(written).filter(|seconds| range.contains(seconds));
    if seconds.is_none() {
        let (least, most) = (show_seconds(least), show_seconds(most));
        let meant = meant_duration(written)
            .filter(|meant| self::seconds(meant).is_some_and(|seconds| range.contains(&seconds)));
        let message = format!("must be a time from {least} to {most}, such as 30s, 5m or 12h{others}");
        at.problem_hint(message, meant.map(did_you_mean));
    }
    seconds.map(Duration::from_secs)
}

/// Reads the time under `key`, or returns the default, in seconds.
pub fn time_or(fields: &Fields<'_>, key: &str, range: (u64, u64), default: u64) -> Duration {
    let given = fields.get(key).and_then(|at| time(at, range.0, range.1));
    given.unwrap_or(Duration::from_secs(default))
}

/// Reads a size of at least `least` bytes.
pub fn size(at: &At<'_>, least: u64) -> Option<u64> {
    let written = at.argument()?;
    let range = least..=MAX_SIZE;
    let bytes = parse_size(&written).filter(|bytes| range.contains(bytes));
    if bytes.is_none() {
        let (least, most) = (show_size(least), show_size(MAX_SIZE));
        let meant = meant_size(&written)
            .filter(|meant| parse_size(meant).is_some_and(|bytes| range.contains(&bytes)));
        at.problem_hint(
            format!("must be a size from {least} to {most}, such as 512MiB or 4GiB"),
            meant.map(did_you_mean),
        );
    }
    bytes
}

/// Reads the size under `key`, or returns the default, in bytes.
pub fn size_or(fields: &Fields<'_>, key: &str, least: u64, default: u64) -> u64 {
    fields.get(key).and_then(|at| size(at, least)).unwrap_or(default)
}

/// Calls `write` with the leading number of `written` and the word after it in lower case.
///
/// Returns the value that `write` suggests; `None` if `written` does not begin with a number.
fn meant(written: &str, write: impl FnOnce(&str, &str) -> Option<String>) -> Option<String> {
    let digits = written.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = written.split_at(digits);
    write(number, &unit.trim().to_ascii_lowercase()).filter(|_| digits > 0)
}

#[allow(clippy::needless_pass_by_value)] // as `map` passes it
fn did_you_mean(meant: String) -> String {
    format!("did you mean `{meant}`?")
}

/// Parses a time of whole seconds.
fn seconds(text: &str) -> Option<u64> {
    parse_duration(text).filter(|time| time.subsec_millis() == 0).map(|time| time.as_secs())
}

/// Formats a size in the largest unit that divides it.
pub fn show_size(bytes: u64) -> String {
    let whole = |power: &u32| bytes > 0 && bytes.trailing_zeros() >= *power;
    SIZES
        .iter()
        .find(|(_, power)| whole(power))
        .map_or_else(|| bytes.to_string(), |(unit, power)| format!("{}{unit}", bytes >> power))
}

fn show_seconds(seconds: u64) -> String {
    let whole = TIMES.iter().find(|(_, unit)| seconds > 0 && seconds.is_multiple_of(*unit));
    whole.map_or_else(|| seconds.to_string(), |(name, unit)| format!("{}{name}", seconds / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a value is read as, or what is said of it.
    fn read<T>(written: &str, as_value: impl FnOnce(&At<'_>) -> Option<T>) -> Result<T, String> {
        let read = crate::read("f", &format!("key: {written}"), |top| {
            let fields = top.fields(&["key"]);
            as_value(&fields.at("key"))
        });
        read.map(Option::unwrap).map_err(|problems| problems[0].to_string().replace("f:1: key: ", ""))
    }

    #[test]
    fn times() {
        let time = |written: &str| read(written, |at| time(at, 1, 7 * 86_400));
        assert_eq!(time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(time("2h"), Ok(Duration::from_secs(7_200)));
        assert_eq!(time("1h30m"), Ok(Duration::from_secs(5_400)));
        for (bad, meant) in [("90", "90s"), ("5 min", "5m"), ("2 Hours", "2h"), ("1day", "1d")] {
            let said =
                format!("must be a time from 1s to 7d, such as 30s, 5m or 12h (did you mean `{meant}`?)");
            assert_eq!(time(bad), Err(said), "{bad}");
        }
        for bad in [
            "m",
            "-5m",
            "+5m",
            "1.5h",
            "99999999999999999999d",
            "5ä",
            "250ms",
            "1500ms",
            "30m1h",
            "1h1h",
            "1h30",
            "0s",
            "8d",
            "soon",
            "0",
        ] {
            assert_eq!(
                time(bad),
                Err("must be a time from 1s to 7d, such as 30s, 5m or 12h".to_owned()),
                "{bad}"
            );
        }
        assert_eq!(time("[5m]"), Err("expected text, found a list".to_owned()));
    }

    #[test]
    fn sizes_are_read_as_they_are_shown() {
        let size = |written: &str| read(written, |at| size(at, 0));
        for (text, bytes) in
            [("0", 0), ("100", 100), ("3KiB", 3 << 10), ("64MiB", 64 << 20), ("4GiB", 4 << 30)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
            assert_eq!(show_size(bytes), text);
        }
        for (text, bytes) in [("1024MiB", 1 << 30), ("1G", 1 << 30), ("64m", 64 << 20), ("1gib", 1 << 30)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        let said = "must be a size from 0 to 1024TiB, such as 512MiB or 4GiB";
        for (bad, meant) in [("4GB", "4GiB"), ("4 GiB", "4GiB"), ("64mb", "64MiB"), ("8 K", "8KiB")] {
            assert_eq!(size(bad), Err(format!("{said} (did you mean `{meant}`?)")), "{bad}");
        }
        for bad in ["MiB", "-1B", "+1B", "99999999999TiB", "1ä", "all", "5min"] {
            assert_eq!(size(bad), Err(said.to_owned()), "{bad}");
        }
    }

    #[test]
    fn durations_have_units_that_become_shorter() {
        for (text, millis) in [
            ("250ms", 250),
            ("90s", 90_000),
            ("1h30m", 5_400_000),
            ("7d", 604_800_000),
            ("1m1ms", 60_001),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "10", "s", "-1s", "1.5h", "30m1h", "1h1h", "1h 30m", "1H", "99999999999999999999s"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
        assert_eq!(meant_duration("5 minutes").as_deref(), Some("5m"));
        assert_eq!(meant_duration("soon"), None);
    }
}
