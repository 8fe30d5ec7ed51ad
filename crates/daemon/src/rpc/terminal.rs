//! Serves `TerminalService`.

use std::sync::Arc;

use terminals::Terminals;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use wire::v1::terminal_service_server::TerminalService;
use wire::v1::{OpenTerminalRequest, OpenTerminalResponse, ReadRecordingRequest, ReadRecordingResponse};

use super::principal;

pub(crate) struct Service(pub(crate) Arc<Terminals>);

#[tonic::async_trait]
impl TerminalService for Service {
    type OpenTerminalStream = ReceiverStream<Result<OpenTerminalResponse, Status>>;

    async fn open_terminal(
        &self,
        request: Request<Streaming<OpenTerminalRequest>>,
    ) -> Result<Response<Self::OpenTerminalStream>, Status> {
        let principal = principal(&request)?;
        let shown = self.0.open(principal, request.into_inner()).await?;
        Ok(Response::new(ReceiverStream::new(shown)))
    }

    type ReadRecordingStream = ReceiverStream<Result<ReadRecordingResponse, Status>>;

    async fn read_recording(
        &self,
        request: Request<ReadRecordingRequest>,
    ) -> Result<Response<Self::ReadRecordingStream>, Status> {
        let principal = principal(&request)?;
        let played = self.0.play(&principal, request.get_ref()).await?;
        Ok(Response::new(ReceiverStream::new(played)))
    }
}
