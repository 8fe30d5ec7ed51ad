//! Decisions: each is bound to the state that its page has shown.

use axum::extract::{Path, State as Extracted};
use axum::response::{IntoResponse as _, Response};
use maud::html;
use timestamp::UnixMillis;
use tonic::codegen::http::StatusCode;
use wire::v1::approval::State;
use wire::v1::decide_approval_request::Decision;
use wire::v1::{Approval, DecideApprovalRequest, PasskeyProof};

use super::ballot::{Ballot, bound};
use super::groups::{AT_ONCE, groups, pending};
use super::{facts, request};
use crate::State as Console;
use crate::api::quick;
use crate::ceremony::proof;
use crate::error::{Problem, redirect};
use crate::form::Checked;
use crate::layout::page;
use crate::shown::line;
use crate::viewer::Viewer;

pub(super) async fn one(
    Extracted(console): Extracted<Console>,
    Path(id): Path<String>,
    checked: Checked,
) -> Result<Response, Problem> {
    let Checked { viewer, fields } = &checked;
    let ballot = Ballot::parse(fields)?;
    let digest = bound(fields).into_iter().find(|(of, _)| *of == id).map(|(_, digest)| digest);
    let proof = proof(fields)?;
    match decide(&console, viewer, &id, digest.as_deref().unwrap_or_default(), (&ballot, proof)).await {
        Ok(approval) => Ok(redirect(&facts::path(&approval))),
        Err(why) => {
            // It is shown as it is now: perhaps another reviewer was faster.
            let approval = request::get(viewer, id).await?;
            let notice = format!("Your decision does not count: {why}.");
            let mut answer = request::show(viewer, &approval, Some(&notice)).await?;
            *answer.status_mut() = StatusCode::CONFLICT;
            Ok(answer)
        }
    }
}

pub(super) async fn group(
    Extracted(console): Extracted<Console>,
    Path(key): Path<String>,
    checked: Checked,
) -> Result<Response, Problem> {
    let Checked { viewer, fields } = &checked;
    let ballot = Ballot::parse(fields)?;
    let mut bound = bound(fields);
    bound.truncate(AT_ONCE);
    let still_equal = groups(pending(viewer).await?).into_iter().find(|group| group.key == key);
    let still_equal: Vec<String> = still_equal
        .map(|group| group.approvals.into_iter().map(|one| one.approval_id).collect())
        .unwrap_or_default();
    let mut failed = Vec::new();
    let mut decided = 0_usize;
    for (id, digest) in &bound {
        let outcome = if still_equal.contains(id) {
            decide(&console, viewer, id, digest, (&ballot, None)).await.map(drop)
        } else {
            Err("it no longer waits, or has changed".to_owned())
        };
        match outcome {
            Ok(()) => decided += 1,
            Err(why) => failed.push((id, why)),
        }
    }
    if failed.is_empty() && decided > 0 {
        return Ok(redirect("/approvals"));
    }
    let main = html! {
        h1 { (decided) " of " (bound.len()) " decided" }
        ul { @for (id, why) in &failed { li { (line(id)) ": " (line(why)) } } }
        p { a href="/approvals" rel="up" { "All approvals" } }
    };
    Ok((StatusCode::CONFLICT, page("Approvals", Some(viewer), main)).into_response())
}

/// Decides on an approval that this session has shown in full, in the state that was shown. The error says why it does not count.
async fn decide(
    console: &Console,
    viewer: &Viewer,
    id: &str,
    digest: &str,
    (ballot, proof): (&Ballot, Option<PasskeyProof>),
) -> Result<Approval, String> {
    let shown_at = viewer.session.shown_at(id).ok_or("look at the request first")?;
    let now =
        request::get(viewer, id.to_owned()).await.map_err(|_| "the request cannot be found".to_owned())?;
    if now.digest != digest {
        return Err("the request has changed since it was shown".to_owned());
    }
    let wanted = DecideApprovalRequest {
        approval_id: id.to_owned(),
        decision: ballot.decision.into(),
        comment: ballot.comment.clone(),
        remember: ballot.remember.into(),
        prefix: ballot.prefix.clone(),
        proof,
    };
    let decided = viewer.services.approvals().decide_approval(quick(wanted)).await;
    let decided =
        decided.map_err(|status| status.message().to_owned())?.into_inner().approval.unwrap_or_default();
    if ballot.decision == Decision::Approve && matches!(decided.state(), State::Approved | State::Pending) {
        console.0.doors.readings.approved(shown_at, UnixMillis::now());
    }
    Ok(decided)
}
