//! Serves `LimitService`.

use std::sync::Arc;

use refusal::Refusal;
use runs::Runs;
use tonic::{Request, Response, Status};
use wire::v1;
use wire::v1::limit_service_server::LimitService;

use super::{portion, principal};
use calls::limits::{self, Limits};

pub(crate) struct Service {
    pub(crate) limits: Arc<Limits>,
    pub(crate) runs: Arc<Runs>,
}

#[tonic::async_trait]
impl LimitService for Service {
    async fn get_rate_limits(
        &self,
        request: Request<v1::GetRateLimitsRequest>,
    ) -> Result<Response<v1::GetRateLimitsResponse>, Status> {
        let principal = principal(&request)?;
        portion::answer(limits::show(&self.limits, &self.runs, &principal, request.get_ref())?)
    }

    async fn get_tenants(
        &self,
        request: Request<v1::GetTenantsRequest>,
    ) -> Result<Response<v1::GetTenantsResponse>, Status> {
        let principal = principal(&request)?;
        portion::answer(limits::show_tenants(&self.runs, &principal, request.get_ref())?)
    }

    async fn throttle_agent(
        &self,
        request: Request<v1::ThrottleAgentRequest>,
    ) -> Result<Response<v1::ThrottleAgentResponse>, Status> {
        let principal = principal(&request)?;
        let (limits, runs) = (self.limits.clone(), self.runs.clone());
        // In a separate task, so that a limit that was recorded takes effect even if the client leaves.
        let throttled = tokio::spawn(async move {
            limits::throttle_agent(&limits, &runs, &principal, request.into_inner()).await
        });
        let response =
            throttled.await.map_err(|error| Refusal::internal("throttling the agent", &error))??;
        Ok(Response::new(response))
    }
}
