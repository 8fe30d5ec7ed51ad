//! Rows of the panes, made harmless, with keys for sorting.

use presentation::{ids, quantity, time};
use serde_json::Value;
use wire::v1::run::{StartKind, State};
use wire::v1::{Alert, Approval, AuditEvent, PoolKind, Run, alert, alert_measure};

use crate::approval::expiry;
use crate::board::Board;
use crate::harmless;

/// A list on the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pane {
    #[default]
    Runs,
    Calls,
    Approvals,
    Alerts,
    Pool,
}

impl Pane {
    pub(crate) const ALL: [Self; 5] = [Self::Runs, Self::Calls, Self::Approvals, Self::Alerts, Self::Pool];

    pub(crate) fn index(self) -> usize {
        self as usize
    }

    pub(crate) fn name(self) -> &'static str {
        ["runs", "calls", "approvals", "alerts", "pool"][self.index()]
    }

    pub(crate) fn header(self) -> &'static [&'static str] {
        match self {
            Self::Runs => &["RUN", "STATE", "PROFILE", "AGENT", "START", "AGE", "DISK", "PRINCIPAL"],
            Self::Calls => &["TIME", "RUN", "AGENT", "OPERATION", "END", "TOOK", "INPUT"],
            Self::Approvals => &["APPROVAL", "RISK", "OPERATION", "AGENT", "RUN", "EXPIRES IN", "WHY"],
            Self::Alerts => &["ALERT", "SEVERITY", "RULE", "AGENT", "RUN", "MEASURE", "SUMMARY"],
            Self::Pool => &["KIND", "WAITING", "WANTED"],
        }
    }
}

/// Meaning of a row's colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Bad,
    Waits,
    Plain,
    Dim,
}

/// A cell, and the number by which it is sorted if it has one.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) text: String,
    key: Option<i64>,
}

/// One item of a list.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Id of the item, by which it stays selected.
    pub(crate) id: String,
    /// Run to which it belongs; empty for a kind of the pool.
    pub(crate) run: String,
    /// True if the run is paused, for the pane of runs.
    pub(crate) is_paused: bool,
    pub(crate) tone: Tone,
    pub(crate) cells: Vec<Cell>,
}

impl Row {
    /// Returns true if a cell or the id contains the text, which is in lower case.
    pub(crate) fn contains(&self, text: &str) -> bool {
        self.id.contains(text)
            || self.run.contains(text)
            || self.cells.iter().any(|cell| cell.text.to_lowercase().contains(text))
    }

    /// Compares the cells of a column: numbers by their size, all others as text.
    pub(crate) fn order(&self, other: &Self, column: usize) -> std::cmp::Ordering {
        let of = |row: &Self| row.cells.get(column).map(|cell| (cell.key, cell.text.clone()));
        of(self).cmp(&of(other))
    }
}

fn word(text: &str) -> Cell {
    Cell { text: harmless::cell(text), key: None }
}

fn number(text: String, key: i64) -> Cell {
    Cell { text, key: Some(key) }
}

fn count(number: u64) -> Cell {
    self::number(number.to_string(), i64::try_from(number).unwrap_or(i64::MAX))
}

/// Returns the rows of a pane.
pub(crate) fn rows(board: &Board, pane: Pane, now: &wire::Timestamp) -> Vec<Row> {
    match pane {
        Pane::Runs => board.runs.items.iter().map(|run| of_run(run, now)).collect(),
        Pane::Calls => board.calls.items.iter().map(of_call).collect(),
        Pane::Approvals => board.approvals.items.iter().map(|approval| of_approval(approval, now)).collect(),
        Pane::Alerts => board.alerts.items.iter().map(of_alert).collect(),
        Pane::Pool => board.pool.items.iter().map(of_kind).collect(),
    }
}

/// Returns true if a run takes resources of the host.
pub(crate) fn lives(run: &Run) -> bool {
    matches!(run.state(), State::Creating | State::Ready | State::Paused | State::Stopping)
}

fn of_run(run: &Run, now: &wire::Timestamp) -> Row {
    let tone = match run.state() {
        State::Ready => Tone::Good,
        State::Failed => Tone::Bad,
        State::Paused => Tone::Waits,
        State::Creating | State::Stopping => Tone::Plain,
        State::Stopped | State::Unspecified => Tone::Dim,
    };
    let start = match run.start_kind() {
        StartKind::Warm => "warm",
        StartKind::Cold => "cold",
        StartKind::Unspecified => "-",
    };
    let end = run.ended_at.as_ref().unwrap_or(now);
    let age = time::between(run.created_at.as_ref(), Some(end));
    let disk = run.disk.as_ref().map(|disk| disk.used_bytes);
    Row {
        id: run.run_id.clone(),
        run: run.run_id.clone(),
        is_paused: run.state() == State::Paused,
        tone,
        cells: vec![
            word(ids::short(&run.run_id)),
            word(run.state().as_str_name()),
            word(&run.profile),
            word(&run.agent_id),
            word(start),
            number(
                age.map_or_else(|| "-".to_owned(), time::brief),
                age.map_or(0, |age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX)),
            ),
            number(
                disk.map_or_else(|| "-".to_owned(), quantity::bytes),
                disk.map_or(-1, |disk| i64::try_from(disk).unwrap_or(i64::MAX)),
            ),
            word(&run.principal),
        ],
    }
}

