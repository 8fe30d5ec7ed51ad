//! Filters records for a client: the same way for queries, streams and exports.

use audit::{Event, Record, Verdict};
use refusal::Refusal;
use wire::v1::EventFilter;

/// Longest text of a filter, bytes.
const LONGEST: usize = 256;
/// Most kinds that a filter may name.
const KINDS: usize = 32;
const STATUSES: [&str; 4] = ["succeeded", "failed", "denied", "interrupted"];

/// A checked filter. A missing field matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub(crate) run: Option<String>,
    pub(crate) call: Option<String>,
    pub(crate) kinds: Vec<String>,
    pub(crate) agent: Option<String>,
    pub(crate) principal: Option<String>,
    pub(crate) operation: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) approval: Option<String>,
    /// Nanoseconds since 1970, and so is `until`.
    pub(crate) from: Option<i64>,
    pub(crate) until: Option<i64>,
    pub(crate) text: Option<Needle>,
}

impl Filter {
    /// Checks the filter that a client sent.
    pub fn from_wire(wire: EventFilter) -> Result<Self, Refusal> {
        if wire.kinds.len() > KINDS {
            return Err(Refusal::invalid("filter.kinds", format!("at most {KINDS}")));
        }
        for kind in &wire.kinds {
            text("filter.kinds", kind.clone())?;
        }
        let status = text("filter.status", wire.status)?;
        if status.as_ref().is_some_and(|status| !STATUSES.contains(&status.as_str())) {
            return Err(Refusal::invalid("filter.status", format!("must be one of {}", STATUSES.join(", "))));
        }
        Ok(Self {
            run: text("filter.run_id", wire.run_id)?,
            call: text("filter.call_id", wire.call_id)?,
            kinds: wire.kinds,
            agent: text("filter.agent_id", wire.agent_id)?,
            principal: text("filter.principal", wire.principal)?,
            operation: text("filter.operation", wire.operation)?,
            status,
            reason: text("filter.reason", wire.reason)?,
            approval: text("filter.approval_id", wire.approval_id)?,
            from: wire.from.map(|time| nanos(time.seconds, time.nanos)),
            until: wire.until.map(|time| nanos(time.seconds, time.nanos)),
            text: text("filter.text", wire.text)?.map(|text| Needle::new(&text)),
        })
    }

    /// Returns true if the filter matches a record, whose text is `line`.
    pub fn matches(&self, record: &Record, line: &str) -> bool {
        let event = &record.event;
        let same =
            |wanted: &Option<String>, found: Option<&str>| wanted.as_deref().is_none_or(|w| found == Some(w));
        let time = time_of(record);
        same(&self.run, event.run_id.as_deref())
            && same(&self.call, event.call_id.as_deref())
            && same(&self.agent, event.agent_id.as_deref())
            && same(&self.principal, event.principal.as_deref())
            && same(&self.operation, event.operation.as_deref())
            && same(&self.status, status_of(event))
            && same(&self.reason, reason_of(event))
            && same(&self.approval, event.approval_id.as_deref())
            && (self.kinds.is_empty() || self.kinds.iter().any(|kind| kind == event.kind.as_str()))
            && self.from.is_none_or(|from| time >= from)
            && self.until.is_none_or(|until| time < until)
            && self.text.as_ref().is_none_or(|text| text.is_in(line))
    }
}

/// Returns when a record was written, nanoseconds since 1970.
pub(crate) fn time_of(record: &Record) -> i64 {
    record.time.unix_nanos()
}

/// Returns how a call ended, as written in the log.
pub(crate) fn status_of(event: &Event) -> Option<&'static str> {
    status_name(event.outcome.as_ref()?.status)
}

/// Returns the name of a status in the log. A status of a later version has none.
pub(crate) fn status_name(status: audit::Status) -> Option<&'static str> {
    (status != audit::Status::Unknown).then(|| status.name())
}

/// Returns the stable reason of an end, or of a refusal. The reason for allowing something is a free text, and does not count.
pub(crate) fn reason_of(event: &Event) -> Option<&str> {
    if let Some(outcome) = &event.outcome {
        return outcome.reason.as_deref();
    }
    let decision = event.decision.as_ref().filter(|decision| decision.outcome == Verdict::Deny)?;
    decision.reason.as_deref()
}

fn nanos(seconds: i64, nanos: i32) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos.into())
}

fn text(field: &'static str, text: String) -> Result<Option<String>, Refusal> {
    if text.len() > LONGEST {
        return Err(Refusal::invalid(field, format!("must be at most {LONGEST} bytes")));
    }
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// A text to find in a line, in its JSON form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Needle(Vec<u8>);

impl Needle {
    fn new(text: &str) -> Self {
        let quoted = serde_json::Value::from(text).to_string();
        let inner = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
        Self(inner.to_ascii_lowercase().into_bytes())
    }

    pub(crate) fn is_in(&self, line: &str) -> bool {
        let (needle, hay) = (&self.0, line.as_bytes());
        let Some(first) = needle.first() else { return true };
        let firsts = [*first, first.to_ascii_uppercase()];
        let Some(last) = hay.len().checked_sub(needle.len()) else { return false };
        let mut at = 0;
        while at <= last {
            match memchr::memchr2(firsts[0], firsts[1], &hay[at..=last]) {
                Some(found) if hay[at + found..at + found + needle.len()].eq_ignore_ascii_case(needle) => {
                    return true;
                }
                Some(found) => at += found + 1,
                None => return false,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use audit::{Decision, Event, Kind, Outcome, Status, Verdict};

    use super::{EventFilter, Filter, Needle, reason_of};

    #[test]
    fn text_search_finds_escaped_text_anywhere() {
        let line = serde_json::json!({"a": "Grüße \"QUOTED\" \\ tab\t", "hash": "00"}).to_string();
        for there in ["quoted", "\"quoted\"", "Grüße", "\\ tab\t", "TAB", "{", "00"] {
            assert!(Needle::new(there).is_in(&line), "{there}");
        }
        for not in ["GRÜSSE", "quotedx", "tab ", "1"] {
            assert!(!Needle::new(not).is_in(&line), "{not}");
        }
        assert!(!Needle::new("longer than all").is_in("short"));
    }

    #[test]
    fn invalid_filters_are_refused() {
        let long = "x".repeat(257);
        for (field, filter) in [
            ("filter.status", EventFilter { status: "SUCCEEDED".into(), ..Default::default() }),
            ("filter.run_id", EventFilter { run_id: long.clone(), ..Default::default() }),
            ("filter.text", EventFilter { text: long.clone(), ..Default::default() }),
            ("filter.kinds", EventFilter { kinds: vec![long], ..Default::default() }),
            ("filter.kinds", EventFilter { kinds: vec!["x".into(); 33], ..Default::default() }),
        ] {
            let refusal = Filter::from_wire(filter).unwrap_err();
            assert_eq!(refusal.metadata, [("field".into(), field.to_owned())]);
        }
    }

    #[test]
    fn a_reason_is_that_of_a_refusal_or_an_end() {
        let allowed =
            Event::new(Kind::CallIntent).decision(Decision::new(Verdict::Allow).reason("a sentence"));
        assert_eq!(reason_of(&allowed), None);
        let denied =
            Event::new(Kind::CallIntent).decision(Decision::new(Verdict::Deny).reason("RATE_LIMITED"));
        assert_eq!(reason_of(&denied), Some("RATE_LIMITED"));
        let failed = denied.outcome(Outcome::new(Status::Failed).reason("NOT_FOUND"));
        assert_eq!(reason_of(&failed), Some("NOT_FOUND"));
    }
}
