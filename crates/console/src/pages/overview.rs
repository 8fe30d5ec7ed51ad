//! The first page: numbers of the daemon, and links to their details.

use std::collections::BTreeMap;

use maud::{Markup, html};
use wire::v1::run::{ColdBecause, StartKind, State};
use wire::v1::{Alert, Approval, ListRunsResponse, Run, StateDisk, state_disk};

use super::elements::{Part, address, facts, part, run_link, state, table};
use super::{figures, foreign};

/// Runs that are counted: the newest.
pub(super) const RUNS: u32 = 1_000;
/// Alerts that are counted, and shown.
pub(super) const ALERTS: u32 = 500;
const SHOWN: usize = 10;

/// Answers that the page is made of.
pub(super) struct Overview {
    pub(super) runs: Part<ListRunsResponse>,
    pub(super) approvals: Part<Vec<Approval>>,
    pub(super) alerts: Part<Vec<Alert>>,
}

pub(super) fn render(page: &Overview) -> Markup {
    html! {
        h1 { "Overview" }
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
    let oldest = approvals.iter().min_by_key(|approval| approval.created_at.map_or(i64::MAX, |at| at.seconds));
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
        ("Quotas", Some(html! { @if disk.kernel { "by the file system" } @else { "measured by the daemon" } })),
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
                state_disk: Some(StateDisk { free_bytes: 1 << 30, total_bytes: 4 << 30, ..Default::default() }),
                ..Default::default()
            }),
            approvals: Ok(vec![Approval { operation: HOSTILE.to_owned(), ..Default::default() }]),
            alerts: Ok(vec![Alert { summary: HOSTILE.to_owned(), rule: HOSTILE.to_owned(), ..Default::default() }]),
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
