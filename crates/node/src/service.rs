//! Serves `NodeService`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use identity::Principal;
use operations::Reason;
use refusal::Refusal;
use tonic::{Request, Response, Status};
use wire::v1;
use wire::v1::node_service_server::NodeService;

use crate::node::{Asked, Node};
use crate::watchers::Place;

/// Time between two looks for a watcher, and so between two of its messages.
const LOOK: Duration = Duration::from_secs(1);

/// The service of a node.
#[derive(Clone)]
pub struct Nodes(pub Arc<Node>);

/// State of a stream to one watcher.
struct Watch {
    node: Arc<Node>,
    principal: Arc<Principal>,
    sent: Option<v1::Node>,
    _place: Place,
}

impl Watch {
    /// Waits for a node that differs from the one that was sent last. `None` when the daemon stops.
    async fn next(mut self) -> Option<(Result<v1::WatchNodeResponse, Status>, Self)> {
        let stop = self.node.stop.clone();
        let found = stop.run_until_cancelled(async {
            loop {
                if self.sent.is_some() {
                    tokio::time::sleep(LOOK).await;
                }
                let now = self.node.shown_to(&self.principal).await;
                if self.sent.as_ref() != Some(&now) {
                    return now;
                }
            }
        });
        let now = found.await?;
        self.sent = Some(now.clone());
        Some((Ok(v1::WatchNodeResponse { node: Some(now) }), self))
    }
}

impl Nodes {
    /// Carries out a change of the node even if the client leaves, and returns the node after it.
    async fn change<Changed>(
        &self,
        principal: Arc<Principal>,
        change: impl FnOnce(Arc<Node>, Arc<Principal>) -> Changed,
    ) -> Result<v1::Node, Refusal>
    where
        Changed: Future<Output = Result<(), Refusal>> + Send + 'static,
    {
        let node = self.0.clone();
        if node.tasks.is_closed() {
            return Err(Refusal::new(
                Reason::DaemonStopping,
                "the daemon is stopping: try again after its start",
            ));
        }
        let changed = node.tasks.spawn(change(node.clone(), principal.clone()));
        changed.await.map_err(|error| Refusal::internal("changing the state of the node", &error))??;
        Ok(node.shown_to(&principal).await)
    }
}

#[tonic::async_trait]
impl NodeService for Nodes {
    async fn get_node(
        &self,
        request: Request<v1::GetNodeRequest>,
    ) -> Result<Response<v1::GetNodeResponse>, Status> {
        let node = self.0.shown_to(&*principal(&request)?).await;
        Ok(Response::new(v1::GetNodeResponse { node: Some(node) }))
    }

    type WatchNodeStream = Pin<Box<dyn Stream<Item = Result<v1::WatchNodeResponse, Status>> + Send>>;

    async fn watch_node(
        &self,
        request: Request<v1::WatchNodeRequest>,
    ) -> Result<Response<Self::WatchNodeStream>, Status> {
        let (node, principal) = (self.0.clone(), principal(&request)?);
        let place = node.watchers.enter(&principal.name)?;
        let watch = Watch { node, principal, sent: None, _place: place };
        Ok(Response::new(Box::pin(stream::unfold(watch, Watch::next))))
    }

    async fn drain_node(
        &self,
        request: Request<v1::DrainNodeRequest>,
    ) -> Result<Response<v1::DrainNodeResponse>, Status> {
        let principal = principal(&request)?;
        let asked = Asked::parse(request.get_ref())?;
        let change = |node: Arc<Node>, by: Arc<Principal>| async move { node.drain(asked, &by).await };
        let node = self.change(principal, change).await?;
        Ok(Response::new(v1::DrainNodeResponse { node: Some(node) }))
    }

    async fn undrain_node(
        &self,
        request: Request<v1::UndrainNodeRequest>,
    ) -> Result<Response<v1::UndrainNodeResponse>, Status> {
        let change = |node: Arc<Node>, by: Arc<Principal>| async move { node.undrain(&by).await };
        let node = self.change(principal(&request)?, change).await?;
        Ok(Response::new(v1::UndrainNodeResponse { node: Some(node) }))
    }
}

/// Returns the principal that the guard has identified.
fn principal<T>(request: &Request<T>) -> Result<Arc<Principal>, Refusal> {
    let named = request.extensions().get::<Arc<Principal>>().cloned();
    named.ok_or_else(|| Refusal::new(Reason::PermissionDenied, "the connection has no principal"))
}
