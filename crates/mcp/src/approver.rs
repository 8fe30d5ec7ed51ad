//! Decides on approvals for the person at an MCP client, with the identity of the user that started the bridge.
//!
//! The connection carries no run's token: its identity is the user of the process, which the kernel tells the daemon. The daemon
//! requires the approver's role of that user. Unless its configuration allows self-approval, it refuses the user that made the
//! call. So a bridge gains nothing that its user could not do with `coffer approval`.

use tonic::Status;
use wire::v1::approval_service_client::ApprovalServiceClient;
use wire::v1::decide_approval_request::Decision;
use wire::v1::{Approval, DecideApprovalRequest, GetApprovalRequest};

use api_access::Api;

/// Shows approvals and decides on them, with a separate identity.
#[derive(Clone)]
pub struct Approver(ApprovalServiceClient<Api>);

impl Approver {
    /// Decides with the identity of this connection, which must not carry a run's token.
    pub fn new(api: Api) -> Self {
        Self(ApprovalServiceClient::new(api))
    }

    /// Returns the waiting approval, as a reviewer sees it.
    pub(crate) async fn show(&self, approval_id: &str) -> Result<Approval, Status> {
        let request = GetApprovalRequest { approval_id: approval_id.to_owned() };
        let shown = self.0.clone().get_approval(request).await?.into_inner().approval;
        shown.ok_or_else(|| Status::internal("the daemon answered without an approval"))
    }

    /// Approves or denies, for this call alone.
    pub(crate) async fn decide(
        &self,
        approval_id: &str,
        approve: bool,
        comment: &str,
    ) -> Result<Approval, Status> {
        let decision = if approve { Decision::Approve } else { Decision::Deny };
        let request = DecideApprovalRequest {
            approval_id: approval_id.to_owned(),
            decision: decision.into(),
            comment: comment.to_owned(),
            ..Default::default()
        };
        let decided = self.0.clone().decide_approval(request).await?.into_inner().approval;
        decided.ok_or_else(|| Status::internal("the daemon answered without an approval"))
    }
}
