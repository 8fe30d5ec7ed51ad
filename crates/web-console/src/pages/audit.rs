//! The audit log: its records by filters, the newest first, shown again when others come.

use axum::Router;
use axum::extract::{Path, State as Extracted};
use axum::response::Response;
use axum::routing::get;
use futures_util::StreamExt as _;
use maud::{Markup, html};
use tokio::task::spawn_blocking;
use tonic::codegen::http::StatusCode;
use wire::v1::query_events_request::Order;
use wire::v1::{AuditEvent, EventFilter, QueryEventsRequest, StreamEventsRequest};

use super::elements::{address, call_link, facts, field, next, run_link, select, state, table};
use super::record::Record;
use super::request::Query;
use super::{figures, foreign};
use crate::State;
use crate::api::quick;
use crate::error::Problem;
use crate::events;
use crate::form::Fields;
use crate::layout::{live_page, page};
use crate::viewer::Viewer;

/// Records of a page.
const PAGE: u32 = 50;
/// Words of the page in the navigation.
const TITLE: &str = "Audit log";
/// Fields of the filter, as the form has them.
const FIELDS: [&str; 9] =
    ["run", "call", "kind", "agent", "principal", "operation", "status", "reason", "text"];

pub(super) fn routes() -> Router<State> {
    Router::new()
        .route("/audit", get(listed))
        .route("/audit/{sequence}", get(shown))
        .route("/events/audit", get(changes))
}

/// Returns the filter of a query.
fn filter(fields: &Fields) -> EventFilter {
    let get = |name| fields.get(name).to_owned();
    EventFilter {
        run_id: get("run"),
        call_id: get("call"),
        kinds: Some(get("kind")).filter(|kind| !kind.is_empty()).into_iter().collect(),
        agent_id: get("agent"),
        principal: get("principal"),
        operation: get("operation"),
        status: get("status"),
        reason: get("reason"),
        text: get("text"),
        ..Default::default()
    }
}

fn query(fields: &Fields) -> Vec<(&'static str, &str)> {
    FIELDS.iter().map(|name| (*name, fields.get(name))).collect()
}

async fn listed(viewer: Viewer, Query(fields): Query) -> Result<Response, Problem> {
    let request = QueryEventsRequest {
        filter: Some(filter(&fields)),
        order: Order::NewestFirst.into(),
        page_size: PAGE,
        page_token: fields.get("page").to_owned(),
    };
    let answer = viewer.services.audit().query_events(quick(request)).await?.into_inner();
    let head = answer.head_sequence.to_string();
    // Not in the threads that serve calls, which would wait for it.
    let rendered =
        spawn_blocking(move || (render(&answer.events, &fields, &answer.next_page_token), fields)).await;
    let (main, fields) = rendered
        .map_err(|_| Problem::Bad(StatusCode::INTERNAL_SERVER_ERROR, "The page could not be made."))?;
    if !fields.get("page").is_empty() {
        return Ok(page(TITLE, Some(&viewer), main));
    }
    let events = address("/events/audit", &[&query(&fields)[..], &[("after", &head)]].concat());
    Ok(live_page(TITLE, &viewer, &events, main))
}

/// Shows one record.
async fn shown(viewer: Viewer, Path(sequence): Path<String>) -> Result<Response, Problem> {
    let sequence: u64 = sequence.parse().map_err(|_| Problem::not_found())?;
    let after_sequence = sequence.checked_sub(1).ok_or_else(Problem::not_found)?;
    let request = StreamEventsRequest { after_sequence, ..Default::default() };
    let mut records = viewer.services.audit().stream_events(quick(request)).await?.into_inner();
    let record = records.message().await?.and_then(|answer| answer.event);
    // Retention may have removed it: the stream then begins later.
    let record = record.filter(|record| record.sequence == sequence).ok_or_else(Problem::not_found)?;
    Ok(page(TITLE, Some(&viewer), whole(&record)))
}

/// Tells the page when the log has another record that matches.
async fn changes(
    Extracted(state): Extracted<State>,
    viewer: Viewer,
    Query(fields): Query,
) -> Result<Response, Problem> {
    let request = StreamEventsRequest {
        // An address without it would have the whole log read.
        after_sequence: fields.get("after").parse().map_err(|_| Problem::not_found())?,
        filter: Some(filter(&fields)),
        follow: true,
        // The page needs no record, only to know that there is one.
        newest_only: true,
    };
    let records = viewer.services.audit().stream_events(request).await?.into_inner();
    let records = records.take_while(|record| std::future::ready(record.is_ok())).map(drop);
    events::calm(&state, &viewer, Box::pin(records))
}

