//! Serves `FileService`: transfers files and trees of any size. Each transfer is one call, a `write` or a `read`.

mod download;
mod upload;

use std::sync::Arc;

use bytes::Bytes;
use calls::{CallTable, Calls};
use gateway::Gateway;
use identity::RunId;
use operations::UploadId;
use runs::Runs;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status, Streaming};
use uploads::Uploads;
use wire::v1::file_service_server::FileService;
use wire::v1::{self, Transfer};

use super::metadata::traced;
use super::principal;
use download::Sent;
use upload::{Form, Said};

#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) calls: Arc<Calls>,
    pub(crate) table: Arc<CallTable>,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) runs: Arc<Runs>,
    pub(crate) uploads: Arc<Uploads>,
    pub(crate) tasks: TaskTracker,
}

impl From<v1::UploadFileRequest> for Said {
    fn from(request: v1::UploadFileRequest) -> Self {
        match request.piece {
            Some(v1::upload_file_request::Piece::Begin(begin)) => Self::Begin(begin),
            Some(v1::upload_file_request::Piece::Data(data)) => Self::Data(data),
            None => Self::Data(Bytes::new()),
        }
    }
}

impl From<v1::UploadArchiveRequest> for Said {
    fn from(request: v1::UploadArchiveRequest) -> Self {
        match request.piece {
            Some(v1::upload_archive_request::Piece::Begin(begin)) => Self::Begin(begin),
            Some(v1::upload_archive_request::Piece::Data(data)) => Self::Data(data),
            None => Self::Data(Bytes::new()),
        }
    }
}

impl From<Sent> for v1::DownloadFileResponse {
    fn from(sent: Sent) -> Self {
        use v1::download_file_response::Piece;
        let piece = match sent {
            Sent::Begin(begin) => Piece::Begin(begin),
            Sent::Data(data) => Piece::Data(data),
            Sent::End(end) => Piece::End(*end),
        };
        Self { piece: Some(piece) }
    }
}

impl From<Sent> for v1::DownloadArchiveResponse {
    fn from(sent: Sent) -> Self {
        use v1::download_archive_response::Piece;
        let piece = match sent {
            Sent::Begin(begin) => Piece::Begin(begin),
            Sent::Data(data) => Piece::Data(data),
            Sent::End(end) => Piece::End(*end),
        };
        Self { piece: Some(piece) }
    }
}

#[tonic::async_trait]
impl FileService for Service {
    async fn upload_file(
        &self,
        request: Request<Streaming<v1::UploadFileRequest>>,
    ) -> Result<Response<v1::UploadFileResponse>, Status> {
        let principal = principal(&request)?;
        let done = self.upload(&principal, request, Form::File).await?;
        let upload::Done { call_id, approval_id, result } = done;
        Ok(Response::new(v1::UploadFileResponse { call_id, approval_id, result }))
    }

    async fn upload_archive(
        &self,
        request: Request<Streaming<v1::UploadArchiveRequest>>,
    ) -> Result<Response<v1::UploadArchiveResponse>, Status> {
        let principal = principal(&request)?;
        let done = self.upload(&principal, request, Form::Archive).await?;
        let upload::Done { call_id, approval_id, result } = done;
        Ok(Response::new(v1::UploadArchiveResponse { call_id, approval_id, result }))
    }

    async fn get_upload(
        &self,
        request: Request<v1::GetUploadRequest>,
    ) -> Result<Response<v1::GetUploadResponse>, Status> {
        let principal = principal(&request)?;
        let run = RunId::parse(&request.get_ref().run_id)?;
        self.runs.check_use(run, &principal)?;
        let id =
            UploadId::parse("upload_id", &request.get_ref().upload_id).map_err(refusal::Refusal::from)?;
        let received_bytes = self.uploads.received(run, &id)?;
        Ok(Response::new(v1::GetUploadResponse { received_bytes }))
    }

    type DownloadFileStream = ReceiverStream<Result<v1::DownloadFileResponse, Status>>;

    async fn download_file(
        &self,
        request: Request<v1::DownloadFileRequest>,
    ) -> Result<Response<Self::DownloadFileStream>, Status> {
        let principal = principal(&request)?;
        let metadata = traced(request.metadata());
        let v1::DownloadFileRequest { run_id, path, offset, wait_for_approval } = request.into_inner();
        let read = v1::ReadRequest {
            path,
            offset: Some(offset).filter(|offset| *offset > 0),
            transfer: Transfer::File.into(),
            ..Default::default()
        };
        Ok(Response::new(self.download(principal, run_id, read, wait_for_approval, metadata)))
    }

    type DownloadArchiveStream = ReceiverStream<Result<v1::DownloadArchiveResponse, Status>>;

    async fn download_archive(
        &self,
        request: Request<v1::DownloadArchiveRequest>,
    ) -> Result<Response<Self::DownloadArchiveStream>, Status> {
        let principal = principal(&request)?;
        let metadata = traced(request.metadata());
        let v1::DownloadArchiveRequest { run_id, path, wait_for_approval } = request.into_inner();
        let read = v1::ReadRequest { path, transfer: Transfer::Archive.into(), ..Default::default() };
        Ok(Response::new(self.download(principal, run_id, read, wait_for_approval, metadata)))
    }
}
