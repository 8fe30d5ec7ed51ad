//! What a record says, in a few words.

use ::audit::{Decision, Event, Outcome, Status, Verdict};
use serde_json::Value;

use crate::page::Ink;
use crate::time;

/// Longest summary, characters.
const LONGEST: usize = 160;

/// A record's verdict or end, and the rest of what matters in it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) verdict: Option<(Ink, String)>,
    pub(super) rest: String,
}

/// Reads a record as it stands in the log. One that this version does not understand is shown as it is.
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
    rest.extend(event.input.as_ref().map(flat));
    rest.extend(event.details.as_ref().map(flat));
    rest.retain(|part| !part.is_empty());
    let verdict = event.outcome.as_ref().map(ended).or_else(|| event.decision.as_ref().map(decided));
    Summary { verdict, rest: clip(&rest.join(" ")) }
}

fn decided(decision: &Decision) -> (Ink, String) {
    match decision.outcome {
        Verdict::Allow => (Ink::Green, "allow".into()),
        Verdict::Ask => (Ink::Yellow, "ask".into()),
        Verdict::Deny => (Ink::Red, "deny".into()),
        Verdict::Unknown => (Ink::Dim, "unknown".into()),
    }
}

fn ended(outcome: &Outcome) -> (Ink, String) {
    let (ink, word) = match outcome.status {
        Status::Succeeded => (Ink::Green, "succeeded"),
        Status::Failed => (Ink::Red, "failed"),
        Status::Denied => (Ink::Red, "denied"),
        Status::PendingApproval => (Ink::Yellow, "pending"),
        Status::Interrupted => (Ink::Red, "interrupted"),
        Status::Unknown => (Ink::Dim, "unknown"),
    };
    match outcome.exit_code {
        Some(code) if code != 0 => (Ink::Red, format!("{word}/exit {code}")),
        _ => (ink, word.into()),
    }
}

fn why(event: &Event) -> Option<String> {
    if let Some(outcome) = &event.outcome {
        return outcome.reason.clone();
    }
    let decision = event.decision.as_ref()?;
    decision.rule.clone().or_else(|| decision.reason.clone())
}

/// `name=value` for each member; values that are not plain as JSON.
fn flat(value: &Value) -> String {
    let Value::Object(members) = value else {
        return plain(value);
    };
    let parts: Vec<_> = members.iter().map(|(name, value)| format!("{name}={}", plain(value))).collect();
    parts.join(" ")
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
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
    fn an_intent_says_what_and_by_which_rule() {
        let mut event = Event::new(::audit::Kind::CallIntent);
        event.input = Some(serde_json::json!({"path": "a.txt", "start_line": 3}));
        event.decision = Some(Decision::new(Verdict::Ask).rule("review.write"));
        assert_eq!(
            of(&event),
            Summary {
                verdict: Some((Ink::Yellow, "ask".into())),
                rest: "review.write path=a.txt start_line=3".into()
            }
        );
    }

    #[test]
    fn a_receipt_says_how_it_ended() {
        let mut event = Event::new(::audit::Kind::CallReceipt);
        event.outcome = Some(Outcome::new(Status::Succeeded).exit_code(3));
        event.duration_us = Some(1500);
        assert_eq!(
            of(&event),
            Summary { verdict: Some((Ink::Red, "succeeded/exit 3".into())), rest: "1 ms".into() }
        );
        event.outcome = Some(Outcome::new(Status::Denied).reason("COMMAND_NOT_ALLOWED"));
        assert_eq!(of(&event).rest, "1 ms COMMAND_NOT_ALLOWED");
    }

    #[test]
    fn what_is_not_understood_is_shown_and_bounded() {
        assert_eq!(summarise("{\"kind\":3}").rest, "{\"kind\":3}");
        assert_eq!(summarise(&"é".repeat(1000)).rest.chars().count(), LONGEST + 1);
    }
}
