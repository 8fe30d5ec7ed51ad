//! The first page: numbers of the daemon, and links to their details.

use std::collections::BTreeMap;

use axum::Router;
use axum::extract::State as Extracted;
use axum::response::Response;
use axum::routing::get;
use futures_util::StreamExt as _;
use futures_util::stream::select;
use maud::{Markup, html};
use wire::v1::run::{ColdBecause, StartKind, State};
use wire::v1::{
    Alert, Approval, ListAlertsRequest, ListApprovalsRequest, ListRunsRequest, ListRunsResponse, Run,
    StateDisk, WatchAlertsRequest, WatchRunsRequest, alert, approval, state_disk,
};

use super::elements::{Part, address, facts, part, run_link, state, table};
use super::request::part_of;
use super::{figures, foreign};
use crate::api::quick;
use crate::error::Problem;
use crate::events;
use crate::layout::live_page;
use crate::viewer::Viewer;

/// Runs that are counted: the newest.
const RUNS: u32 = 1_000;
/// Alerts that are counted.
const ALERTS: u32 = 500;
/// Alerts that are shown.
const SHOWN: usize = 10;

/// Answers that the page is made of.
struct Overview {
    runs: Part<ListRunsResponse>,
    approvals: Part<Vec<Approval>>,
    alerts: Part<Vec<Alert>>,
}

pub(super) fn routes() -> Router<crate::State> {
    Router::new().route("/overview", get(shown)).route("/events/overview", get(changes))
}

async fn shown(viewer: Viewer) -> Result<Response, Problem> {
    let (mut runs, mut approvals, mut alerts) =
        (viewer.services.runs(), viewer.services.approvals(), viewer.services.alerts());
    let pending = ListApprovalsRequest { state: approval::State::Pending.into(), ..Default::default() };
    let open =
        ListAlertsRequest { state: alert::State::Open.into(), page_size: ALERTS, ..Default::default() };
    let (runs, approvals, alerts) = tokio::join!(
        runs.list_runs(quick(ListRunsRequest { page_size: RUNS, ..Default::default() })),
        approvals.list_approvals(quick(pending)),
        alerts.list_alerts(quick(open)),
    );
    let found = Overview {
        runs: part_of(runs),
        approvals: part_of(approvals).map(|found| found.approvals),
        alerts: part_of(alerts).map(|found| found.alerts),
    };
    Ok(live_page("Overview", &viewer, "/events/overview", render(&found)))
}

/// Tells the page when a run or an alert has changed.
async fn changes(Extracted(state): Extracted<crate::State>, viewer: Viewer) -> Result<Response, Problem> {
    let runs = viewer.services.runs().watch_runs(WatchRunsRequest::default()).await?.into_inner();
    let runs = runs.take_while(|change| std::future::ready(change.is_ok())).map(drop);
    // Narrow tokens see no alerts.
    let changes: events::Changes =
        match viewer.services.alerts().watch_alerts(WatchAlertsRequest::default()).await {
            Ok(alerts) => {
                let alerts =
                    alerts.into_inner().take_while(|change| std::future::ready(change.is_ok())).map(drop);
                Box::pin(select(runs, alerts))
            }
            Err(_) => Box::pin(runs),
        };
    events::answer(&state, &viewer, changes)
}

fn render(page: &Overview) -> Markup {
    html! {
        h1 { "Overview" }
        div #numbers data-live { (numbers(page)) }
    }
}

