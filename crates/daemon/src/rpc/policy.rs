//! Serves `PolicyService`.

use std::sync::Arc;

use calls::{Approvals, Replays};
use gateway::Gateway;
use refusal::Refusal;
use runs::Runs;
use tonic::{Request, Response, Status};
use wire::v1;
use wire::v1::policy_service_server::PolicyService;

use super::{explain, portion, principal};
use crate::policy::Loader;

pub(crate) struct Service {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) runs: Arc<Runs>,
    pub(crate) approvals: Arc<Approvals>,
    pub(crate) loader: Arc<Loader>,
    pub(crate) replays: Arc<Replays>,
}

#[tonic::async_trait]
impl PolicyService for Service {
    async fn get_policy(
        &self,
        _request: Request<v1::GetPolicyRequest>,
    ) -> Result<Response<v1::GetPolicyResponse>, Status> {
        let policy = self.gateway.policy();
        let yaml = policy.to_yaml().map_err(|error| Refusal::internal("showing the policy", &error))?;
        portion::answer(v1::GetPolicyResponse {
            digest: policy.digest().to_owned(),
            profiles: policy.profile_names().map(str::to_owned).collect(),
            roles: policy.role_names().map(str::to_owned).collect(),
            yaml,
        })
    }

    async fn reload_policy(
        &self,
        request: Request<v1::ReloadPolicyRequest>,
    ) -> Result<Response<v1::ReloadPolicyResponse>, Status> {
        let principal = principal(&request)?;
        let loader = self.loader.clone();
        // In a separate task, so that a policy that was recorded takes effect even if the client leaves.
        let reloaded = tokio::spawn(async move { loader.reload(&principal.name).await });
        let (digest, changed) =
            reloaded.await.map_err(|error| Refusal::internal("loading the policy", &error))??;
        Ok(Response::new(v1::ReloadPolicyResponse { digest, changed }))
    }

    async fn explain_policy(
        &self,
        request: Request<v1::ExplainPolicyRequest>,
    ) -> Result<Response<v1::ExplainPolicyResponse>, Status> {
        let principal = principal(&request)?;
        let Self { gateway, runs, approvals, .. } = self;
        let explained = explain::explain((gateway, runs, approvals), &principal, request.into_inner())?;
        portion::answer(explained)
    }

    async fn replay_policy(
        &self,
        request: Request<v1::ReplayPolicyRequest>,
    ) -> Result<Response<v1::ReplayPolicyResponse>, Status> {
        portion::answer(self.replays.replay(request.into_inner()).await?)
    }
}
