//! Alerts: the list, one alert, and its acknowledgement.

use axum::Router;
use axum::extract::Path;
use axum::response::Response;
use axum::routing::{get, post};
use maud::{Markup, html};
use wire::v1::alert::{Severity, State};
use wire::v1::{
    AcknowledgeAlertRequest, Alert, AlertDelivery, AlertMeasure, GetAlertRequest, ListAlertsRequest,
    alert_delivery, alert_measure,
};

use super::elements::{address, facts, field, id_path, next, run_link, select, state, table};
use super::request::{Query, id, is_operator};
use super::{figures, foreign};
use crate::api::quick;
use crate::error::{Problem, redirect};
use crate::form::{Checked, Fields};
use crate::layout::{csrf, page};
use crate::viewer::Viewer;

/// Alerts of a page.
const PAGE: u32 = 50;

pub(super) fn routes() -> Router<crate::State> {
    Router::new()
        .route("/alerts", get(listed))
        .route("/alerts/{alert}", get(shown))
        .route("/alerts/{alert}/acknowledge", post(acknowledge))
}

async fn listed(viewer: Viewer, Query(query): Query) -> Result<Response, Problem> {
    let filter = Filter::of(&query);
    let request = ListAlertsRequest {
        state: filter.state().into(),
        min_severity: filter.severity().into(),
        rule: filter.rule.clone(),
        run_id: filter.run.clone(),
        page_size: PAGE,
        page_token: filter.page.clone(),
        ..Default::default()
    };
    let answer = viewer.services.alerts().list_alerts(quick(request)).await?.into_inner();
    Ok(page("Alerts", Some(&viewer), render(&answer.alerts, &filter, &answer.next_page_token)))
}

async fn shown(viewer: Viewer, Path(alert): Path<String>) -> Result<Response, Problem> {
    let request = GetAlertRequest { alert_id: id(alert)? };
    let alert = viewer.services.alerts().get_alert(quick(request)).await?.into_inner().alert;
    let alert = alert.ok_or_else(Problem::not_found)?;
    let hidden = is_operator(&viewer).then(|| csrf(&viewer));
    Ok(page("Alerts", Some(&viewer), show(&alert, hidden.as_ref())))
}

async fn acknowledge(
    Path(alert): Path<String>,
    Checked { viewer, fields }: Checked,
) -> Result<Response, Problem> {
    let alert_id = id(alert)?;
    let back = format!("/alerts/{alert_id}");
    let request = AcknowledgeAlertRequest { alert_id, comment: fields.get("comment").to_owned() };
    viewer.services.alerts().acknowledge_alert(quick(request)).await?;
    Ok(redirect(&back))
}

/// Filter of the list, as the form has it.
#[derive(Debug, Default)]
pub(super) struct Filter {
    pub(super) state: String,
    pub(super) severity: String,
    pub(super) rule: String,
    pub(super) run: String,
    pub(super) page: String,
}

impl Filter {
    fn of(fields: &Fields) -> Self {
        let get = |name| fields.get(name).to_owned();
        Self {
            state: get("state"),
            severity: get("severity"),
            rule: get("rule"),
            run: get("run"),
            page: get("page"),
        }
    }

    pub(super) fn state(&self) -> State {
        match self.state.as_str() {
            "open" => State::Open,
            "acknowledged" => State::Acknowledged,
            _ => State::Unspecified,
        }
    }

    pub(super) fn severity(&self) -> Severity {
        Severity::from_str_name(&self.severity.to_ascii_uppercase()).unwrap_or_default()
    }
}

/// Returns the page of the list.
pub(super) fn render(alerts: &[Alert], filter: &Filter, token: &str) -> Markup {
    let query = [
        ("state", filter.state.as_str()),
        ("severity", &filter.severity),
        ("rule", &filter.rule),
        ("run", &filter.run),
    ];
    html! {
        h1 { "Alerts" }
        form.filter method="get" action="/alerts" {
            (select("state", "State", &[("", "all"), ("open", "open"), ("acknowledged", "acknowledged")], &filter.state))
            (select("severity", "At least", &[("", "any"), ("medium", "medium"), ("high", "high"), ("critical", "critical")], &filter.severity))
            (field("rule", "Rule", &filter.rule))
            (field("run", "Run", &filter.run))
            button type="submit" { "Show" }
        }
        @if alerts.is_empty() { p { "No alert matches." } } @else { (list(alerts)) }
        (next("/alerts", &query, token))
    }
}

/// Returns a table of alerts.
pub(super) fn list(alerts: &[Alert]) -> Markup {
    let rows = alerts.iter().map(|alert| {
        vec![
            html! { (figures::moment(alert.raised_at.as_ref())) },
            severity(alert),
            state(&state_of(alert)),
            html! {
                @match id_path("/alerts/", &alert.alert_id, "") {
                    Some(path) => a href=(path) { (foreign::heading(&alert.rule)) },
                    None => (foreign::heading(&alert.rule)),
                }
            },
            foreign::line(&alert.summary),
            run_link(&alert.run_id),
            foreign::line(&alert.agent_id),
            html! { (alert.occurrences) },
        ]
    });
    table("Alerts", &["Raised", "Severity", "State", "Rule", "What happened", "Run", "Agent", "Times"], rows)
}

