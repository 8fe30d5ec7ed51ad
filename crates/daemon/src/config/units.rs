//! Times and sizes as people write them.

use std::time::Duration;

/// Names of sizes and their powers of two, largest first.
const SIZES: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];

/// `90s`, `5m`, `2h`, `1d`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds: u64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    let number: u64 = number.parse().ok()?;
    number.checked_mul(seconds).map(Duration::from_secs)
}

/// `512KiB`, `64MiB`, `4GiB`, `1TiB`, or a number of bytes.
pub(super) fn size(text: &str) -> Option<u64> {
    let unit = SIZES.iter().find_map(|(unit, power)| Some((text.strip_suffix(unit)?, *power)));
    let (number, power) = unit.unwrap_or((text, 0));
    // `parse` would take a sign.
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    number.parse::<u64>().ok()?.checked_mul(1 << power)
}

/// A size in the largest unit that shows all of it.
pub(super) fn show_size(bytes: u64) -> String {
    let whole = |power: &u32| bytes > 0 && bytes.trailing_zeros() >= *power;
    SIZES
        .iter()
        .find(|(_, power)| whole(power))
        .map_or_else(|| bytes.to_string(), |(unit, power)| format!("{}{unit}", bytes >> power))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{duration, show_size, size};

    #[test]
    fn durations() {
        assert_eq!(duration("90s"), Some(Duration::from_secs(90)));
        assert_eq!(duration("2h"), Some(Duration::from_secs(7_200)));
        for bad in ["", "5", "m", "-5m", "5 m", "1.5h", "99999999999999999999d", "5ä"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn sizes_are_read_as_they_are_shown() {
        for (text, bytes) in
            [("0", 0), ("100", 100), ("3KiB", 3 << 10), ("64MiB", 64 << 20), ("4GiB", 4 << 30)]
        {
            assert_eq!(size(text), Some(bytes), "{text}");
            assert_eq!(show_size(bytes), text);
        }
        assert_eq!(size("1024MiB"), Some(1 << 30));
        for bad in ["", "MiB", "-1", "+1", "1.5GiB", "1 GiB", "1GB", "1gib", "99999999999TiB", "1ä"] {
            assert_eq!(size(bad), None, "{bad}");
        }
    }
}
