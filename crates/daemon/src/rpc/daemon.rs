//! Serves `DaemonService`.

use std::sync::Arc;
use std::time::SystemTime;

use daemon_log::Level;
use gateway::Gateway;
use refusal::Refusal;
use tonic::{Request, Response, Status};
use wire::v1;
use wire::v1::daemon_service_server::DaemonService;

use super::{portion, principal};
use crate::reload::{Reloaded, Reloader};
use readiness::Readiness;

/// Most profiles of one question, and the longest name of one.
const PROFILES: (usize, usize) = (64, 128);

pub(crate) struct Service {
    pub(crate) reloader: Arc<Reloader>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) started: SystemTime,
}

#[tonic::async_trait]
impl DaemonService for Service {
    async fn get_daemon_status(
        &self,
        request: Request<v1::GetDaemonStatusRequest>,
    ) -> Result<Response<v1::GetDaemonStatusResponse>, Status> {
        let profiles = request.into_inner().profiles;
        let (most, longest) = PROFILES;
        if profiles.len() > most || profiles.iter().any(|profile| profile.len() > longest) {
            let message = format!("has more than {most} names, or one of more than {longest} bytes");
            return Err(Refusal::invalid("profiles", message).into());
        }
        let policy = self.gateway.policy();
        let conditions = self.readiness.conditions(&policy, &profiles);
        let in_force = self.reloader.in_force();
        portion::answer(v1::GetDaemonStatusResponse {
            ready: conditions.iter().all(|condition| condition.problem.is_none()),
            conditions: conditions
                .into_iter()
                .map(|condition| v1::DaemonCondition {
                    name: condition.name,
                    met: condition.problem.is_none(),
                    problem: condition.problem.unwrap_or_default().to_owned(),
                })
                .collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: Some(self.started.into()),
            configuration_digest: in_force.digest().to_owned(),
            policy_digest: policy.digest().to_owned(),
            needs_restart: in_force.needs_restart,
            log_level: self.reloader.level().as_str().to_owned(),
        })
    }

    async fn reload_daemon(
        &self,
        request: Request<v1::ReloadDaemonRequest>,
    ) -> Result<Response<v1::ReloadDaemonResponse>, Status> {
        let principal = principal(&request)?;
        let own = self.reloader.clone();
        // In a separate task, so that a reload that was recorded takes effect even if the client leaves.
        let task = tokio::spawn(async move { own.reload(&principal.name).await });
        let done = task.await.map_err(|error| Refusal::internal("reloading", &error))??;
        let Reloaded { applied, needs_restart, digest, previous_digest, policy_digest, policy_changed } =
            done;
        portion::answer(v1::ReloadDaemonResponse {
            applied,
            needs_restart,
            configuration_digest: digest,
            previous_configuration_digest: previous_digest,
            policy_digest,
            policy_changed,
        })
    }

    async fn set_log_level(
        &self,
        request: Request<v1::SetLogLevelRequest>,
    ) -> Result<Response<v1::SetLogLevelResponse>, Status> {
        let principal = principal(&request)?;
        let level = Level::parse(&request.get_ref().level).map_err(|why| Refusal::invalid("level", why))?;
        let (reloader, set) = (self.reloader.clone(), level.clone());
        let previous = tokio::spawn(async move { reloader.set_level(set, &principal.name).await });
        let previous =
            previous.await.map_err(|error| Refusal::internal("setting the level of the log", &error))??;
        Ok(Response::new(v1::SetLogLevelResponse {
            level: level.as_str().to_owned(),
            previous: previous.as_str().to_owned(),
        }))
    }
}