fn of_call(event: &AuditEvent) -> Row {
    let record: Value = serde_json::from_str(&event.record_json).unwrap_or_default();
    let outcome = &record["outcome"];
    let (end, tone) = match (event.kind.as_str(), outcome["status"].as_str()) {
        ("call_intent", _) => ("running".to_owned(), Tone::Plain),
        (_, Some(status)) => {
            let tone = match status {
                "succeeded" => Tone::Good,
                "pending_approval" => Tone::Waits,
                _ => Tone::Bad,
            };
            match (outcome["reason"].as_str(), outcome["exit_code"].as_i64()) {
                (Some(reason), _) => (format!("{status}: {reason}"), tone),
                (None, Some(code)) if code != 0 => (format!("exit {code}"), Tone::Bad),
                _ => (status.to_owned(), tone),
            }
        }
        _ => ("?".to_owned(), Tone::Dim),
    };
    let took = record["duration_us"].as_u64();
    let input = match &record["input"] {
        Value::Null => "-".to_owned(),
        input => input.to_string(),
    };
    let at = time::moment(event.time.as_ref());
    let clock = at.get(11..19).unwrap_or("-").to_owned();
    Row {
        id: event.call_id.clone(),
        run: event.run_id.clone(),
        is_paused: false,
        tone,
        cells: vec![
            number(clock, i64::try_from(event.sequence).unwrap_or(i64::MAX)),
            word(&ids::or_dash(ids::short(&event.run_id))),
            word(&event.agent_id),
            word(&event.operation),
            word(&end),
            number(
                took.map_or_else(
                    || "-".to_owned(),
                    |took| time::brief(std::time::Duration::from_micros(took)),
                ),
                took.map_or(-1, |took| i64::try_from(took).unwrap_or(i64::MAX)),
            ),
            word(&input),
        ],
    }
}

fn of_approval(approval: &Approval, now: &wire::Timestamp) -> Row {
    let left = time::between(Some(now), approval.expires_at.as_ref());
    // The rank and not the letters: a critical one comes first or last.
    let rank = ["low", "medium", "high", "critical"].iter().position(|risk| *risk == approval.risk);
    Row {
        id: approval.approval_id.clone(),
        run: approval.run_id.clone(),
        is_paused: false,
        tone: if rank == Some(3) { Tone::Bad } else { Tone::Waits },
        cells: vec![
            word(ids::short(&approval.approval_id)),
            number(harmless::cell(&approval.risk), rank.map_or(-1, |rank| i64::try_from(rank).unwrap_or(0))),
            word(&approval.operation),
            word(&approval.agent_id),
            word(ids::short(&approval.run_id)),
            number(
                expiry(approval, now),
                left.map_or(0, |left| i64::try_from(left.as_millis()).unwrap_or(i64::MAX)),
            ),
            word(&approval.justification),
        ],
    }
}

fn of_alert(alert: &Alert) -> Row {
    let tone = match alert.severity() {
        alert::Severity::Critical | alert::Severity::High => Tone::Bad,
        alert::Severity::Medium => Tone::Waits,
        alert::Severity::Low | alert::Severity::Unspecified => Tone::Plain,
    };
    let measure = match &alert.measure {
        Some(measure)
            if !matches!(measure.state(), alert_measure::State::None | alert_measure::State::Unspecified) =>
        {
            format!("{} {}", measure.action, measure.state().as_str_name())
        }
        _ => "-".to_owned(),
    };
    Row {
        id: alert.alert_id.clone(),
        run: alert.run_id.clone(),
        is_paused: false,
        tone,
        cells: vec![
            word(ids::short(&alert.alert_id)),
            number(alert.severity().as_str_name().to_owned(), i64::from(alert.severity)),
            word(&alert.rule),
            word(&alert.agent_id),
            word(&ids::or_dash(ids::short(&alert.run_id))),
            word(&measure),
            word(&alert.summary),
        ],
    }
}

fn of_kind(kind: &PoolKind) -> Row {
    Row {
        id: kind.name.clone(),
        run: String::new(),
        is_paused: false,
        tone: if kind.waiting < kind.wanted { Tone::Waits } else { Tone::Plain },
        cells: vec![word(&kind.name), count(kind.waiting.into()), count(kind.wanted.into())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(row: &Row) -> Vec<&str> {
        row.cells.iter().map(|cell| cell.text.as_str()).collect()
    }

    #[test]
    fn a_call_shows_its_end_and_hostile_text_is_harmless() {
        let event = |kind: &str, record: &str| AuditEvent {
            sequence: 7,
            kind: kind.into(),
            call_id: "c".into(),
            agent_id: "ali\x1b[2Jce".into(),
            operation: "exec".into(),
            record_json: record.into(),
            time: Some(wire::Timestamp { seconds: 3_723, nanos: 0 }),
            ..Default::default()
        };
        let done = r#"{"outcome":{"status":"failed","exit_code":3},"duration_us":1500,"input":{"args":["\u001b]0;x"]}}"#;
        let row = of_call(&event("call_receipt", done));
        assert_eq!(
            texts(&row),
            ["01:02:03", "-", "ali␛[2Jce", "exec", "exit 3", "1 ms", r#"{"args":["\u001b]0;x"]}"#]
        );
        assert_eq!(row.tone, Tone::Bad);
        assert_eq!(of_call(&event("call_intent", "{}")).cells[4].text, "running");
        assert_eq!(of_call(&event("call_receipt", "no JSON")).cells[4].text, "?");
    }

    #[test]
    fn numbers_are_sorted_by_their_size() {
        let kind = |name: &str, waiting| PoolKind { name: name.into(), waiting, wanted: 1 };
        let (nine, ten) = (of_kind(&kind("b", 9)), of_kind(&kind("a", 10)));
        assert_eq!(nine.order(&ten, 1), std::cmp::Ordering::Less);
        assert_eq!(nine.order(&ten, 0), std::cmp::Ordering::Greater);
        assert!(nine.contains("9") && !nine.contains("x"));
    }
}
