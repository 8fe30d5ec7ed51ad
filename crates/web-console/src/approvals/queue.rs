//! The queue of requests that wait.

use axum::extract::State as Extracted;
use axum::response::Response;
use maud::{Markup, html};
use timestamp::UnixMillis;
use tonic::codegen::http::Uri;
use wire::v1::ListApprovalsRequest;

use super::facts;
use super::groups::{Group, groups, pending};
use super::pager::Pager;
use crate::State as Console;
use crate::api::quick;
use crate::error::Problem;
use crate::form::Fields;
use crate::layout::live_page;
use crate::readings::Numbers;
use crate::shown::line;
use crate::viewer::Viewer;

/// Most characters of the beginning of a preview.
const BEGINNING: usize = 120;

pub(super) async fn page(
    Extracted(console): Extracted<Console>,
    uri: Uri,
    viewer: Viewer,
) -> Result<Response, Problem> {
    let query = Fields::parse(uri.query().unwrap_or_default().as_bytes());
    let now = UnixMillis::now();
    let waiting = pending(&viewer).await?;
    let count = waiting.len();
    let groups = groups(waiting);
    let pager = Pager::new(query.get("page"), groups.len());
    let numbers = numbers(&console, &viewer, now).await?;
    let main = html! {
        h1 { "Approvals" }
        section #numbers data-live aria-label="The last 24 hours" { (shown_numbers(numbers)) }
        section #queue data-live {
            h2 { @if count == 1 { "1 request waits" } @else { (count) " requests wait" } }
            @if count == 0 { p { "Nobody has to decide now. New requests appear here by themselves." } }
            @else {
                ol.queue { @for group in pager.part(&groups) { (entry(group, now)) } }
                (pager.links("/approvals"))
            }
        }
        p { a href="/approvals/history" { "Decided before" } }
    };
    Ok(live_page("Approvals", &viewer, "/events/approvals", main))
}

async fn numbers(console: &Console, viewer: &Viewer, now: UnixMillis) -> Result<Numbers, Problem> {
    let readings = &console.0.doors.readings;
    if let Some(numbers) = readings.fresh(&viewer.name, now) {
        return Ok(numbers);
    }
    let all = viewer.services.approvals().list_approvals(quick(ListApprovalsRequest::default())).await?;
    Ok(readings.count(&viewer.name, &all.into_inner().approvals, now))
}

fn shown_numbers(numbers: Numbers) -> Markup {
    let Numbers { asked, approved, unread, denied, expired } = numbers;
    html! {
        dl.numbers {
            div { dt { "Asked" } dd { (asked) } }
            div { dt { "Approved" } dd { (approved) } }
            div { dt { "Approved unread" } dd { (unread) } }
            div { dt { "Denied" } dd { (denied) } }
            div { dt { "Expired" } dd { (expired) } }
        }
        p.note { "In the last 24 hours, as far as the daemon remembers. Unread: approved in this console less than two seconds after it was shown." }
    }
}

fn entry(group: &Group, now: UnixMillis) -> Markup {
    let first = group.first();
    let count = group.approvals.len();
    let beginning = first.preview.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let (beginning, rest) = match beginning.char_indices().nth(BEGINNING) {
        Some((end, _)) => (&beginning[..end], "…"),
        None => (beginning, ""),
    };
    html! {
        li {
            a href=(group.path()) { @if count > 1 { (count) " × " } (facts::headline(first)) }
            " " (facts::risk(first))
            p { code { (line(beginning)) (rest) } }
            p.note {
                "by " (line(&first.agent_id)) " for " (line(&first.requested_by))
                ", expires in " (facts::time_left(first.expires_at.as_ref(), now))
                @if first.approvals_needed > 1 { ", " (first.votes.len()) " of " (first.approvals_needed) " votes" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::v1::Approval;

    use super::*;

    #[test]
    fn an_entry_shows_the_beginning_of_a_hostile_preview() {
        let approval = |id: &str| Approval {
            approval_id: id.into(),
            operation: "exec".into(),
            operation_json: "{}".into(),
            preview: format!("\n\u{202e}<b>{}\nsecond", "\u{e4}".repeat(500)),
            agent_id: "<i>".into(),
            ..Default::default()
        };
        let groups = groups(vec![approval("a"), approval("b")]);
        let shown = entry(&groups[0], UnixMillis(0)).into_string();
        assert!(shown.contains("2 × ") && shown.contains("&lt;i&gt;") && shown.contains('…'), "{shown}");
        assert!(
            !shown.contains("<i>") && !shown.contains('\u{202e}') && !shown.contains("second"),
            "{shown}"
        );
    }

    #[test]
    fn the_numbers_have_their_names() {
        let numbers = Numbers { asked: 41, approved: 30, unread: 12, denied: 3, expired: 8 };
        let shown = shown_numbers(numbers).into_string();
        for part in
            ["<dt>Asked</dt><dd>41</dd>", "<dt>Approved unread</dt><dd>12</dd>", "<dt>Expired</dt><dd>8</dd>"]
        {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
    }
}
