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

/// The surroundings of a request. A part that the viewer may not see, or that cannot be read, is `None`.
struct Surroundings {
    run: Option<Run>,
    /// Requests of the same operation that were decided before in this run.
    earlier: Option<Vec<Approval>>,
    /// Consents that are remembered for this run.
    consents: Option<Vec<Consent>>,
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
        let is_earlier = |one: &Approval| {
            one.state() != State::Pending
                && one.operation == approval.operation
                && one.approval_id != approval.approval_id
        };
        let (previous, next) = neighbours(waiting.unwrap_or_default(), approval);
        Self {
            run: run.ok().and_then(|run| run.into_inner().run),
            earlier: of_run.ok().map(|listed| {
                listed.into_inner().approvals.into_iter().rev().filter(is_earlier).take(EARLIER).collect()
            }),
            consents: consents.ok().map(|listed| listed.into_inner().consents),
            previous,
            next,
        }
    }

    /// Shows what was decided before in this run.
    fn before(&self) -> Markup {
        let (earlier, consents) = (self.earlier.as_deref(), self.consents.as_deref());
        html! {
            section {
                h2 { "Before, in this run" }
                @if earlier.is_none() { p.notice.bad { "The requests that were decided before could not be read. Load this page again." } }
                @if consents.is_none() { p.notice.bad { "The consents that are remembered could not be read. Load this page again." } }
                @if earlier.is_some_and(<[_]>::is_empty) && consents.is_none_or(<[_]>::is_empty) {
                    p { "No other request of this operation was decided." }
                }
                @if let Some(earlier @ [_, ..]) = earlier {
                    ul {
                        @for one in earlier {
                            li {
                                a href=(path(one)) { (facts::headline(one)) }
                                " " (one.state().as_str_name().to_lowercase())
                                @if !one.decided_by.is_empty() { " by " (line(&one.decided_by)) }
                                @if let Some(at) = &one.decided_at { " at " (facts::moment(at)) }
                            }
                        }
                    }
                }
                @if let Some(consents @ [_, ..]) = consents {
                    h3 { "Consents that are remembered" }
                    ul { @for one in consents { li { (remembered(one)) } } }
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
    fn a_list_that_could_not_be_read_is_not_an_empty_one() {
        let shown = |earlier: Option<Vec<Approval>>, consents: Option<Vec<Consent>>| {
            let around = Surroundings { run: None, earlier, consents, previous: None, next: None };
            let shown = around.before().into_string();
            ["No other request", "decided before could not be read", "remembered could not be read"]
                .map(|words| shown.contains(words))
        };
        assert_eq!(shown(Some(vec![]), Some(vec![])), [true, false, false]);
        assert_eq!(shown(None, Some(vec![])), [false, true, false]);
        assert_eq!(shown(Some(vec![]), None), [true, false, true]);
        assert_eq!(shown(None, None), [false, true, true]);
        assert_eq!(shown(Some(vec![one("a")]), Some(vec![])), [false; 3]);
        assert_eq!(shown(Some(vec![]), Some(vec![Consent::default()])), [false; 3]);
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
