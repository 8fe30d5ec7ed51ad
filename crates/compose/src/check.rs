//! The `healthcheck` of a service, as the check that a companion has to pass before the run is ready.

use std::time::Duration;

use document::At;

use crate::keys::section;
use crate::model::Ready;
use crate::values::{text, time, words};

/// Default of Compose for the time between two attempts, and for the time of one.
const DEFAULT_TIME: Duration = Duration::from_secs(30);
/// Default of Compose for the number of attempts.
const DEFAULT_RETRIES: u64 = 3;
/// Longest time that the daemon waits for a companion.
const MAX_TIMEOUT: Duration = Duration::from_secs(600);
/// Bounds of the time between two attempts.
const INTERVAL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(60));

/// Reads a healthcheck. It is none if the file disables it.
///
/// Compose calls a service unhealthy after `retries` failures in a row, which begin to count after `start_period`. The time in
/// which these can happen is the time that the companion has, at most ten minutes.
pub(crate) fn read(at: &At<'_>) -> Option<Ready> {
    let keys = section(
        at,
        &["test", "interval", "timeout", "retries", "start_period", "start_interval", "disable"],
        &[],
    );
    if keys.get("disable").and_then(At::flag) == Some(true) {
        return None;
    }
    let given = |key: &str| keys.get(key).and_then(time);
    let retries = keys.get("retries").map_or(Some(DEFAULT_RETRIES), |at| at.number(1..=1000))?;
    let interval = given("start_interval").or(given("interval"));
    let attempt = given("interval").unwrap_or(DEFAULT_TIME) + given("timeout").unwrap_or(DEFAULT_TIME);
    let retries = u32::try_from(retries).unwrap_or(u32::MAX);
    let total = attempt.saturating_mul(retries).saturating_add(given("start_period").unwrap_or_default());
    let Some(command) = keys.get("test") else {
        at.problem("`test` is missing; the check of the image is not read");
        return None;
    };
    let interval = interval.map(|interval| interval.clamp(INTERVAL.0, INTERVAL.1).as_millis());
    Some(Ready {
        command: test(command)?,
        timeout_seconds: u32::try_from(total.min(MAX_TIMEOUT).as_secs().max(1)).unwrap_or(u32::MAX),
        interval_milliseconds: interval.and_then(|interval| u32::try_from(interval).ok()),
    })
}

/// Reads the command: a list that begins with CMD, CMD-SHELL or NONE, or text for a shell.
fn test(at: &At<'_>) -> Option<Vec<String>> {
    let shell = |script: String| Some(["/bin/sh".to_owned(), "-c".to_owned(), script].into());
    if at.is_text() {
        return shell(text(at)?);
    }
    let items = at.items();
    let kind = items.first().map_or(Some(String::new()), text)?;
    match (kind.as_str(), items.get(1..).unwrap_or_default()) {
        ("NONE", []) => None,
        ("CMD-SHELL", [script]) => shell(text(script)?),
        ("CMD", [_, ..]) => words(at).map(|words| words[1..].to_vec()),
        _ => {
            at.problem("must be text, [CMD, PROGRAM, ARGUMENT…], [CMD-SHELL, SCRIPT] or [NONE]");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Option<Ready>, String> {
        let read = document::read("f", text, read);
        read.map_err(|problems| problems[0].to_string())
    }

    #[test]
    fn tests_are_commands_or_scripts() {
        let command = |text: &str| of(text).unwrap().map(|ready| ready.command.join("|"));
        assert_eq!(command("test: redis-cli ping").as_deref(), Some("/bin/sh|-c|redis-cli ping"));
        assert_eq!(command("test: [CMD-SHELL, a || exit 1]").as_deref(), Some("/bin/sh|-c|a || exit 1"));
        assert_eq!(command("test: [CMD, a, \"\", b c]").as_deref(), Some("a||b c"));
        assert_eq!(command("test: [NONE]"), None);
        assert_eq!(command("disable: true"), None);
        for bad in [
            "test: [a, b]",
            "test: [CMD]",
            "test: [CMD-SHELL, a, b]",
            "test: [NONE, a]",
            "retries: 0",
            "tst: a",
            "interval: 3s",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_time_of_all_attempts_is_the_time_that_a_companion_has() {
        let times = |text: &str| {
            let ready = of(&format!("test: a\n{text}")).unwrap().unwrap();
            (ready.timeout_seconds, ready.interval_milliseconds)
        };
        assert_eq!(times(""), (180, None));
        assert_eq!(times("interval: 5s\ntimeout: 5s\nretries: 5\nstart_period: 1m"), (110, Some(5_000)));
        assert_eq!(times("interval: 5s\nstart_interval: 500ms\ntimeout: 1s"), (18, Some(500)));
        assert_eq!(times("interval: 5m\nretries: 100"), (600, Some(60_000)));
        assert_eq!(times("interval: 1ms\ntimeout: 1ms\nretries: 1"), (1, Some(50)));
    }
}
