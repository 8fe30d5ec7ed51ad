//! Summarises a record in a few words.

use ::audit::{Decision, Event, Outcome, Status, Verdict};
use serde_json::Value;

use crate::output::Style;
use crate::time;

/// Length of the longest summary, in characters.
const LONGEST: usize = 160;
/// Number of a digest's characters that are shown.
const DIGEST: usize = 12;

/// Verdict or outcome of a record, and its other important parts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) verdict: Option<(Style, String)>,
    pub(super) rest: String,
}

/// Summarises a record in the form that the log has. A record that this version does not understand is shown unchanged.
pub(super) fn summarise(record: &str) -> Summary {
    let Ok(event) = serde_json::from_str::<Event>(record) else {
        return Summary { verdict: None, rest: clip(record) };
    };
    let mut rest = Vec::new();
    if let Some(duration) = event.duration_us {
        rest.push(time::brief(std::time::Duration::from_micros(duration)));
    }
    if let Some(reason) = why(&event) {
        rest.push(reason);
    }
    // The input remains as the agent sent it. The details come from the daemon and are made readable.
    rest.extend(event.input.as_ref().map(|input| flat(&without(Value::is_null, input))));
    rest.extend(event.details.as_ref().map(|details| flat(&with_times(&without(is_nothing, details)))));
    rest.retain(|part| !part.is_empty());
    let verdict = event.outcome.as_ref().map(ended).or_else(|| event.decision.as_ref().map(decided));
    Summary { verdict, rest: clip(&rest.join(" ")) }
}

fn decided(decision: &Decision) -> (Style, String) {
    match decision.outcome {
        Verdict::Allow => (Style::Green, "allow".into()),
        Verdict::Ask => (Style::Yellow, "ask".into()),
        Verdict::Deny => (Style::Red, "deny".into()),
        Verdict::Unknown => (Style::Dim, "unknown".into()),
    }
}

fn ended(outcome: &Outcome) -> (Style, String) {
    let (style, word) = match outcome.status {
        Status::Succeeded => (Style::Green, "succeeded"),
        Status::Failed => (Style::Red, "failed"),
        Status::Denied => (Style::Red, "denied"),
        Status::PendingApproval => (Style::Yellow, "pending"),
        Status::Interrupted => (Style::Red, "interrupted"),
        Status::Unknown => (Style::Dim, "unknown"),
    };
    match outcome.exit_code {
        Some(code) if code != 0 => (Style::Red, format!("{word}/exit {code}")),
        _ => (style, word.into()),
    }
}

fn why(event: &Event) -> Option<String> {
    if let Some(outcome) = &event.outcome {
        return outcome.reason.clone();
    }
    let decision = event.decision.as_ref()?;
    decision.rule.clone().or_else(|| decision.reason.clone())
}

/// Formats each member as `name=value`. Values that are not plain appear as JSON.
fn flat(value: &Value) -> String {
    let Value::Object(members) = value else {
        return plain(value);
    };
    let parts: Vec<_> = members.iter().map(|(name, value)| format!("{name}={}", plain(value))).collect();
    parts.join(" ")
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Returns the value without the members and items for which `nothing` is true.
fn without(nothing: fn(&Value) -> bool, value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let left = members.iter().map(|(name, value)| (name.clone(), without(nothing, value)));
            left.filter(|(_, value)| !nothing(value)).collect()
        }
        Value::Array(items) => {
            items.iter().map(|item| without(nothing, item)).filter(|item| !nothing(item)).collect()
        }
        other => other.clone(),
    }
}

/// Replaces times and durations by readable ones. Their names in the log end in their units.
fn with_times(value: &Value) -> Value {
    let Value::Object(members) = value else { return value.clone() };
    let readable = |(name, value): (&String, &Value)| match value.as_u64().and_then(|it| readable(name, it)) {
        Some((name, text)) => (name.to_owned(), Value::String(text)),
        None => (name.clone(), with_times(value)),
    };
    members.iter().map(readable).collect()
}

