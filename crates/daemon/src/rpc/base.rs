//! Serves `BaseService`.

use std::sync::Arc;

use bases::Bases;
use futures_util::StreamExt as _;
use identity::BaseId;
use refusal::Refusal;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status, Streaming};
use wire::v1;
use wire::v1::base_service_server::BaseService;
use wire::v1::import_base_request::Part;

use super::image::{LAST, PIECES, no_header, pieces};
use super::portion::{cut, page};
use super::principal;

/// Maximum number of bases on a page.
const MAX_PAGE: u32 = 500;

#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) bases: Arc<Bases>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

#[tonic::async_trait]
impl BaseService for Service {
    async fn create_base(
        &self,
        request: Request<v1::CreateBaseRequest>,
    ) -> Result<Response<v1::CreateBaseResponse>, Status> {
        let (bases, principal) = (self.bases.clone(), principal(&request)?);
        let request = request.into_inner();
        // Goes on if the client leaves, and a stop of the daemon waits for it.
        let made = self.tasks.spawn(async move { bases.create(request, &principal).await }).await;
        Ok(Response::new(made.map_err(|error| Refusal::internal("making the base", &error))??))
    }

    async fn list_bases(
        &self,
        request: Request<v1::ListBasesRequest>,
    ) -> Result<Response<v1::ListBasesResponse>, Status> {
        let principal = principal(&request)?;
        let asked = request.get_ref();
        let (size, after) =
            page(asked.page_size, MAX_PAGE, &asked.page_token, |token| BaseId::parse(token).ok())?;
        let (mut bases, more) = self.bases.list(&principal, after, size);
        let more = cut(&mut bases, size) || more;
        let next_page_token = bases.last().filter(|_| more).map(|last| last.base_id.clone());
        let next_page_token = next_page_token.unwrap_or_default();
        Ok(Response::new(v1::ListBasesResponse { bases, next_page_token }))
    }

    async fn get_base(
        &self,
        request: Request<v1::GetBaseRequest>,
    ) -> Result<Response<v1::GetBaseResponse>, Status> {
        let id = BaseId::parse(&request.get_ref().base_id)?;
        let base = self.bases.get(id, &*principal(&request)?)?;
        Ok(Response::new(v1::GetBaseResponse { base: Some(base) }))
    }

    async fn verify_base(
        &self,
        request: Request<v1::VerifyBaseRequest>,
    ) -> Result<Response<v1::VerifyBaseResponse>, Status> {
        let id = BaseId::parse(&request.get_ref().base_id)?;
        let (bases, principal) = (self.bases.clone(), principal(&request)?);
        // Keeps its turn if the client leaves, because its process goes on. A stop of the daemon need not wait for it.
        let verified = tokio::spawn(async move { bases.verify(id, &principal).await }).await;
        Ok(Response::new(verified.map_err(|error| Refusal::internal("verifying the base", &error))??))
    }

    type ExportBaseStream = ReceiverStream<Result<v1::ExportBaseResponse, Status>>;

    async fn export_base(
        &self,
        request: Request<v1::ExportBaseRequest>,
    ) -> Result<Response<Self::ExportBaseStream>, Status> {
        let id = BaseId::parse(&request.get_ref().base_id)?;
        let (service, principal) = (self.clone(), principal(&request)?);
        let (sender, receiver) = mpsc::channel(PIECES);
        // Ends soon after the client has left.
        self.tasks.spawn(async move {
            let sent = service.bases.export(id, &principal, &sender, &service.stop).await;
            if let Err(refusal) = sent {
                // An error means that the client has left, or reads nothing. Its stream has no last message.
                let _ = sender.send_timeout(Err(refusal.into()), LAST).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn import_base(
        &self,
        request: Request<Streaming<v1::ImportBaseRequest>>,
    ) -> Result<Response<v1::ImportBaseResponse>, Status> {
        let (bases, principal) = (self.bases.clone(), principal(&request)?);
        let mut stream = request.into_inner();
        let first = stream.message().await?.and_then(|first| first.part);
        let Some(Part::Header(header)) = first else { return Err(no_header().into()) };
        let pieces = pieces(stream, |message: v1::ImportBaseRequest| match message.part {
            Some(Part::Piece(piece)) => Some(piece),
            _ => None,
        });
        let pieces = Box::pin(pieces.take_until(self.stop.clone().cancelled_owned()));
        // In a separate task, so that nothing of the base is left if the client leaves.
        let made = self.tasks.spawn(async move { bases.import(header, pieces, &principal).await }).await;
        Ok(Response::new(made.map_err(|error| Refusal::internal("importing the base", &error))??))
    }

    async fn delete_base(
        &self,
        request: Request<v1::DeleteBaseRequest>,
    ) -> Result<Response<v1::DeleteBaseResponse>, Status> {
        let id = BaseId::parse(&request.get_ref().base_id)?;
        let (bases, principal) = (self.bases.clone(), principal(&request)?);
        // In a separate task, which goes on if the client leaves.
        let deleted = tokio::spawn(async move { bases.delete(id, &principal).await }).await;
        deleted.map_err(|error| Refusal::internal("deleting the base", &error))??;
        Ok(Response::new(v1::DeleteBaseResponse {}))
    }
}
