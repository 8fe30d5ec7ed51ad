//! Serves `RunService`.

use disk_quotas::Quotas;
use std::pin::Pin;
use std::sync::Arc;

use anomaly::Alerts;
use audit_service::AuditLog;
use calls::CallTable;
use checkpoints::NewFork;
use futures_util::{Stream, StreamExt as _, stream};
use gateway::Gateway;
use identity::{AlertId, Principal, Role, RunId, check_client_name, issue_token};
use operations::Reason;
use processes::Processes;
use prost::Message as _;
use refusal::{Refusal, chain};
use runs::record::{Hold, Record};
use runs::{Parsed, Runs, hide_secrets, parse_request, request_key};
use sha2::{Digest as _, Sha256};
use timestamp::Timestamp;
use tokio_stream::wrappers::BroadcastStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};
use wire::v1::run_service_server::RunService;
use wire::v1::{self, CreateRunRequest};

use super::{behind, companion_log, egress, portion, principal, usage};

const MAX_PAGE: u32 = 1_000;
/// Default size of a diff, bytes.
const DEFAULT_DIFF: u32 = 256 * 1024;
/// Maximum size of a diff, bytes.
const MAX_DIFF: u32 = 1024 * 1024;

#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) runs: Arc<Runs>,
    pub(crate) processes: Processes,
    pub(crate) table: Arc<CallTable>,
    pub(crate) audit: Arc<AuditLog>,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) alerts: Arc<Alerts>,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    /// Places for clients that read the output of companions.
    pub(crate) log_readers: companion_log::Readers,
}

impl Service {
    /// Makes a run for ForkRun, as CreateRun does.
    pub(super) async fn fork(&self, principal: Arc<Principal>, fork: NewFork) -> Result<v1::Fork, Refusal> {
        let (record, token) = self.create(principal, fork).await?;
        let run = v1::Run { env: record.spec.env.clone(), ..record.to_wire() };
        Ok(v1::Fork { run: Some(run), token: token.unwrap_or_default() })
    }

    /// Makes a run, or finds the one that the same request made before.
    ///
    /// Returns the run, and its token if the request asks for one and the run is new.
    async fn create(
        &self,
        principal: Arc<Principal>,
        NewFork { mut request, narrowed, must_exist }: NewFork,
    ) -> Result<(Record, Option<String>), Refusal> {
        self.audit.check()?;
        if !principal.may_make(&request.profile) {
            let message = "profile: the token is limited to runs or to other profiles";
            return Err(Refusal::new(Reason::PermissionDenied, message));
        }
        let request_id = request.request_id.clone();
        check_client_name("request_id", &request_id)?;
        let id = match request.run_id.as_str() {
            "" => RunId::new(),
            _ if request_id.is_empty() => {
                return Err(Refusal::invalid("run_id", "may only be given together with request_id"));
            }
            chosen => RunId::chosen(chosen)?,
        };
        let digest = self.digest(&request);
        hide_secrets(&mut request, self.audit.redactor())?;
        let request_id = request_key(&request_id, &principal);
        if let Some(record) = self.made_before(&request_id, &digest, &principal.name).await? {
            return Ok((record, None));
        }
        if must_exist {
            return Err(Refusal::new(Reason::NotFound, "there is no such run").with("resource", "run"));
        }
        // After the look at earlier requests: a late repetition finds its run.
        if !request.run_id.is_empty() {
            id.check_is_of_now()?;
        }
        let wants_token = request.issue_token;
        let policy = self.gateway.policy();
        let mut parsed: Parsed<'_> = parse_request(request, &policy, &principal)?;
        let (token, hash) = wants_token.then(|| issue_token(id)).unzip();
        parsed.spec.token = hash;
        parsed.egress.extend(narrowed);
        let key = Some((request_id.clone(), digest.clone())).filter(|(id, _)| !id.is_empty());
        let created = self.runs.create(id, parsed, &principal, key).await;
        match created {
            // The same request came twice at the same time, and this one came second.
            Err(refusal) if refusal.reason == Reason::AlreadyExists => {
                let before = self.made_before(&request_id, &digest, &principal.name).await?;
                before.map(|record| (record, None)).ok_or(refusal)
            }
            created => created.map(|record| (record, token)),
        }
    }

