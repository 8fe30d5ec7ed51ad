//! Parses and formats sizes, numbers and pairs.

/// Parses a size in bytes, such as `512M`, `1GiB` or `1048576`. Units are powers of 1024.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    document::parse_size(text).filter(|bytes| *bytes > 0).ok_or_else(|| {
        let meant = document::meant_size(text).map(|meant| format!("; did you mean `{meant}`?"));
        format!("`{text}` is not a size; write it as in 512M or 2GiB{}", meant.unwrap_or_default())
    })
}

/// Parses a place in a file, or a number of bytes that may be zero, such as `0`, `4096`, `64K` or `1GiB`.
pub fn parse_offset(text: &str) -> Result<u64, String> {
    if document::parse_size(text) == Some(0) { Ok(0) } else { parse_bytes(text) }
}

/// Parses a number of cores and returns it in thousandths. `1.5` gives 1500.
pub fn parse_cpus(text: &str) -> Result<u32, String> {
    let wrong = || format!("`{text}` is not a number of cores; write it as in 2, 1.5 or 0.25");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || fraction.len() > 3 {
        return Err(wrong());
    }
    let whole: u32 = whole.parse().map_err(|_| wrong())?;
    let fraction: u32 = format!("{fraction:0<3}").parse().map_err(|_| wrong())?;
    whole
        .checked_mul(1000)
        .and_then(|millis| millis.checked_add(fraction))
        .filter(|&millis| millis > 0)
        .ok_or_else(wrong)
}

/// Parses a pair of the form `NAME=VALUE`.
pub fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err(format!("`{text}` is not NAME=VALUE")),
    }
}

/// Formats a number of bytes: `812 B`, `1.5 KiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    for (size, unit) in UNITS {
        if count >= size {
            let tenths = u128::from(count) * 10 / u128::from(size);
            return format!("{}.{} {unit}", tenths / 10, tenths % 10);
        }
    }
    format!("{count} B")
}

/// Formats a number with its noun: `1 match`, `2 matches`.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_bytes("1048576"), Ok(1 << 20));
        assert_eq!(parse_bytes("512M"), Ok(512 << 20));
        assert_eq!(parse_bytes("2GiB"), Ok(2 << 30));
        assert_eq!(parse_bytes("3k"), Ok(3 << 10));
        assert!(parse_bytes("3kb").unwrap_err().ends_with("did you mean `3KiB`?"));
        for wrong in ["", "M", "-1", "0", "5X", "1.5G", "99999999999T"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(["0", "0K", "4096", "64K"].map(parse_offset), [Ok(0), Ok(0), Ok(4096), Ok(64 << 10)]);
        assert_eq!(parse_offset("3kb"), parse_bytes("3kb"));
        assert!(parse_offset("").is_err() && parse_offset("-1").is_err());
        assert_eq!(bytes(812), "812 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(u64::MAX), "16777215.9 TiB");
    }

    #[test]
    fn shares() {
        assert_eq!(parse_cpus("2"), Ok(2000));
        assert_eq!(parse_cpus("1.5"), Ok(1500));
        assert_eq!(parse_cpus("0.025"), Ok(25));
        for wrong in ["", ".5", "1.", "0", "1.0001", "-1", "1e3", "99999999"] {
            assert!(parse_cpus(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn pairs() {
        assert_eq!(parse_pair("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(parse_pair("=b").is_err());
        assert!(parse_pair("a").is_err());
    }
}
