//! The page of equal requests.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use timestamp::UnixMillis;
use wire::v1::Approval;

use super::ballot::form;
use super::facts;
use super::groups::{AT_ONCE, groups, pending};
use crate::error::Problem;
use crate::layout::live_page;
use crate::shown::line;
use crate::viewer::Viewer;

pub(super) async fn page(Path(key): Path<String>, viewer: Viewer) -> Result<Response, Problem> {
    let found = groups(pending(&viewer).await?).into_iter().find(|group| group.key == key);
    let Some(group) = found else { return Ok(gone(&viewer)) };
    let now = UnixMillis::now();
    let together = &group.approvals[..group.approvals.len().min(AT_ONCE)];
    for approval in together {
        viewer.session.show(&approval.approval_id, now);
    }
    let first = group.first();
    let main = html! {
        p { a href="/approvals" rel="up" { "All approvals" } }
        h1 { (group.approvals.len()) " equal requests: " (facts::headline(first)) }
        @if together.len() < group.approvals.len() {
            p { "The oldest " (together.len()) " are decided together. The others follow on the next page." }
        }
        (facts::what(first))
        (facts::who_and_why(first, None))
        (members(together, now))
        (form(&viewer, together, &group.path()))
    };
    // No part of it changes by itself: a decision must not meet another list than the one that was read.
    Ok(live_page("Approvals", &viewer, "/events/approvals", main))
}

/// Says that no request of the group waits any longer.
fn gone(viewer: &Viewer) -> Response {
    let main = html! {
        h1 { "These requests no longer wait" }
        p { "They were decided, or they have changed." }
        p { a href="/approvals" rel="up" { "All approvals" } }
    };
    crate::layout::page("Approvals", Some(viewer), main)
}

fn members(approvals: &[Approval], now: UnixMillis) -> Markup {
    html! {
        section {
            h2 { "Each of them" }
            div.scroll tabindex="0" role="region" aria-label="Table" {
                table {
                    thead { tr { th scope="col" { "Request" } th scope="col" { "Agent" } th scope="col" { "Run" } th scope="col" { "Asked by" } th scope="col" { "Expires in" } } }
                    tbody {
                        @for one in approvals {
                            tr {
                                td { a href=(facts::path(one)) { (line(&one.approval_id)) } }
                                td { (line(&one.agent_id)) }
                                td { (line(&one.run_id)) }
                                td { (line(&one.requested_by)) }
                                td { (facts::time_left(one.expires_at.as_ref(), now)) }
                            }
                        }
                    }
                }
            }
        }
    }
}
