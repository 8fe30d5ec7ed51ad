//! Serves `BackupService`.

use std::pin::Pin;
use std::sync::Arc;

use backup_service::{Backups, Events};
use futures_util::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};
use wire::v1;
use wire::v1::backup_service_server::BackupService;

use super::{principal, whole_or_stopped};

pub(crate) struct Service {
    pub(crate) backups: Arc<Backups>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

#[tonic::async_trait]
impl BackupService for Service {
    type CreateBackupStream = Pin<Box<dyn Stream<Item = Result<v1::CreateBackupResponse, Status>> + Send>>;

    async fn create_backup(
        &self,
        request: Request<v1::CreateBackupRequest>,
    ) -> Result<Response<Self::CreateBackupStream>, Status> {
        let principal = principal(&request)?;
        let (events, receiver) = Events::new();
        let backups = self.backups.clone();
        // The task ends soon after the client has left.
        self.tasks.spawn(async move {
            if let Err(refusal) = backups.create(&principal, events.clone()).await {
                events.fail(refusal).await;
            }
        });
        Ok(Response::new(whole_or_stopped(ReceiverStream::new(receiver), &self.stop)))
    }
}