/// Returns the name without its unit, and the readable time.
fn readable(name: &str, value: u64) -> Option<(&str, String)> {
    let whole = name.strip_suffix("_ms").unwrap_or(name);
    if whole.ends_with("_at") || ["at", "until"].contains(&whole) {
        return Some((whole, time::moment_of_millis(value)));
    }
    let (whole, micros) = [("_us", 1), ("_ms", 1_000), ("_s", 1_000_000)]
        .into_iter()
        .find_map(|(unit, micros)| Some((name.strip_suffix(unit)?, micros)))?;
    Some((whole, time::brief(std::time::Duration::from_micros(value.saturating_mul(micros)))))
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => shortened(text).unwrap_or_else(|| text.clone()),
        other => other.to_string(),
    }
}

/// Shortens a digest to its beginning. Returns `None` if the text is not a digest.
fn shortened(text: &str) -> Option<String> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    let is_digest = digits.len() >= 40 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    is_digest.then(|| format!("{}…", &text[..text.len() - digits.len() + DIGEST]))
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(event: &Event) -> Summary {
        summarise(&serde_json::to_string(event).unwrap())
    }

    #[test]
    fn an_intent_shows_the_operation_and_the_rule() {
        let mut event = Event::new(::audit::Kind::CallIntent);
        event.input = Some(serde_json::json!({"path": "a.txt", "start_line": 3}));
        event.decision = Some(Decision::new(Verdict::Ask).rule("review.write"));
        assert_eq!(
            of(&event),
            Summary {
                verdict: Some((Style::Yellow, "ask".into())),
                rest: "review.write path=a.txt start_line=3".into()
            }
        );
    }

    #[test]
    fn a_receipt_shows_the_end_of_its_call() {
        let mut event = Event::new(::audit::Kind::CallReceipt);
        event.outcome = Some(Outcome::new(Status::Succeeded).exit_code(3));
        event.duration_us = Some(1500);
        assert_eq!(
            of(&event),
            Summary { verdict: Some((Style::Red, "succeeded/exit 3".into())), rest: "1 ms".into() }
        );
        event.outcome = Some(Outcome::new(Status::Denied).reason("COMMAND_NOT_ALLOWED"));
        assert_eq!(of(&event).rest, "1 ms COMMAND_NOT_ALLOWED");
    }

    #[test]
    fn times_are_readable_and_missing_values_are_omitted() {
        let mut event = Event::new(::audit::Kind::ApprovalDecided);
        event.input = Some(serde_json::json!({"path": "a", "agent": null, "until_ms": 5}));
        event.details = Some(serde_json::json!({
            "expires_at": 1_764_022_680_123_u64,
            "decided_at_ms": 0,
            "until_ms": null,
            "comment": null,
            "timeout_ms": 300_000,
            "window_s": 90,
        }));
        let rest = of(&event).rest;
        for told in [
            "path=a until_ms=5",
            "expires_at=2025-11-24T22:18:00.123Z",
            "decided_at=1970-01-01T00:00:00.000Z",
            "timeout=5m 0s",
            "window=1m 30s",
        ] {
            assert!(rest.contains(told), "{told}: {rest}");
        }
        assert!(!rest.contains("null") && !rest.contains("comment"), "{rest}");
        event.input = None;
        event.details = Some(serde_json::json!({
            "a": {"until_ms": 1_764_022_680_123_u64, "cause": {"reason": ""}, "per_minute": 3},
            "busybox": format!("sha256:{}", "0123456789abcdef".repeat(4)),
            "files": ["x", null],
            "labels": {},
            "vote": {"at": 0, "comment": ""},
            "wait_us": 79,
        }));
        let told = r#"a={"per_minute":3,"until":"2025-11-24T22:18:00.123Z"} busybox=sha256:0123456789ab… files=["x"]"#;
        assert_eq!(
            of(&event).rest,
            format!("{told} vote={{\"at\":\"1970-01-01T00:00:00.000Z\"}} wait=79 µs")
        );
    }

    #[test]
    fn unknown_records_are_shown_shortened() {
        assert_eq!(summarise("{\"kind\":3}").rest, "{\"kind\":3}");
        assert_eq!(summarise(&"é".repeat(1000)).rest.chars().count(), LONGEST + 1);
    }
}
