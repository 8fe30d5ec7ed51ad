//! Requests that were decided, newest first, as far as the daemon remembers them. The audit log has all.

use axum::response::Response;
use maud::html;
use tonic::codegen::http::Uri;
use wire::v1::approval::State;
use wire::v1::{Approval, ListApprovalsRequest};

use super::facts;
use super::pager::Pager;
use crate::api::quick;
use crate::error::Problem;
use crate::form::Fields;
use crate::layout;
use crate::shown::line;
use crate::viewer::Viewer;

pub(super) async fn page(uri: Uri, viewer: Viewer) -> Result<Response, Problem> {
    let query = Fields::parse(uri.query().unwrap_or_default().as_bytes());
    let all = viewer.services.approvals().list_approvals(quick(ListApprovalsRequest::default())).await?;
    let decided = all.into_inner().approvals.into_iter().rev();
    let decided: Vec<Approval> = decided.filter(|one| one.state() != State::Pending).collect();
    let pager = Pager::new(query.get("page"), decided.len());
    let main = html! {
        p { a href="/approvals" rel="up" { "All approvals" } }
        h1 { "Decided before" }
        @if decided.is_empty() { p { "The daemon remembers no decision. The audit log has all." } }
        @else {
            div.scroll tabindex="0" role="region" aria-label="Table" {
                table {
                    thead { tr { th scope="col" { "Request" } th scope="col" { "State" } th scope="col" { "By" } th scope="col" { "At" } th scope="col" { "Agent" } th scope="col" { "Comment" } } }
                    tbody {
                        @for one in pager.part(&decided) {
                            tr {
                                td { a href=(facts::path(one)) { (facts::headline(one)) } }
                                td { (one.state().as_str_name().to_lowercase()) }
                                td { (line(&one.decided_by)) }
                                td { @if let Some(at) = &one.decided_at { (facts::moment(at)) } }
                                td { (line(&one.agent_id)) }
                                td { (line(&one.comment)) }
                            }
                        }
                    }
                }
            }
            (pager.links("/approvals/history"))
        }
    };
    Ok(layout::page("Approvals", Some(&viewer), main))
}
