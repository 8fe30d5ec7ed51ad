//! Serves `ForwardService`.

use std::sync::Arc;

use port_forwarding::PortForwarding;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use wire::v1::forward_service_server::ForwardService;
use wire::v1::{ForwardPortRequest, ForwardPortResponse};

use super::principal;

pub(crate) struct Service(pub(crate) Arc<PortForwarding>);

#[tonic::async_trait]
impl ForwardService for Service {
    type ForwardPortStream = ReceiverStream<Result<ForwardPortResponse, Status>>;

    async fn forward_port(
        &self,
        request: Request<Streaming<ForwardPortRequest>>,
    ) -> Result<Response<Self::ForwardPortStream>, Status> {
        let principal = principal(&request)?;
        let answers = self.0.open(principal, request.into_inner()).await?;
        Ok(Response::new(ReceiverStream::new(answers)))
    }
}