    fn seen<T>(&self, request: &Request<T>, run_id: &str) -> Result<Record, Refusal> {
        self.runs.shown_to(RunId::parse(run_id)?, &*principal(request)?)
    }

    fn used<T>(&self, request: &Request<T>, run_id: &str) -> Result<RunId, Refusal> {
        self.runs.of(RunId::parse(run_id)?, &*principal(request)?).map(|record| record.id)
    }

    /// Returns a run with its disk usage.
    fn shown(&self, record: &Record) -> v1::Run {
        let living = self.runs.living_run(record.id);
        let left = || self.runs.launcher.projects.left.of(record.id);
        let disk = living.map_or_else(|_| left(), |run| run.disk.to_wire());
        v1::Run { disk, ..record.to_wire() }
    }

    /// Returns a single run with the values of its plain variables, the end of its lease, its connections and its use of models.
    fn whole(&self, record: &Record) -> Result<v1::Run, Refusal> {
        let living = self.runs.living_run(record.id).ok();
        let model_use = usage::of_run(&self.runs, record);
        let egress = living.as_deref().and_then(egress::egress).transpose()?;
        let mut shown = self.shown(record);
        for companion in &mut shown.companions {
            let of_run = living.as_ref().and_then(|run| run.egress());
            let address = of_run.and_then(|egress| egress.address_of(&companion.name));
            companion.address = address.map(|address| address.to_string()).unwrap_or_default();
            let own = living.as_ref().and_then(|run| run.egress_beside(&companion.name));
            companion.egress = own.map(|egress| egress.rules().words()).unwrap_or_default();
        }
        let left = living.and_then(|run| run.lease_left());
        let lease_ends_at = left.map(|left| Timestamp::now().after(left).to_wire());
        Ok(v1::Run { env: record.spec.env.clone(), lease_ends_at, egress, model_use, ..shown })
    }

    /// Returns a digest that tells a repetition of a request from a different request.
    fn digest(&self, request: &CreateRunRequest) -> Vec<u8> {
        let mut content = request.clone();
        content.request_id.clear();
        let content = content.encode_to_vec();
        // The variables of companions may be secret as well.
        if request.secret_env.is_empty() && request.companions.is_empty() {
            Sha256::digest(content).to_vec()
        } else {
            self.runs.store.fingerprint(&content)
        }
    }

    /// Returns the run that the same request made before.
    async fn made_before(
        &self,
        request_id: &str,
        digest: &[u8],
        principal: &str,
    ) -> Result<Option<Record>, Refusal> {
        if request_id.is_empty() {
            return Ok(None);
        }
        let id = request_id.to_owned();
        let found = self.runs.store.with(move |store| runs::stored::by_request(store, &id)).await;
        match found.map_err(|error| Refusal::internal("looking a run up", &chain(&error)))? {
            None => Ok(None),
            Some((record, made)) if made == digest && is_of(&record, principal) => {
                match self.runs.launched(record.id).await {
                    // The earlier request was refused meanwhile. This one is tried anew, and gets its own refusal.
                    Err(refusal) if refusal.reason == Reason::NotFound => Ok(None),
                    launched => launched.map(Some),
                }
            }
            Some(_) => Err(Refusal::new(
                Reason::AlreadyExists,
                "request_id: this id was used for a different run; a repetition must have the same content",
            )),
        }
    }
}

/// Returns true if the principal made the run.
///
/// Names of certificates can have spaces, so a name and an id together can be those of another pair.
fn is_of(record: &Record, principal: &str) -> bool {
    record.spec.principal == principal
}

/// Parses the size and the beginning of a page. Ids sort by time.
fn page(size: u32, token: &str) -> Result<(usize, Option<RunId>), Refusal> {
    portion::page(size, MAX_PAGE, token, |token| RunId::parse(token).ok())
}

/// Releases a run from the holds of alerts by acknowledging them.
///
/// An alert that is still in force would hold the run again under the next daemon.
async fn lift_alerts(service: &Service, run: RunId, principal: &Principal) -> Result<(), Refusal> {
    for held in service.runs.get(run)?.holds {
        let Hold::Alert(alert) = &held.hold else { continue };
        if let Ok(id) = AlertId::parse(alert) {
            match service.alerts.acknowledge(id, principal, "lifted with ResumeRun").await {
                // Acknowledged or forgotten meanwhile, so it holds nothing.
                Err(refusal) if !matches!(refusal.reason, Reason::PreconditionFailed | Reason::NotFound) => {
                    return Err(refusal);
                }
                _ => {}
            }
        }
        service.runs.release(run, &held.hold).await?;
    }
    Ok(())
}

