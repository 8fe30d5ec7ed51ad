//! `PolicyService`.

use std::sync::Arc;

use refusal::Refusal;
use tonic::{Request, Response, Status};
use wire::v1;
use wire::v1::policy_service_server::PolicyService;

use super::{explain, principal};
use crate::app::App;

/// `PolicyService`.
pub(super) struct Service(pub(super) Arc<App>);

#[tonic::async_trait]
impl PolicyService for Service {
    async fn get_policy(
        &self,
        _request: Request<v1::GetPolicyRequest>,
    ) -> Result<Response<v1::GetPolicyResponse>, Status> {
        let policy = self.0.gateway.policy();
        let yaml = policy.to_yaml().map_err(|error| Refusal::internal("showing the policy", &error))?;
        Ok(Response::new(v1::GetPolicyResponse {
            digest: policy.digest().to_owned(),
            profiles: policy.profile_names().map(str::to_owned).collect(),
            roles: policy.role_names().map(str::to_owned).collect(),
            yaml,
        }))
    }

    async fn reload_policy(
        &self,
        request: Request<v1::ReloadPolicyRequest>,
    ) -> Result<Response<v1::ReloadPolicyResponse>, Status> {
        let principal = principal(&request)?;
        let app = self.0.clone();
        // Goes on when the client leaves: what is on record comes into force.
        let reloaded = tokio::spawn(async move {
            let directory = app.policy_dir.clone();
            let reloaded =
                crate::policy::reload(&app.gateway, directory, &app.audit, &app.store, &principal.name).await;
            app.approvals.policy_changed().await;
            reloaded
        });
        let (digest, changed) =
            reloaded.await.map_err(|error| Refusal::internal("loading the policy", &error))??;
        Ok(Response::new(v1::ReloadPolicyResponse { digest, changed }))
    }

    async fn explain_policy(
        &self,
        request: Request<v1::ExplainPolicyRequest>,
    ) -> Result<Response<v1::ExplainPolicyResponse>, Status> {
        let principal = principal(&request)?;
        Ok(Response::new(explain::explain(&self.0, &principal, request.into_inner())?))
    }

    async fn replay_policy(
        &self,
        request: Request<v1::ReplayPolicyRequest>,
    ) -> Result<Response<v1::ReplayPolicyResponse>, Status> {
        Ok(Response::new(crate::replay::replay(&self.0, request.into_inner()).await?))
    }
}
