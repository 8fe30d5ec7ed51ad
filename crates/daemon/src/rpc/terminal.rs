//! `TerminalService`.

use std::sync::Arc;

use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use wire::v1::terminal_service_server::TerminalService;
use wire::v1::{OpenTerminalRequest, OpenTerminalResponse};

use super::principal;
use crate::app::App;

/// `TerminalService`.
pub(super) struct Service(pub(super) Arc<App>);

#[tonic::async_trait]
impl TerminalService for Service {
    type OpenTerminalStream = ReceiverStream<Result<OpenTerminalResponse, Status>>;

    async fn open_terminal(
        &self,
        request: Request<Streaming<OpenTerminalRequest>>,
    ) -> Result<Response<Self::OpenTerminalStream>, Status> {
        let principal = principal(&request)?;
        let shown = crate::terminal::open(&self.0, principal, request.into_inner()).await?;
        Ok(Response::new(ReceiverStream::new(shown)))
    }
}
