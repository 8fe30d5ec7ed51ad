//! Reads the deadline that a client gives a request, from gRPC's header.

use std::time::{Duration, Instant};

use tonic::metadata::MetadataMap;

/// Returns the moment at which the client stops waiting. The transport ends the request then.
pub(super) fn deadline(metadata: &MetadataMap) -> Option<Instant> {
    let timeout = metadata.get("grpc-timeout").and_then(|value| value.to_str().ok()).and_then(parse)?;
    Instant::now().checked_add(timeout)
}

/// Parses at most eight digits and a unit.
fn parse(header: &str) -> Option<Duration> {
    let (digits, unit) = header.split_at_checked(header.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::parse;

    #[test]
    fn deadlines_are_read_as_the_protocol_has_them() {
        for (header, expected) in [
            ("2S", Some(Duration::from_secs(2))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3_600))),
            ("1500m", Some(Duration::from_millis(1_500))),
            ("3M", Some(Duration::from_secs(180))),
            ("7u", Some(Duration::from_micros(7))),
            ("0n", Some(Duration::ZERO)),
            ("", None),
            ("S", None),
            ("-1S", None),
            ("1", None),
            ("1s", None),
            ("100000000S", None),
            ("1\u{e9}", None),
        ] {
            assert_eq!(parse(header), expected, "{header:?}");
        }
    }
}