/// Returns the page of one alert. `acknowledge` is the form's hidden part, if the viewer may acknowledge it.
pub(super) fn show(alert: &Alert, acknowledge: Option<&Markup>) -> Markup {
    let records = alert.sequences.iter().take(64);
    html! {
        h1 { "Alert: " (foreign::heading(&alert.rule)) }
        p { (severity(alert)) " " (state(&state_of(alert))) }
        p { (foreign::line(&alert.summary)) }
        (facts([
            ("Run", (!alert.run_id.is_empty()).then(|| run_link(&alert.run_id))),
            ("Agent", (!alert.agent_id.is_empty()).then(|| foreign::line(&alert.agent_id))),
            ("Principal", Some(foreign::line(&alert.principal))),
            ("Raised", Some(figures::moment(alert.raised_at.as_ref()))),
            ("Threshold", Some(html! { (alert.count) " of " (alert.threshold) " in " (alert.window_s) " s" })),
            ("Times", Some(html! { (alert.occurrences) ", the last " (figures::moment(alert.last_at.as_ref())) })),
            ("Measure", alert.measure.as_ref().map(measure)),
            ("Acknowledged", (!alert.acknowledged_by.is_empty()).then(|| html! {
                (figures::moment(alert.acknowledged_at.as_ref())) " by " (foreign::line(&alert.acknowledged_by))
            })),
            ("Comment", (!alert.comment.is_empty()).then(|| foreign::line(&alert.comment))),
            ("Records", (!alert.sequences.is_empty()).then(|| html! {
                @for sequence in records { (sequence) " " }
                @if !alert.run_id.is_empty() { a href=(address("/audit", &[("run", &alert.run_id)])) { "The run's records" } }
            })),
        ]))
        @if !alert.deliveries.is_empty() { h2 { "Deliveries" } (deliveries(&alert.deliveries)) }
        @if let (Some(hidden), State::Open, Some(action)) = (acknowledge, alert.state(), id_path("/alerts/", &alert.alert_id, "/acknowledge")) {
            h2 { "Acknowledge" }
            p { "Its measure is lifted, except a stop, and the rule counts from zero." }
            form method="post" action=(action) {
                (hidden)
                label { "Comment" textarea name="comment" rows="3" maxlength="4096" {} }
                button type="submit" { "Acknowledge" }
            }
        }
    }
}

fn severity(alert: &Alert) -> Markup {
    match alert.severity() {
        Severity::Unspecified => state("not known"),
        known => state(&figures::word(known.as_str_name())),
    }
}

fn state_of(alert: &Alert) -> String {
    figures::word(alert.state().as_str_name())
}

fn measure(measure: &AlertMeasure) -> Markup {
    html! {
        (foreign::line(&measure.action))
        @if measure.state() != alert_measure::State::Unspecified { ": " (figures::word(measure.state().as_str_name())) }
        @if measure.per_minute > 0 { ", " (measure.per_minute) " calls a minute" }
        @if measure.until.is_some() { ", until " (figures::moment(measure.until.as_ref())) }
        @if !measure.failure.is_empty() { ": " (foreign::line(&measure.failure)) }
    }
}

fn deliveries(deliveries: &[AlertDelivery]) -> Markup {
    let rows = deliveries.iter().map(|delivery| {
        let words = match delivery.state() {
            alert_delivery::State::Unspecified => "not known".to_owned(),
            known => figures::word(known.as_str_name()),
        };
        vec![
            foreign::line(&delivery.webhook),
            state(&words),
            html! { (delivery.attempts) },
            figures::moment(delivery.next_at.as_ref()),
            foreign::line(&delivery.failure),
        ]
    });
    table("Deliveries to webhooks", &["Webhook", "State", "Attempts", "Next", "Failure"], rows)
}

#[cfg(test)]
mod tests {
    use super::super::foreign::tests::{HOSTILE, assert_harmless};
    use super::*;

    const ID: &str = "0198a1b2-0000-7000-8000-00000000aaaa";

    fn alert() -> Alert {
        let hostile = || HOSTILE.to_owned();
        Alert {
            alert_id: ID.to_owned(),
            rule: hostile(),
            severity: Severity::High.into(),
            state: State::Open.into(),
            summary: hostile(),
            principal: hostile(),
            agent_id: hostile(),
            run_id: hostile(),
            acknowledged_by: hostile(),
            comment: hostile(),
            sequences: vec![1, 2],
            measure: Some(AlertMeasure { action: hostile(), failure: hostile(), ..Default::default() }),
            deliveries: vec![AlertDelivery { webhook: hostile(), failure: hostile(), ..Default::default() }],
            ..Default::default()
        }
    }

    #[test]
    fn texts_of_an_alert_are_harmless() {
        let hidden = html! { input type="hidden" name="csrf" value="x"; };
        assert_harmless(&show(&alert(), Some(&hidden)));
        let filter = Filter { rule: HOSTILE.to_owned(), run: HOSTILE.to_owned(), ..Default::default() };
        assert_harmless(&render(&[alert()], &filter, HOSTILE));
    }

    #[test]
    fn only_open_alerts_are_acknowledged_by_those_who_may() {
        let hidden = html! { input type="hidden" name="csrf" value="x"; };
        let path = format!("action=\"/alerts/{ID}/acknowledge\"");
        assert!(show(&alert(), Some(&hidden)).0.contains(&path));
        assert!(!show(&alert(), None).0.contains("<form"));
        let done = Alert { state: State::Acknowledged.into(), ..alert() };
        assert!(!show(&done, Some(&hidden)).0.contains("<form"));
        let none = Alert { alert_id: HOSTILE.to_owned(), ..alert() };
        assert!(!show(&none, Some(&hidden)).0.contains("<form"));
    }

    #[test]
    fn filters_are_parsed() {
        let filter = Filter { state: "open".into(), severity: "high".into(), ..Default::default() };
        assert_eq!((filter.state(), filter.severity()), (State::Open, Severity::High));
        let filter = Filter { state: "x".into(), severity: "x".into(), ..Default::default() };
        assert_eq!((filter.state(), filter.severity()), (State::Unspecified, Severity::Unspecified));
    }
}