fn render(records: &[AuditEvent], fields: &Fields, token: &str) -> Markup {
    const STATUS: [(&str, &str); 5] = [
        ("", "any"),
        ("succeeded", "succeeded"),
        ("failed", "failed"),
        ("denied", "denied"),
        ("interrupted", "interrupted"),
    ];
    html! {
        h1 { "Audit log" }
        form.filter method="get" action="/audit" {
            (field("text", "Text", fields.get("text")))
            (field("kind", "Kind", fields.get("kind")))
            (field("operation", "Operation", fields.get("operation")))
            (select("status", "Status", &STATUS, fields.get("status")))
            (field("reason", "Reason", fields.get("reason")))
            (field("agent", "Agent", fields.get("agent")))
            (field("principal", "Principal", fields.get("principal")))
            (field("run", "Run", fields.get("run")))
            (field("call", "Call", fields.get("call")))
            button type="submit" { "Show" }
        }
        div #records data-live {
            @if records.is_empty() { p { "No record matches on this page." } }
            @else { (table("Records, newest first", HEADS, records.iter().map(row))) }
        }
        (next("/audit", &query(fields), token))
    }
}

fn whole(event: &AuditEvent) -> Markup {
    html! {
        h1 { "Record " (event.sequence) }
        (facts([
            ("Kind", Some(foreign::line(&event.kind))),
            ("Time", Some(figures::moment(event.time.as_ref()))),
            ("Run", (!event.run_id.is_empty()).then(|| run_link(&event.run_id))),
            ("Call", (!event.call_id.is_empty()).then(|| call_link(&event.call_id))),
            ("Principal", (!event.principal.is_empty()).then(|| foreign::line(&event.principal))),
            ("Hash", Some(foreign::line(&event.hash))),
            ("Hash before", Some(foreign::line(&event.previous_hash))),
        ]))
        h2 { "As it is in the log" }
        (foreign::json(&event.record_json))
    }
}

const HEADS: &[&str] =
    &["Nr", "Time", "Kind", "Run", "Call", "Principal", "Agent", "Operation", "Result", "Record"];

fn row(event: &AuditEvent) -> Vec<Markup> {
    let record = Record::of(event);
    let status = record.text("/outcome/status");
    let result = if status.is_empty() { record.text("/decision/outcome") } else { status };
    vec![
        html! { (event.sequence) },
        figures::moment(event.time.as_ref()),
        foreign::line(&event.kind),
        run_link(&event.run_id),
        call_link(&event.call_id),
        foreign::line(&event.principal),
        foreign::line(&event.agent_id),
        foreign::line(&event.operation),
        html! { @if !result.is_empty() { (state(&figures::word(result))) } },
        html! {
            a href={ "/audit/" (event.sequence) } { "Record" span.visually-hidden { " " (event.sequence) } }
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::super::foreign::tests::{HOSTILE, assert_harmless};
    use super::*;

    #[test]
    fn texts_of_records_and_filters_are_harmless() {
        let hostile = || HOSTILE.to_owned();
        let event = AuditEvent {
            kind: hostile(),
            run_id: hostile(),
            call_id: hostile(),
            principal: hostile(),
            agent_id: hostile(),
            operation: hostile(),
            record_json: serde_json::json!({ "outcome": { "status": HOSTILE }, HOSTILE: HOSTILE })
                .to_string(),
            ..Default::default()
        };
        let broken = AuditEvent { record_json: hostile(), ..event.clone() };
        let mut encoded = url::form_urlencoded::Serializer::new(String::new());
        encoded.extend_pairs(FIELDS.iter().map(|name| (*name, HOSTILE)));
        let fields = Fields::parse(encoded.finish().as_bytes());
        assert_harmless(&whole(&event));
        assert_harmless(&whole(&broken));
        assert_harmless(&render(&[event, broken], &fields, HOSTILE));
    }

    #[test]
    fn all_fields_of_the_form_filter_and_are_kept_for_the_next_page() {
        let query_text: Vec<String> = FIELDS.iter().map(|name| format!("{name}=x-{name}")).collect();
        let fields = Fields::parse(query_text.join("&").as_bytes());
        let filter = filter(&fields);
        assert_eq!((filter.kinds, filter.text), (vec!["x-kind".to_owned()], "x-text".to_owned()));
        let shown = render(&[], &fields, "t").0;
        for name in FIELDS.iter().filter(|name| **name != "status") {
            assert!(shown.contains(&format!("value=\"x-{name}\"")), "{name}");
            assert!(shown.contains(&format!("{name}=x-{name}")), "{name}");
        }
        assert_eq!(super::filter(&Fields::default()).kinds, Vec::<String>::new());
    }
}
