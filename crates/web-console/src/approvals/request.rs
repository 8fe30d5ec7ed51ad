//! The page of one request.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use timestamp::UnixMillis;
use wire::v1::approval::State;
use wire::v1::{
    Approval, Consent, GetApprovalRequest, GetRunRequest, ListApprovalsRequest, ListConsentsRequest, Run,
};

use super::ballot::form;
use super::facts::{self, path};
use super::groups::{Group, groups, pending};
use crate::api::quick;
use crate::error::Problem;
use crate::layout::live_page;
use crate::shown::line;
use crate::viewer::Viewer;

/// Most earlier decisions that are shown.
const EARLIER: usize = 10;

/// Returns an approval in full.
pub(super) async fn get(viewer: &Viewer, id: String) -> Result<Approval, Problem> {
    let request = GetApprovalRequest { approval_id: id };
    let found = viewer.services.approvals().get_approval(quick(request)).await?.into_inner();
    found.approval.ok_or_else(Problem::not_found)
}

pub(super) async fn page(Path(id): Path<String>, viewer: Viewer) -> Result<Response, Problem> {
    let approval = get(&viewer, id).await?;
    show(&viewer, &approval, None).await
}

/// Shows a request in full, so that it may be decided from then on. `notice` says what became of a decision.
pub(super) async fn show(
    viewer: &Viewer,
    approval: &Approval,
    notice: Option<&str>,
) -> Result<Response, Problem> {
    let now = UnixMillis::now();
    let surroundings = Surroundings::of(viewer, approval).await;
    let waits = approval.state() == State::Pending;
    if waits {
        viewer.session.show(&approval.approval_id, now);
    }
    let main = html! {
        p.ways {
            a href="/approvals" rel="up" { "All approvals" }
            @if let Some(path) = &surroundings.previous { " " a href=(path) rel="prev" { "Previous request" } }
            @if let Some(path) = &surroundings.next { " " a href=(path) rel="next" { "Next request" } }
        }
        h1 { (facts::headline(approval)) }
        @if let Some(notice) = notice { p.notice.bad role="alert" { (line(notice)) } }
        section #state data-live aria-live="polite" { (facts::state(approval, now)) }
        (facts::what(approval))
        (facts::who_and_why(approval, surroundings.run.as_ref()))
        (surroundings.before())
        @if waits { (form(viewer, std::slice::from_ref(approval), &path(approval))) }
    };
    Ok(live_page("Approvals", viewer, "/events/approvals", main))
}

/// The surroundings of a request. A part that the viewer may not see, or that cannot be read, is left out.
struct Surroundings {
    run: Option<Run>,
    earlier: Vec<Approval>,
    consents: Vec<Consent>,
    previous: Option<String>,
    next: Option<String>,
}

impl Surroundings {
    async fn of(viewer: &Viewer, approval: &Approval) -> Self {
        let run_id = || approval.run_id.clone();
        let (mut runs, mut approvals) = (viewer.services.runs(), viewer.services.approvals());
        let mut consents = viewer.services.approvals();
        let of_run = ListApprovalsRequest { run_id: run_id(), ..Default::default() };
        let (run, of_run, consents, waiting) = tokio::join!(
            runs.get_run(quick(GetRunRequest { run_id: run_id() })),
            approvals.list_approvals(quick(of_run)),
            consents.list_consents(quick(ListConsentsRequest { run_id: run_id() })),
            pending(viewer),
        );
        let earlier = of_run.map(|listed| listed.into_inner().approvals).unwrap_or_default();
        let is_earlier = |one: &Approval| {
            one.state() != State::Pending
                && one.operation == approval.operation
                && one.approval_id != approval.approval_id
        };
        let (previous, next) = neighbours(waiting.unwrap_or_default(), approval);
        Self {
            run: run.ok().and_then(|run| run.into_inner().run),
            earlier: earlier.into_iter().rev().filter(is_earlier).take(EARLIER).collect(),
            consents: consents.map(|listed| listed.into_inner().consents).unwrap_or_default(),
            previous,
            next,
        }
    }

    /// Shows what was decided before in this run.
    fn before(&self) -> Markup {
        html! {
            section {
                h2 { "Before, in this run" }
                @if self.earlier.is_empty() && self.consents.is_empty() { p { "No other request of this operation was decided." } }
                @if !self.earlier.is_empty() {
                    ul {
                        @for one in &self.earlier {
                            li {
                                a href=(path(one)) { (facts::headline(one)) }
                                " " (one.state().as_str_name().to_lowercase())
                                @if !one.decided_by.is_empty() { " by " (line(&one.decided_by)) }
                                @if let Some(at) = &one.decided_at { " at " (facts::moment(at)) }
                            }
                        }
                    }
                }
                @if !self.consents.is_empty() {
                    h3 { "Consents that are remembered" }
                    ul { @for one in &self.consents { li { (remembered(one)) } } }
                }
            }
        }
    }
}

fn remembered(consent: &Consent) -> Markup {
    html! {
        (line(&consent.operation)) " "
        @if consent.prefix.is_empty() { "exactly as approved" } @else { "commands that begin with " (line(&consent.prefix.join(" "))) }
        ", by " (line(&consent.given_by))
    }
}

/// Returns the paths of the requests before and after this one in the queue. A decided one is before the first.
fn neighbours(waiting: Vec<Approval>, approval: &Approval) -> (Option<String>, Option<String>) {
    let groups = groups(waiting);
    let is_here = |one: &Approval| one.approval_id == approval.approval_id;
    let path_at = |at: usize| groups.get(at).map(Group::path);
    match groups.iter().position(|group| group.approvals.iter().any(is_here)) {
        Some(here) => (here.checked_sub(1).and_then(path_at), path_at(here + 1)),
        None => (None, path_at(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(id: &str) -> Approval {
        Approval { approval_id: id.into(), operation_json: id.into(), ..Default::default() }
    }

    #[test]
    fn the_neighbours_in_the_queue_are_known() {
        let waiting = || vec![one("a"), one("b"), one("c")];
        let paths = |before: Option<&str>, after: Option<&str>| {
            let path = |id: &str| format!("/approvals/{id}");
            (before.map(path), after.map(path))
        };
        assert_eq!(neighbours(waiting(), &one("a")), paths(None, Some("b")));
        assert_eq!(neighbours(waiting(), &one("b")), paths(Some("a"), Some("c")));
        assert_eq!(neighbours(waiting(), &one("c")), paths(Some("b"), None));
        assert_eq!(neighbours(waiting(), &one("decided")), paths(None, Some("a")));
        assert_eq!(neighbours(Vec::new(), &one("a")), (None, None));
    }
}