fn numbers(page: &Overview) -> Markup {
    html! {
        section aria-labelledby="waiting" {
            h2 #waiting { "Approvals that wait" }
            (part(&page.approvals, |approvals| waiting(approvals)))
        }
        section aria-labelledby="alerts" {
            h2 #alerts { "Open alerts" }
            (part(&page.alerts, |alerts| open_alerts(alerts)))
        }
        section aria-labelledby="runs" {
            h2 #runs { "Runs" }
            (part(&page.runs, runs))
        }
        @if let Ok(ListRunsResponse { state_disk: Some(disk), .. }) = &page.runs {
            section aria-labelledby="disk" { h2 #disk { "Disk" } (state_of_disk(disk)) }
        }
    }
}

fn waiting(approvals: &[Approval]) -> Markup {
    let oldest =
        approvals.iter().min_by_key(|approval| approval.created_at.map_or(i64::MAX, |at| at.seconds));
    html! {
        p.number { strong { (approvals.len()) } " wait. " a href="/approvals" { "Decide" } }
        @if let Some(oldest) = oldest {
            p {
                "The oldest: " (foreign::heading(&oldest.operation)) " in run " (run_link(&oldest.run_id)) " since "
                (figures::moment(oldest.created_at.as_ref())) ", until " (figures::moment(oldest.expires_at.as_ref())) "."
            }
        }
    }
}

fn open_alerts(alerts: &[Alert]) -> Markup {
    let more = if alerts.len() >= ALERTS as usize { " or more" } else { "" };
    html! {
        p.number { strong { (alerts.len()) (more) } " are open. " a href="/alerts?state=open" { "All of them" } }
        @if !alerts.is_empty() { (super::alerts::list(&alerts[..alerts.len().min(SHOWN)])) }
    }
}

fn runs(answer: &ListRunsResponse) -> Markup {
    let runs = &answer.runs;
    let mut states = BTreeMap::<i32, usize>::new();
    for run in runs {
        *states.entry(run.state).or_default() += 1;
    }
    let rows = states.into_iter().map(|(number, count)| {
        let name = State::try_from(number).unwrap_or_default().as_str_name();
        let word = figures::word(name);
        vec![
            state(&word),
            html! { a href=(address("/runs", &[("state", name)])) { (count) span.visually-hidden { " runs " (word) } } },
        ]
    });
    let cold = cold_starts(runs);
    html! {
        @if runs.is_empty() { p { "There are no runs." } }
        @else {
            (table("Runs by state", &["State", "Runs"], rows))
            @if !answer.next_page_token.is_empty() { p.note { "The newest " (RUNS) " are counted." } }
            h3 { "Pool" }
            p {
                (runs.iter().filter(|run| run.start_kind() == StartKind::Warm).count())
                " of them got a container of the pool, " (cold.values().sum::<usize>()) " a new one."
            }
            @if !cold.is_empty() {
                (table("New containers", &["Because", "Runs"], cold.iter().map(|(why, count)| vec![
                    html! { (why) }, html! { (count) },
                ])))
            }
        }
    }
}

/// Returns the reasons for new containers, and how often each was one.
fn cold_starts(runs: &[Run]) -> BTreeMap<String, usize> {
    let mut reasons = BTreeMap::new();
    for run in runs.iter().filter(|run| run.start_kind() == StartKind::Cold) {
        let reason = match run.cold_because() {
            ColdBecause::Unspecified => "not known".to_owned(),
            known => figures::word(known.as_str_name()),
        };
        *reasons.entry(reason).or_default() += 1;
    }
    reasons
}

fn state_of_disk(disk: &StateDisk) -> Markup {
    let words = match disk.state() {
        state_disk::State::Unspecified => "not known".to_owned(),
        known => figures::word(known.as_str_name()),
    };
    facts([
        ("Free space", Some(state(&words))),
        ("Free", Some(html! { (figures::size(disk.free_bytes)) " of " (figures::size(disk.total_bytes)) })),
        ("Free inodes", disk.free_files.map(|files| html! { (files) })),
        (
            "Quotas",
            Some(html! { @if disk.kernel { "by the file system" } @else { "measured by the daemon" } }),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::foreign::tests::{HOSTILE, assert_harmless};
    use super::*;

    fn page() -> Overview {
        let run = |state: State, start_kind: StartKind| Run {
            state: state.into(),
            start_kind: start_kind.into(),
            cold_because: ColdBecause::NoneWaits.into(),
            ..Default::default()
        };
        Overview {
            runs: Ok(ListRunsResponse {
                runs: vec![run(State::Ready, StartKind::Warm), run(State::Ready, StartKind::Cold)],
                state_disk: Some(StateDisk {
                    free_bytes: 1 << 30,
                    total_bytes: 4 << 30,
                    ..Default::default()
                }),
                ..Default::default()
            }),
            approvals: Ok(vec![Approval { operation: HOSTILE.to_owned(), ..Default::default() }]),
            alerts: Ok(vec![Alert {
                summary: HOSTILE.to_owned(),
                rule: HOSTILE.to_owned(),
                ..Default::default()
            }]),
        }
    }

    #[test]
    fn numbers_are_counted() {
        let shown = render(&page()).0;
        assert!(shown.contains("href=\"/runs?state=READY\">2<"), "{shown}");
        assert!(shown.contains("1 of them got a container of the pool, 1 a new one."), "{shown}");
        assert!(shown.contains("none waits") && shown.contains("1.0 GiB of 4.0 GiB"), "{shown}");
    }

    #[test]
    fn texts_of_agents_and_errors_are_harmless() {
        assert_harmless(&render(&page()));
        let refused = Overview {
            runs: Err(HOSTILE.to_owned()),
            approvals: Err(HOSTILE.to_owned()),
            alerts: Err(HOSTILE.to_owned()),
        };
        assert_harmless(&render(&refused));
    }
}