#[tonic::async_trait]
impl RunService for Service {
    async fn create_run(
        &self,
        request: Request<CreateRunRequest>,
    ) -> Result<Response<v1::CreateRunResponse>, Status> {
        let principal = principal(&request)?;
        let service = self.clone();
        let new = NewFork { request: request.into_inner(), narrowed: Vec::new(), must_exist: false };
        // In a separate task that goes on if the client leaves: a half-made run would keep its slot for ever.
        let created = tokio::spawn(async move { service.create(principal, new).await });
        let (record, token) =
            created.await.map_err(|error| Refusal::internal("making the run", &error))??;
        let token = token.unwrap_or_default();
        let run = v1::Run { env: record.spec.env.clone(), ..record.to_wire() };
        Ok(Response::new(v1::CreateRunResponse { run: Some(run), token }))
    }

    async fn get_run(
        &self,
        request: Request<v1::GetRunRequest>,
    ) -> Result<Response<v1::GetRunResponse>, Status> {
        let record = self.seen(&request, &request.get_ref().run_id)?;
        Ok(Response::new(v1::GetRunResponse { run: Some(self.whole(&record)?) }))
    }

    async fn list_runs(
        &self,
        request: Request<v1::ListRunsRequest>,
    ) -> Result<Response<v1::ListRunsResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let (size, after) = page(request.page_size, &request.page_token)?;
        check_client_name("request_id", &request.request_id)?;
        let mut records = self.runs.listed(&request.request_id, &principal).await?;
        records.retain(|record| {
            (request.state == 0 || i32::from(record.state.to_wire()) == request.state)
                && after.is_none_or(|after| record.id < after)
        });
        let mut runs = records.iter().take(size + 1).map(|record| self.shown(record)).collect();
        let more = portion::cut(&mut runs, size);
        let next_page_token = runs.last().filter(|_| more).map(|run| run.run_id.clone()).unwrap_or_default();
        let may_know = principal.roles.has_any(&[Role::Operator, Role::Auditor]);
        let held = self.runs.launcher.projects.are_held();
        let state_disk = may_know.then(|| self.quotas.to_wire(held)).flatten();
        Ok(Response::new(v1::ListRunsResponse { runs, next_page_token, state_disk }))
    }

    async fn stop_run(
        &self,
        request: Request<v1::StopRunRequest>,
    ) -> Result<Response<v1::StopRunResponse>, Status> {
        let id = self.used(&request, &request.get_ref().run_id)?;
        let service = self.clone();
        // In a separate task, which goes on if the client leaves.
        let stopped = tokio::spawn(async move { service.runs.stop(id).await }).await;
        let record = stopped.map_err(|error| Refusal::internal("stopping the run", &error))??;
        if !record.state.has_ended() {
            // This status has no reason, like a lost connection: clients ask again, and the next daemon stops the run.
            return Err(Status::unavailable(
                "the daemon is stopping and hands the run over to the next daemon: try again",
            ));
        }
        Ok(Response::new(v1::StopRunResponse { run: Some(record.to_wire()) }))
    }

    async fn pause_run(
        &self,
        request: Request<v1::PauseRunRequest>,
    ) -> Result<Response<v1::PauseRunResponse>, Status> {
        let id = self.used(&request, &request.get_ref().run_id)?;
        let (service, principal) = (self.clone(), principal(&request)?);
        // In a separate task, which goes on if the client leaves.
        let held =
            tokio::spawn(async move { service.runs.hold(id, Hold::Operator, Some(&principal.name)).await })
                .await;
        held.map_err(|error| Refusal::internal("pausing the run", &error))??;
        Ok(Response::new(v1::PauseRunResponse { run: Some(self.runs.get(id)?.to_wire()) }))
    }

    async fn resume_run(
        &self,
        request: Request<v1::ResumeRunRequest>,
    ) -> Result<Response<v1::ResumeRunResponse>, Status> {
        let id = self.used(&request, &request.get_ref().run_id)?;
        let alerts = request.get_ref().lift_alerts;
        if alerts && !principal(&request)?.roles.has(Role::Operator) {
            let message = "lift_alerts: only operators can lift the hold of an alert";
            return Err(Refusal::new(Reason::PermissionDenied, message).into());
        }
        let (service, principal) = (self.clone(), principal(&request)?);
        let released = tokio::spawn(async move {
            if alerts {
                lift_alerts(&service, id, &principal).await?;
            }
            service.runs.release(id, &Hold::Operator).await
        });
        released.await.map_err(|error| Refusal::internal("resuming the run", &error))??;
        Ok(Response::new(v1::ResumeRunResponse { run: Some(self.runs.get(id)?.to_wire()) }))
    }

    async fn keep_alive_run(
        &self,
        request: Request<v1::KeepAliveRunRequest>,
    ) -> Result<Response<v1::KeepAliveRunResponse>, Status> {
        let id = self.used(&request, &request.get_ref().run_id)?;
        self.runs.living_run(id)?.keep_alive()?;
        let run = Some(self.whole(&self.runs.get(id)?)?);
        Ok(Response::new(v1::KeepAliveRunResponse { run }))
    }

    async fn extend_run(
        &self,
        request: Request<v1::ExtendRunRequest>,
    ) -> Result<Response<v1::ExtendRunResponse>, Status> {
        let id = self.used(&request, &request.get_ref().run_id)?;
        let (service, principal) = (self.clone(), principal(&request)?);
        // In a separate task, which goes on if the client leaves.
        let extended = tokio::spawn(async move {
            service.runs.extend(id, request.get_ref().ttl.as_ref(), &principal.name).await
        });
        let record = extended.await.map_err(|error| Refusal::internal("extending the run", &error))??;
        Ok(Response::new(v1::ExtendRunResponse { run: Some(record.to_wire()) }))
    }

    async fn issue_run_token(
        &self,
        request: Request<v1::IssueRunTokenRequest>,
    ) -> Result<Response<v1::IssueRunTokenResponse>, Status> {
        let id = self.used(&request, &request.get_ref().run_id)?;
        let (service, principal) = (self.clone(), principal(&request)?);
        // In a separate task, which goes on if the client leaves.
        let issued = tokio::spawn(async move { service.runs.issue_token(id, &principal.name).await });
        let (record, token) =
            issued.await.map_err(|error| Refusal::internal("making a token for the run", &error))??;
        Ok(Response::new(v1::IssueRunTokenResponse { run: Some(record.to_wire()), token }))
    }

    async fn delete_run(
        &self,
        request: Request<v1::DeleteRunRequest>,
    ) -> Result<Response<v1::DeleteRunResponse>, Status> {
        let id = self.used(&request, &request.get_ref().run_id)?;
        let (service, principal) = (self.clone(), principal(&request)?);
        let with_workspace = request.get_ref().delete_workspace;
        let deleted =
            tokio::spawn(async move { service.runs.delete(id, with_workspace, &principal).await }).await;
        deleted.map_err(|error| Refusal::internal("deleting the run", &error))??;
        self.processes.forget_run(id);
        self.table.forget_run(id);
        Ok(Response::new(v1::DeleteRunResponse {}))
    }

    async fn diff_run(
        &self,
        request: Request<v1::DiffRunRequest>,
    ) -> Result<Response<v1::DiffRunResponse>, Status> {
        let id = self.used(&request, &request.get_ref().run_id)?;
        let most = match request.get_ref().max_diff_bytes {
            0 => DEFAULT_DIFF,
            most => most.min(MAX_DIFF),
        };
        portion::answer(self.runs.diff(id, most).await?)
    }

    async fn accept_run(
        &self,
        request: Request<v1::AcceptRunRequest>,
    ) -> Result<Response<v1::AcceptRunResponse>, Status> {
        let id = self.used(&request, &request.get_ref().run_id)?;
        let (service, principal, force) = (self.clone(), principal(&request)?, request.get_ref().force);
        // Goes on if the client leaves, and a stop of the daemon waits for it.
        let accepted =
            self.tasks.spawn(async move { service.runs.accept(id, force, &principal).await }).await;
        let response = accepted.map_err(|error| Refusal::internal("accepting the changes", &error))??;
        Ok(Response::new(response))
    }

    async fn discard_run(
        &self,
        request: Request<v1::DiscardRunRequest>,
    ) -> Result<Response<v1::DiscardRunResponse>, Status> {
        let id = self.used(&request, &request.get_ref().run_id)?;
        let (service, principal) = (self.clone(), principal(&request)?);
        let discarded = self.tasks.spawn(async move { service.runs.discard(id, &principal).await }).await;
        let record = discarded.map_err(|error| Refusal::internal("discarding the changes", &error))??;
        Ok(Response::new(v1::DiscardRunResponse { run: Some(record.to_wire()) }))
    }

    async fn list_workspaces(
        &self,
        request: Request<v1::ListWorkspacesRequest>,
    ) -> Result<Response<v1::ListWorkspacesResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let (size, after) = page(request.page_size, &request.page_token)?;
        let (mut workspaces, more) = self.runs.workspaces(&principal, after, size, request.measure).await;
        let more = portion::cut(&mut workspaces, size) || more;
        let next_page_token = workspaces.last().filter(|_| more).map(|last| last.workspace_id.clone());
        let next_page_token = next_page_token.unwrap_or_default();
        Ok(Response::new(v1::ListWorkspacesResponse { workspaces, next_page_token }))
    }

    async fn delete_workspace(
        &self,
        request: Request<v1::DeleteWorkspaceRequest>,
    ) -> Result<Response<v1::DeleteWorkspaceResponse>, Status> {
        let id = RunId::parse(&request.get_ref().workspace_id)?;
        let (service, principal) = (self.clone(), principal(&request)?);
        let deleted = tokio::spawn(async move { service.runs.delete_workspace(id, &principal).await }).await;
        deleted.map_err(|error| Refusal::internal("deleting the workspace", &error))??;
        Ok(Response::new(v1::DeleteWorkspaceResponse {}))
    }

    type WatchRunsStream = Pin<Box<dyn Stream<Item = Result<v1::WatchRunsResponse, Status>> + Send>>;

    async fn watch_runs(
        &self,
        request: Request<v1::WatchRunsRequest>,
    ) -> Result<Response<Self::WatchRunsStream>, Status> {
        let principal = principal(&request)?;
        let only = match request.get_ref().run_id.as_str() {
            "" => None,
            id => Some(self.seen(&request, id)?.id),
        };
        // Subscribes before it lists, so that no change is missed between the two.
        let changes = self.runs.changes();
        let present = match only {
            Some(id) => vec![self.runs.get(id)?],
            None => self.runs.list(),
        };
        let respond = |record: &Record| Ok(v1::WatchRunsResponse { run: Some(record.to_wire()) });
        let sees = move |record: &Record| record.is_seen_by(&principal);
        let present: Vec<_> = present.iter().rev().filter(|record| sees(record)).map(respond).collect();
        let later = BroadcastStream::new(changes).filter_map(move |change| {
            let answer = match change {
                Ok(record) if only.is_none_or(|id| id == record.id) && sees(&record) => {
                    Some(respond(&record))
                }
                Ok(_) => None,
                Err(_) => Some(Err(behind())),
            };
            std::future::ready(answer)
        });
        let stop = self.stop.clone();
        let watched = stream::iter(present).chain(later).take_until(stop.cancelled_owned());
        Ok(Response::new(Box::pin(watched)))
    }

    type ReadCompanionLogsStream = companion_log::Log;

    async fn read_companion_logs(
        &self,
        request: Request<v1::ReadCompanionLogsRequest>,
    ) -> Result<Response<Self::ReadCompanionLogsStream>, Status> {
        let id = self.used(&request, &request.get_ref().run_id)?;
        let run = self.runs.living_run(id)?;
        let owners = (&self.tasks, &self.stop);
        let log = companion_log::read((id, run), request.get_ref(), &self.log_readers, owners).await?;
        Ok(Response::new(log))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_of_another_principal_is_no_repetition() {
        let mut record = runs::testing::record();
        record.spec.principal = "cert:ci".to_owned();
        // Both have the stored id `cert:ci a b`: the one asks for `a b`, and the other one for `b`.
        assert!(is_of(&record, "cert:ci") && !is_of(&record, "cert:ci a"));
    }
}
