//! Serves `CheckpointService`.

use std::sync::Arc;

use checkpoints::Checkpoints;
use comparisons::Comparisons;
use identity::{CheckpointId, RunId};
use refusal::Refusal;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};
use wire::v1;
use wire::v1::checkpoint_service_server::CheckpointService;

use super::portion::{answer, cut, page};
use super::{check_home, principal};

/// Maximum number of checkpoints on a page.
const MAX_PAGE: u32 = 500;

#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) checkpoints: Arc<Checkpoints>,
    /// Makes the runs of forks.
    pub(crate) runs: super::run::Service,
    pub(crate) comparisons: Arc<Comparisons>,
    pub(crate) tasks: TaskTracker,
}

#[tonic::async_trait]
impl CheckpointService for Service {
    async fn checkpoint_run(
        &self,
        request: Request<v1::CheckpointRunRequest>,
    ) -> Result<Response<v1::CheckpointRunResponse>, Status> {
        let (checkpoints, principal) = (self.checkpoints.clone(), principal(&request)?);
        let request = request.into_inner();
        // Goes on if the client leaves, so that the run does not stay frozen, and a stop of the daemon waits for it.
        let made = self.tasks.spawn(async move { checkpoints.create(request, &principal).await }).await;
        let checkpoint = made.map_err(|error| Refusal::internal("making the checkpoint", &error))??;
        Ok(Response::new(v1::CheckpointRunResponse { checkpoint: Some(checkpoint) }))
    }

    async fn list_checkpoints(
        &self,
        request: Request<v1::ListCheckpointsRequest>,
    ) -> Result<Response<v1::ListCheckpointsResponse>, Status> {
        let principal = principal(&request)?;
        let asked = request.get_ref();
        let run = match asked.run_id.as_str() {
            "" => None,
            run => Some(RunId::parse(run)?),
        };
        let (size, after) =
            page(asked.page_size, MAX_PAGE, &asked.page_token, |token| CheckpointId::parse(token).ok())?;
        let (mut checkpoints, more) = self.checkpoints.list(&principal, run, after, size);
        if checkpoints.is_empty() {
            check_home(&self.runs.runs, &principal, &asked.run_id)?;
        }
        let more = cut(&mut checkpoints, size) || more;
        let next_page_token = checkpoints.last().filter(|_| more).map(|last| last.checkpoint_id.clone());
        let next_page_token = next_page_token.unwrap_or_default();
        Ok(Response::new(v1::ListCheckpointsResponse { checkpoints, next_page_token }))
    }

    async fn get_run_checkpoint(
        &self,
        request: Request<v1::GetRunCheckpointRequest>,
    ) -> Result<Response<v1::GetRunCheckpointResponse>, Status> {
        let id = CheckpointId::parse(&request.get_ref().checkpoint_id)?;
        let checkpoint = self.checkpoints.get(id, &*principal(&request)?)?;
        Ok(Response::new(v1::GetRunCheckpointResponse { checkpoint: Some(checkpoint) }))
    }

    async fn delete_checkpoint(
        &self,
        request: Request<v1::DeleteCheckpointRequest>,
    ) -> Result<Response<v1::DeleteCheckpointResponse>, Status> {
        let id = CheckpointId::parse(&request.get_ref().checkpoint_id)?;
        let (checkpoints, principal) = (self.checkpoints.clone(), principal(&request)?);
        // In a separate task, which goes on if the client leaves.
        let deleted = tokio::spawn(async move { checkpoints.delete(id, &principal).await }).await;
        deleted.map_err(|error| Refusal::internal("deleting the checkpoint", &error))??;
        Ok(Response::new(v1::DeleteCheckpointResponse {}))
    }

    async fn fork_run(
        &self,
        request: Request<v1::ForkRunRequest>,
    ) -> Result<Response<v1::ForkRunResponse>, Status> {
        let (checkpoints, runs, principal) =
            (self.checkpoints.clone(), self.runs.clone(), principal(&request)?);
        let request = request.into_inner();
        let forks = async move {
            let by = principal.clone();
            let create = move |fork| {
                let (runs, principal) = (runs.clone(), by.clone());
                async move { runs.fork(principal, fork).await }
            };
            checkpoints.fork(request, &principal, create).await
        };
        // Goes on if the client leaves, so that nothing is half made, and a stop of the daemon waits for it.
        let made = self.tasks.spawn(forks).await;
        Ok(Response::new(made.map_err(|error| Refusal::internal("forking the run", &error))??))
    }

    async fn restore_run(
        &self,
        request: Request<v1::RestoreRunRequest>,
    ) -> Result<Response<v1::RestoreRunResponse>, Status> {
        let (checkpoints, principal) = (self.checkpoints.clone(), principal(&request)?);
        let request = request.into_inner();
        // Goes on if the client leaves, so that the run does not stay held, and a stop of the daemon waits for it.
        let done = self.tasks.spawn(async move { checkpoints.restore(request, &principal).await }).await;
        let restored = done.map_err(|error| Refusal::internal("restoring the run", &error))??;
        Ok(Response::new(restored))
    }

    async fn compare_runs(
        &self,
        request: Request<v1::CompareRunsRequest>,
    ) -> Result<Response<v1::CompareRunsResponse>, Status> {
        let principal = principal(&request)?;
        answer(self.comparisons.compare(request.get_ref(), &principal).await?)
    }
}
