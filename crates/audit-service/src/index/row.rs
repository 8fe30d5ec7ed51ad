//! Parses the indexed fields of a record from its verified line.
//!
//! It skips the rest of the line: in a log of millions of records, most of the time would go into fields that the index lacks.

use std::borrow::Cow;

use audit::{Hash, Kind, Record, Status, Verdict};
use serde::Deserialize;
use timestamp::Timestamp;

use super::names::digest;
use super::state::IndexError;
use crate::filter::{reason_of, status_name, status_of, time_of};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) sequence: u64,
    pub(super) hash: Hash,
    /// Nanoseconds since the Unix epoch.
    pub(super) time: i64,
    pub(super) kind: &'static str,
    pub(super) run: Option<String>,
    pub(super) principal: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) operation: Option<String>,
    pub(super) status: Option<&'static str>,
    pub(super) reason: Option<String>,
    pub(super) call: Option<i64>,
    pub(super) approval: Option<i64>,
    /// Last of the records that this record says were removed.
    pub(super) removed: Option<u64>,
    /// Byte of its segment at which the record begins.
    pub(super) position: u64,
}

#[derive(Deserialize)]
struct Said<'a> {
    sequence: u64,
    #[serde(borrow)]
    hash: Cow<'a, str>,
    #[serde(borrow)]
    time: Cow<'a, str>,
    kind: Kind,
    #[serde(borrow, default)]
    run_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    principal: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    agent_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    operation: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    call_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    approval_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    decision: Option<Decision<'a>>,
    #[serde(borrow, default)]
    outcome: Option<Outcome<'a>>,
}

#[derive(Deserialize)]
struct Decision<'a> {
    outcome: Verdict,
    #[serde(borrow, default)]
    reason: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Outcome<'a> {
    status: Status,
    #[serde(borrow, default)]
    reason: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Removal {
    details: Removed,
}

#[derive(Deserialize)]
struct Removed {
    last_sequence: u64,
}

impl Row {
    /// Returns the row of a parsed record.
    pub(super) fn with(record: &Record, position: u64) -> Self {
        let event = &record.event;
        let removed = match event.kind {
            Kind::SegmentsRemoved => {
                event.details.as_ref().and_then(|details| details["last_sequence"].as_u64())
            }
            _ => None,
        };
        Self {
            sequence: record.sequence,
            hash: record.hash,
            time: time_of(record),
            kind: event.kind.as_str(),
            run: event.run_id.clone(),
            principal: event.principal.clone(),
            agent: event.agent_id.clone(),
            operation: event.operation.clone(),
            status: status_of(event),
            reason: reason_of(event).map(str::to_owned),
            call: event.call_id.as_deref().map(digest),
            approval: event.approval_id.as_deref().map(digest),
            removed,
            position,
        }
    }

    /// Returns the row of a verified line.
    pub(super) fn of(line: &str, position: u64) -> Result<Self, IndexError> {
        let odd = |_| IndexError::Inconsistent;
        let said: Said<'_> = serde_json::from_str(line).map_err(odd)?;
        let time: Timestamp = said.time.parse().map_err(|_| IndexError::Inconsistent)?;
        let removed = match said.kind {
            Kind::SegmentsRemoved => {
                serde_json::from_str(line).ok().map(|Removal { details }| details.last_sequence)
            }
            _ => None,
        };
        let reason = match (said.outcome.as_ref(), said.decision) {
            (Some(outcome), _) => outcome.reason.clone(),
            (None, Some(decision)) if decision.outcome == Verdict::Deny => decision.reason,
            _ => None,
        };
        let own = |text: Option<Cow<'_, str>>| text.map(Cow::into_owned);
        Ok(Self {
            sequence: said.sequence,
            hash: said.hash.parse().map_err(|_| IndexError::Inconsistent)?,
            time: time.unix_nanos(),
            kind: said.kind.as_str(),
            status: said.outcome.as_ref().and_then(|outcome| status_name(outcome.status)),
            reason: own(reason),
            run: own(said.run_id),
            principal: own(said.principal),
            agent: own(said.agent_id),
            operation: own(said.operation),
            call: said.call_id.as_deref().map(digest),
            approval: said.approval_id.as_deref().map(digest),
            removed,
            position,
        })
    }
}

#[cfg(test)]
mod tests {
    use audit::{Decision, Event, Kind, Outcome, Reader, Status, Verdict, Writer};
    use serde_json::json;

    use super::Row;

    #[test]
    fn a_row_equals_the_parsed_record() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, _) = Writer::open(directory.path()).unwrap();
        let odd = "a \"quoted\" \\ grüße\n\u{0}";
        let base = |kind| {
            Event::new(kind).run(odd).call("c").principal("uid:0").agent("a").operation("read").approval("p")
        };
        let denied = Decision::new(Verdict::Deny).reason(odd);
        let events = [
            Event::new(Kind::DaemonStarted),
            base(Kind::CallIntent).decision(Decision::new(Verdict::Allow).reason("a sentence")),
            base(Kind::CallIntent)
                .decision(denied.clone())
                .input(json!({ "run_id": "not this", "x": [1, {}] })),
            base(Kind::CallReceipt).decision(denied).outcome(Outcome::new(Status::Failed)),
            base(Kind::CallReceipt).outcome(Outcome::new(Status::Interrupted).reason("TIMED_OUT")),
            Event::new(Kind::SegmentsRemoved).details(json!({ "last_sequence": 3 })),
            Event::new(Kind::SegmentsRemoved).details(json!({ "last_sequence": -1 })),
        ];
        writer.append_batch(&events).unwrap();
        let mut reader = Reader::from(directory.path(), 0);
        let mut rows = Vec::new();
        while let Some((record, line)) = reader.next_with_line().unwrap() {
            let row = Row::of(line, record.sequence).unwrap();
            assert_eq!(row, Row::with(&record, record.sequence));
            rows.push(row);
        }
        assert_eq!(rows.iter().map(|row| row.removed).collect::<Vec<_>>()[4..], [None, Some(3), None]);
        assert!(Row::of("{}", 0).is_err());
    }
}
