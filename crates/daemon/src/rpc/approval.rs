//! `ApprovalService`.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt as _, stream};
use gateway::{Approval, ApprovalFilter, ApprovalState, Choice, UnixMillis};
use ops::Reason;
use tokio_stream::wrappers::BroadcastStream;
use tonic::{Request, Response, Status};
use wire::v1;
use wire::v1::approval_service_server::ApprovalService;
use wire::v1::decide_approval_request::Decision;

use super::{MAX_MESSAGE, Principal, behind, principal};
use crate::app::App;
use crate::ids::RunId;
use crate::status::Refusal;
use crate::time::Timestamp;

/// What a list shows of what the calls would do, bytes; it has to fit into one message.
const MAX_SHOWN: usize = MAX_MESSAGE / 2;

/// `ApprovalService`.
pub(super) struct Service(pub(super) Arc<App>);

/// Whether `principal` may look at an approval: at those of its own calls and of its own runs, and reviewers at all. What
/// is shown holds what is in the workspace.
fn sees(app: &App, principal: &Principal, approval: &Approval) -> bool {
    let of_own_run = || {
        let run = RunId::parse(&approval.run_id).and_then(|id| app.runs.get(id));
        run.is_ok_and(|run| principal.may_see(&run.spec.principal))
    };
    principal.may_see(&approval.requested_by) || of_own_run()
}

#[tonic::async_trait]
impl ApprovalService for Service {
    async fn list_approvals(
        &self,
        request: Request<v1::ListApprovalsRequest>,
    ) -> Result<Response<v1::ListApprovalsResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let filter = ApprovalFilter {
            state: state_from_wire(request.state())?,
            run_id: Some(request.run_id).filter(|id| !id.is_empty()),
        };
        let mut approvals = self.0.gateway.list_approvals(&filter);
        approvals.retain(|approval| sees(&self.0, &principal, approval));
        Ok(Response::new(v1::ListApprovalsResponse { approvals: within(&approvals, MAX_SHOWN) }))
    }

    async fn get_approval(
        &self,
        request: Request<v1::GetApprovalRequest>,
    ) -> Result<Response<v1::GetApprovalResponse>, Status> {
        let principal = principal(&request)?;
        let approval = self.0.gateway.approval(&request.get_ref().approval_id);
        let approval = approval.filter(|approval| sees(&self.0, &principal, approval)).ok_or_else(|| {
            Refusal::new(Reason::NotFound, "there is no such approval").with("resource", "approval")
        })?;
        Ok(Response::new(v1::GetApprovalResponse { approval: Some(to_wire(&approval)) }))
    }

    async fn decide_approval(
        &self,
        request: Request<v1::DecideApprovalRequest>,
    ) -> Result<Response<v1::DecideApprovalResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let choice = match request.decision() {
            Decision::Approve => Choice::Approve,
            Decision::Deny => Choice::Deny,
            Decision::Unspecified => {
                return Err(Refusal::invalid("decision", "must be APPROVE or DENY").into());
            }
        };
        let app = self.0.clone();
        // Goes on when the client leaves: a decision is taken whole.
        let decided = tokio::spawn(async move {
            app.desk.decide(&request.approval_id, &principal, choice, &request.comment).await
        });
        let approval = decided.await.map_err(|error| Refusal::internal("deciding", &error))??;
        Ok(Response::new(v1::DecideApprovalResponse { approval: Some(to_wire(&approval)) }))
    }

    type WatchApprovalsStream =
        Pin<Box<dyn Stream<Item = Result<v1::WatchApprovalsResponse, Status>> + Send>>;

    async fn watch_approvals(
        &self,
        request: Request<v1::WatchApprovalsRequest>,
    ) -> Result<Response<Self::WatchApprovalsStream>, Status> {
        let principal = principal(&request)?;
        let run = Some(request.into_inner().run_id).filter(|id| !id.is_empty());
        let app = self.0.clone();
        let shown = move |approval: &Approval| sees(&app, &principal, approval);
        // Subscribed first, so that nothing falls between the two.
        let changes = self.0.desk.changes();
        let filter = ApprovalFilter { state: Some(ApprovalState::Pending), run_id: run.clone() };
        let respond =
            |approval: &Approval| Ok(v1::WatchApprovalsResponse { approval: Some(to_wire(approval)) });
        let pending = self.0.gateway.list_approvals(&filter);
        let pending: Vec<_> = pending.iter().filter(|approval| shown(approval)).map(respond).collect();
        let later = BroadcastStream::new(changes).filter_map(move |change| {
            let answer = match change {
                Ok(approval)
                    if run.as_ref().is_none_or(|run| *run == approval.run_id) && shown(&approval) =>
                {
                    Some(respond(&approval))
                }
                Ok(_) => None,
                Err(_) => Some(Err(behind())),
            };
            std::future::ready(answer)
        });
        let stop = self.0.stop.clone();
        let watched = stream::iter(pending).chain(later).take_until(stop.cancelled_owned());
        Ok(Response::new(Box::pin(watched)))
    }
}

/// A list that fits: beyond `most` bytes only that there is an approval, since agents must not be able to hide one from
/// its reviewers behind large ones. Each can be had whole by itself.
fn within(approvals: &[Approval], most: usize) -> Vec<v1::Approval> {
    let mut left = most;
    let shown = approvals.iter().map(|approval| {
        let mut approval = to_wire(approval);
        let size = approval.operation_json.len() + approval.preview.len();
        if size > left {
            approval.operation_json.clear();
            "[too long for this list: GetApproval shows it]".clone_into(&mut approval.preview);
        } else {
            left -= size;
        }
        approval
    });
    shown.collect()
}

fn state_from_wire(state: v1::approval::State) -> Result<Option<ApprovalState>, Refusal> {
    Ok(Some(match state {
        v1::approval::State::Unspecified => return Ok(None),
        v1::approval::State::Pending => ApprovalState::Pending,
        v1::approval::State::Approved => ApprovalState::Approved,
        v1::approval::State::Denied => ApprovalState::Denied,
        v1::approval::State::Expired => ApprovalState::Expired,
        v1::approval::State::Cancelled => ApprovalState::Cancelled,
    }))
}

fn to_wire(approval: &Approval) -> v1::Approval {
    let time = |time: UnixMillis| Timestamp::from_millis(time.0).to_wire();
    let state = match approval.state {
        ApprovalState::Pending => v1::approval::State::Pending,
        ApprovalState::Approved => v1::approval::State::Approved,
        ApprovalState::Denied => v1::approval::State::Denied,
        ApprovalState::Expired => v1::approval::State::Expired,
        ApprovalState::Cancelled => v1::approval::State::Cancelled,
    };
    v1::Approval {
        approval_id: approval.approval_id.clone(),
        state: state.into(),
        run_id: approval.run_id.clone(),
        call_id: approval.call_id.clone(),
        agent_id: approval.agent_id.clone(),
        requested_by: approval.requested_by.clone(),
        operation: approval.operation.clone(),
        operation_json: approval.operation_json.clone(),
        preview: approval.preview.clone(),
        justification: approval.justification.clone(),
        risk: approval.risk.as_str().to_owned(),
        digest: approval.digest.clone(),
        created_at: Some(time(approval.created_at)),
        expires_at: Some(time(approval.expires_at)),
        decided_by: approval.decided_by.clone().unwrap_or_default(),
        decided_at: approval.decided_at.map(time),
        comment: approval.comment.clone(),
    }
}
