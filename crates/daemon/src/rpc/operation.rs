//! Turns requests of other services into calls of one operation.

use std::sync::Arc;

use calls::{Calls, Metadata};
use identity::Principal;
use refusal::Refusal;
use wire::v1::call_response::Status;
use wire::v1::{self, call_request::Request, operation::Kind, result::Kind as OpResult};

/// The call that was made.
pub(super) struct Made {
    pub(super) call_id: String,
    /// Approval that the call waits for; empty if it waits for none.
    pub(super) approval_id: String,
    /// Result of the call; absent while it waits.
    pub(super) result: Option<OpResult>,
}

/// Parts of the request that concern the call.
pub(super) struct Terms {
    pub(super) run_id: String,
    pub(super) request_id: String,
    pub(super) wait_for_approval: bool,
    /// The context of the client's trace.
    pub(super) metadata: Metadata,
}

/// Makes the call. A call that fails is returned as a refusal.
pub(super) async fn make(
    calls: &Arc<Calls>,
    principal: &Arc<Principal>,
    kind: Kind,
    terms: Terms,
) -> Result<Made, Refusal> {
    let Terms { run_id, request_id, wait_for_approval, metadata } = terms;
    let call = v1::CallRequest {
        run_id,
        request_id,
        wait_for_approval,
        request: Some(Request::Operation(v1::Operation { kind: Some(kind) })),
        ..Default::default()
    };
    let response = calls::call(calls, principal, call, metadata).await?;
    let (call_id, approval_id) = (response.call_id.clone(), response.approval_id.clone());
    match response.status() {
        Status::Succeeded => Ok(Made { call_id, approval_id: String::new(), result: response.into_kind() }),
        Status::PendingApproval | Status::Running => Ok(Made { call_id, approval_id, result: None }),
        Status::Failed | Status::Denied | Status::Unspecified => {
            // With the party to which it is put down: its reason alone may say another.
            Err(Refusal::from(response.error.unwrap_or_default()).with("call_id", call_id))
        }
    }
}
