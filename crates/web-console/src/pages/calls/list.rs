//! The list of calls: their receipts in the audit log, or their intents.

use maud::{Markup, html};
use wire::v1::{AuditEvent, EventFilter};

use super::super::elements::{call_link, field, next, run_link, select, state, table};
use super::super::record::Record;
use super::super::{figures, foreign};
use crate::form::Fields;

/// Calls of a page.
pub(crate) const PAGE: u32 = 50;

/// Filter of the list, as the form has it.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub(crate) run: String,
    pub(crate) agent: String,
    pub(crate) operation: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    /// `begun` for intents, which calls that wait or run have alone.
    pub(crate) show: String,
    pub(crate) page: String,
}

impl Filter {
    pub(crate) fn of(fields: &Fields) -> Self {
        let get = |name| fields.get(name).to_owned();
        Self {
            run: get("run"),
            agent: get("agent"),
            operation: get("operation"),
            status: get("status"),
            reason: get("reason"),
            show: get("show"),
            page: get("page"),
        }
    }

    pub(crate) fn to_wire(&self) -> EventFilter {
        let begun = self.show == "begun";
        EventFilter {
            run_id: self.run.clone(),
            agent_id: self.agent.clone(),
            operation: self.operation.clone(),
            // Intents have no status.
            status: if begun { String::new() } else { self.status.clone() },
            reason: self.reason.clone(),
            kinds: vec![if begun { "call_intent" } else { "call_receipt" }.to_owned()],
            ..Default::default()
        }
    }
}

pub(crate) fn render(events: &[AuditEvent], filter: &Filter, token: &str) -> Markup {
    const STATUS: [(&str, &str); 5] = [
        ("", "any"),
        ("succeeded", "succeeded"),
        ("failed", "failed"),
        ("denied", "denied"),
        ("interrupted", "interrupted"),
    ];
    let query = [
        ("run", filter.run.as_str()),
        ("agent", &filter.agent),
        ("operation", &filter.operation),
        ("status", &filter.status),
        ("reason", &filter.reason),
        ("show", &filter.show),
    ];
    html! {
        h1 { "Calls" }
        form.filter method="get" action="/calls" {
            (select("show", "Show", &[("", "those that ended"), ("begun", "all that began")], &filter.show))
            (select("status", "Status", &STATUS, &filter.status))
            (field("operation", "Operation", &filter.operation))
            (field("reason", "Reason", &filter.reason))
            (field("agent", "Agent", &filter.agent))
            (field("run", "Run", &filter.run))
            button type="submit" { "Show" }
        }
        @if events.is_empty() { p { "No call matches on this page." } }
        @else { (table("Calls, newest first", &["Time", "Call", "Run", "Agent", "Operation", "Result", "Took"], events.iter().map(row))) }
        (next("/calls", &query, token))
    }
}

fn row(event: &AuditEvent) -> Vec<Markup> {
    let record = Record::of(event);
    let status = record.text("/outcome/status");
    let result = if status.is_empty() { record.text("/decision/outcome") } else { status };
    vec![
        figures::moment(event.time.as_ref()),
        call_link(&event.call_id),
        run_link(&event.run_id),
        foreign::line(&event.agent_id),
        foreign::line(&event.operation),
        html! {
            (state(&figures::word(result)))
            @if !record.text("/outcome/reason").is_empty() { " " (foreign::line(record.text("/outcome/reason"))) }
        },
        html! { @if let Some(us) = record.number("/duration_us") { (figures::micros(us)) } },
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::foreign::tests::{HOSTILE, assert_harmless};
    use super::*;

    #[test]
    fn texts_of_calls_are_harmless() {
        let hostile = || HOSTILE.to_owned();
        let record = json!({ "outcome": { "status": HOSTILE, "reason": HOSTILE }, "decision": { "outcome": HOSTILE } });
        let event = AuditEvent {
            run_id: hostile(),
            call_id: hostile(),
            agent_id: hostile(),
            operation: hostile(),
            record_json: record.to_string(),
            ..Default::default()
        };
        let broken = AuditEvent { record_json: hostile(), ..event.clone() };
        let filter = Filter {
            run: hostile(),
            agent: hostile(),
            operation: hostile(),
            status: hostile(),
            reason: hostile(),
            show: hostile(),
            page: hostile(),
        };
        assert_harmless(&render(&[event, broken], &filter, HOSTILE));
    }

    #[test]
    fn calls_that_began_have_no_status_to_filter_by() {
        let filter = Filter { show: "begun".to_owned(), status: "failed".to_owned(), ..Default::default() };
        assert_eq!(
            (filter.to_wire().kinds, filter.to_wire().status),
            (vec!["call_intent".to_owned()], String::new())
        );
        let filter = Filter { status: "failed".to_owned(), ..Default::default() };
        assert_eq!(
            (filter.to_wire().kinds, filter.to_wire().status.as_str()),
            (vec!["call_receipt".to_owned()], "failed")
        );
    }
}
