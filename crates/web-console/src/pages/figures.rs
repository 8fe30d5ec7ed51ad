//! Times, sizes and numbers of pages.

use std::time::Duration;

use maud::{Markup, html};
use timestamp::Timestamp;

/// Returns a moment in UTC, or a dash.
pub(crate) fn moment(at: Option<&wire::Timestamp>) -> Markup {
    let known = at.and_then(|at| {
        let nanos = u32::try_from(at.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
        let since = Duration::new(u64::try_from(at.seconds).ok()?, nanos);
        Some(epoch()?.after(since).to_string())
    });
    // `2026-01-31T12:00:00.000000000Z`
    known.map_or_else(
        || html! { "–" },
        |text| html! { time datetime=(text) { (&text[..10]) " " (&text[11..19]) " UTC" } },
    )
}

fn epoch() -> Option<Timestamp> {
    "1970-01-01T00:00:00.000000000Z".parse().ok()
}

/// Returns a size with a unit.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    #[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Returns a duration in its largest units.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 if duration.as_micros() < 1000 => format!("{} µs", duration.as_micros()),
        0 => format!("{} ms", duration.as_millis()),
        1..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Returns microseconds as a duration.
pub(crate) fn micros(us: u64) -> String {
    duration(Duration::from_micros(us))
}

/// Returns a duration of the API, or a dash.
pub(crate) fn wire_duration(wire: Option<&wire::Duration>) -> String {
    wire.and_then(|wire| Duration::try_from(*wire).ok()).map_or_else(|| "–".to_owned(), duration)
}

/// Returns the name of an enum's value in lower case, such as `require approval`.
pub(crate) fn word(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_units() {
        assert_eq!(
            (size(1023), size(1024), size(5 << 30)),
            ("1023 B".into(), "1.0 KiB".into(), "5.0 GiB".into())
        );
        assert_eq!(
            (micros(5), micros(1500), micros(90_000_000)),
            ("5 µs".into(), "1 ms".into(), "1 min 30 s".into())
        );
        assert_eq!(wire_duration(None), "–");
        let at = wire::Timestamp { seconds: 1_769_860_800, nanos: 5 };
        assert!(moment(Some(&at)).0.ends_with(">2026-01-31 12:00:00 UTC</time>"), "{}", moment(Some(&at)).0);
    }

    #[test]
    fn moments_that_are_none_are_a_dash() {
        let dash = html! { "–" }.0;
        for (seconds, nanos) in [(-1, 0), (0, -1), (0, 1_000_000_000)] {
            assert_eq!(moment(Some(&wire::Timestamp { seconds, nanos })).0, dash);
        }
        assert_eq!(moment(None).0, dash);
        // The last moment that there is.
        assert!(moment(Some(&wire::Timestamp { seconds: i64::MAX, nanos: 0 })).0.contains("9999"));
    }
}
