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

use super::{behind, principal};
use crate::app::App;
use crate::status::Refusal;
use crate::time::Timestamp;

/// `ApprovalService`.
pub(super) struct Service(pub(super) Arc<App>);

#[tonic::async_trait]
impl ApprovalService for Service {
    async fn list_approvals(
        &self,
        request: Request<v1::ListApprovalsRequest>,
    ) -> Result<Response<v1::ListApprovalsResponse>, Status> {
        let request = request.into_inner();
        let filter = ApprovalFilter {
            state: state_from_wire(request.state())?,
            run_id: Some(request.run_id).filter(|id| !id.is_empty()),
        };
        let approvals = self.0.gateway.list_approvals(&filter).iter().map(to_wire).collect();
        Ok(Response::new(v1::ListApprovalsResponse { approvals }))
    }

    async fn get_approval(
        &self,
        request: Request<v1::GetApprovalRequest>,
    ) -> Result<Response<v1::GetApprovalResponse>, Status> {
        let approval = self.0.gateway.approval(&request.get_ref().approval_id).ok_or_else(|| {
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
        let run = Some(request.into_inner().run_id).filter(|id| !id.is_empty());
        // Subscribed first, so that nothing falls between the two.
        let changes = self.0.desk.changes();
        let filter = ApprovalFilter { state: Some(ApprovalState::Pending), run_id: run.clone() };
        let respond =
            |approval: &Approval| Ok(v1::WatchApprovalsResponse { approval: Some(to_wire(approval)) });
        let pending: Vec<_> = self.0.gateway.list_approvals(&filter).iter().map(respond).collect();
        let later = BroadcastStream::new(changes).filter_map(move |change| {
            let answer = match change {
                Ok(approval) if run.as_ref().is_none_or(|run| *run == approval.run_id) => {
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
