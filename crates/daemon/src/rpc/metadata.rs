//! Reads facts that a client gives beside a request: the deadline in gRPC's header, and the context of a trace in W3C's.

use std::time::{Duration, Instant};

use calls::Metadata;
use tonic::metadata::MetadataMap;
use traces::Context;

/// Returns the deadline and the context of the trace.
pub(super) fn metadata(metadata: &MetadataMap) -> Metadata {
    Metadata { deadline: deadline(metadata), ..traced(metadata) }
}

/// Returns the context of the trace alone, of a request whose call does not end with its client's deadline.
///
/// A context that is malformed, or there twice, is none: it must not make a call fail.
pub(super) fn traced(metadata: &MetadataMap) -> Metadata {
    let mut sent = metadata.get_all("traceparent").iter();
    let only = sent.next().filter(|_| sent.next().is_none());
    let trace = only.and_then(|sent| sent.to_str().ok()).and_then(Context::parse);
    Metadata { deadline: None, trace }
}

/// Returns the moment at which the client stops waiting. The transport ends the request then.
fn deadline(metadata: &MetadataMap) -> Option<Instant> {
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

    use tonic::metadata::{MetadataMap, MetadataValue};

    use super::{metadata, parse};

    #[test]
    fn one_context_of_a_trace_counts_and_two_are_none() {
        let context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let read = |sent: &[&'static str]| {
            let mut map = MetadataMap::new();
            for one in sent {
                map.append("traceparent", MetadataValue::from_static(one));
            }
            metadata(&map).trace.map(|trace| trace.to_string())
        };
        assert_eq!(read(&[context]).as_deref(), Some(context));
        for sent in [&[][..], &["x"], &[context, context]] {
            assert_eq!(read(sent), None, "{sent:?}");
        }
    }

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
