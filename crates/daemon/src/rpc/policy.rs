//! `PolicyService`.

use std::sync::Arc;

use refusal::Refusal;
use tonic::{Request, Response, Status};
use wire::v1;
use wire::v1::policy_service_server::PolicyService;

use super::{alert, explain, permission, principal};
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

    async fn list_alerts(
        &self,
        request: Request<v1::ListAlertsRequest>,
    ) -> Result<Response<v1::ListAlertsResponse>, Status> {
        let principal = principal(&request)?;
        Ok(Response::new(alert::list(&self.0, &principal, request.get_ref())?))
    }

    async fn get_alert(
        &self,
        request: Request<v1::GetAlertRequest>,
    ) -> Result<Response<v1::GetAlertResponse>, Status> {
        let principal = principal(&request)?;
        let found = alert::get(&self.0, &principal, &request.get_ref().alert_id)?;
        Ok(Response::new(v1::GetAlertResponse { alert: Some(found) }))
    }

    type WatchAlertsStream = alert::Watched;

    async fn watch_alerts(
        &self,
        request: Request<v1::WatchAlertsRequest>,
    ) -> Result<Response<Self::WatchAlertsStream>, Status> {
        let principal = principal(&request)?;
        Ok(Response::new(alert::watch(&self.0, &principal, request.into_inner())))
    }

    async fn acknowledge_alert(
        &self,
        request: Request<v1::AcknowledgeAlertRequest>,
    ) -> Result<Response<v1::AcknowledgeAlertResponse>, Status> {
        let principal = principal(&request)?;
        let acknowledged = alert::acknowledge(self.0.clone(), principal, request.into_inner()).await?;
        Ok(Response::new(v1::AcknowledgeAlertResponse { alert: Some(acknowledged) }))
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

    async fn grant_permission(
        &self,
        request: Request<v1::GrantPermissionRequest>,
    ) -> Result<Response<v1::GrantPermissionResponse>, Status> {
        let principal = principal(&request)?;
        let permission = permission::grant(&self.0, &principal, request.into_inner()).await?;
        Ok(Response::new(v1::GrantPermissionResponse { permission: Some(permission) }))
    }

    async fn revoke_permission(
        &self,
        request: Request<v1::RevokePermissionRequest>,
    ) -> Result<Response<v1::RevokePermissionResponse>, Status> {
        let principal = principal(&request)?;
        let permission = permission::revoke(&self.0, &principal, request.into_inner()).await?;
        Ok(Response::new(v1::RevokePermissionResponse { permission: Some(permission) }))
    }

    async fn list_permissions(
        &self,
        request: Request<v1::ListPermissionsRequest>,
    ) -> Result<Response<v1::ListPermissionsResponse>, Status> {
        Ok(Response::new(permission::list(&self.0, request.into_inner()).await?))
    }

    async fn get_rate_limits(
        &self,
        request: Request<v1::GetRateLimitsRequest>,
    ) -> Result<Response<v1::GetRateLimitsResponse>, Status> {
        let principal = principal(&request)?;
        Ok(Response::new(crate::limits::show(&self.0, &principal, request.get_ref())?))
    }

    async fn throttle_agent(
        &self,
        request: Request<v1::ThrottleAgentRequest>,
    ) -> Result<Response<v1::ThrottleAgentResponse>, Status> {
        let principal = principal(&request)?;
        let app = self.0.clone();
        // Goes on when the client leaves: what is on record comes into force.
        let throttled = tokio::spawn(async move {
            crate::limits::throttle_agent(&app, &principal, request.into_inner()).await
        });
        let response =
            throttled.await.map_err(|error| Refusal::internal("throttling the agent", &error))??;
        Ok(Response::new(response))
    }
}
