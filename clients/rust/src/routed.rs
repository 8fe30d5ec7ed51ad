//! Says with each request which node of a fleet it is for.
//!
//! The ids in a request name the node that made them. A balancer before the nodes routes by the metadata alone, and a node
//! refuses what is for another.

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body as HttpBody, Bytes, Frame};
use node_id::{NODE_METADATA, NodeId};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};

/// Bytes before a message of gRPC: a flag, and the length of the message in big-endian order.
const PREFIX: usize = 5;
/// Length of an id's text.
const ID: usize = 36;

/// A connection whose requests name the node of the first id in them that names one.
#[derive(Clone, Debug)]
pub struct Routed<S>(pub(crate) S);

impl<S> Service<Request<Body>> for Routed<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if request.headers().contains_key(NODE_METADATA) {
            return Box::pin(self.0.call(request));
        }
        // The service that is ready is the one that has to be called.
        let next = self.0.clone();
        let mut ready = mem::replace(&mut self.0, next);
        Box::pin(async move {
            let (mut head, mut rest) = request.into_parts();
            let first = poll_fn(|context| Pin::new(&mut rest).poll_frame(context)).await;
            let message = first.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
            if let Some(node) = message.and_then(|message| node_of(head.uri.path(), message)) {
                head.headers.insert(NODE_METADATA, node.get().into());
            }
            ready.call(Request::from_parts(head, Body::new(Begun { first, rest }))).await
        })
    }
}

/// Finds the node that a request is for, in its first message as gRPC frames it.
fn node_of(method: &str, framed: &[u8]) -> Option<NodeId> {
    let (prefix, message) = framed.split_at_checked(PREFIX)?;
    let [0, length @ ..] = prefix else { return None };
    let length = u32::from_be_bytes(length.try_into().ok()?);
    let message = message.get(..usize::try_from(length).ok()?)?;
    // Most requests need no look at their fields.
    if !message.windows(ID).any(|window| window[8] == b'-' && named(window).is_some()) {
        return None;
    }
    wire::ids::named(method, message).iter().find_map(|id| NodeId::of_text(id))
}

fn named(window: &[u8]) -> Option<NodeId> {
    NodeId::of_text(str::from_utf8(window).ok()?)
}

/// A body whose first frame was read.
struct Begun {
    first: Option<Result<Frame<Bytes>, Status>>,
    rest: Body,
}

impl HttpBody for Begun {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(first)),
            None => Pin::new(&mut self.rest).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use prost::Message as _;
    use prost_reflect::{DescriptorPool, DynamicMessage};
    use wire::v1::GetRunRequest;
    use wire::v1::run_service_client::RunServiceClient;

    use super::*;

    const VECTORS: &str = include_str!("../../nodes.json");

    fn framed(message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap();
        [&[0][..], &length.to_be_bytes(), message].concat()
    }

    #[test]
    fn every_client_finds_the_same_node_in_a_request() {
        let pool = DescriptorPool::decode(wire::DESCRIPTORS).unwrap();
        let vectors: serde_json::Value = serde_json::from_str(VECTORS).unwrap();
        let requests = vectors["requests"].as_array().unwrap();
        assert!(requests.len() > 10);
        for vector in requests {
            let (service, method) = vector["method"].as_str().unwrap().split_once('/').unwrap();
            let service = pool.get_service_by_name(&format!("cofferdam.v1.{service}")).unwrap();
            let input = service.methods().find(|known| known.name() == method).unwrap().input();
            let message = DynamicMessage::deserialize(input, &vector["request"]).unwrap().encode_to_vec();
            let path = format!("/{}/{method}", service.full_name());
            let found = node_of(&path, &framed(&message)).map(|node| u64::from(node.get()));
            assert_eq!(found, vector["node"].as_u64(), "{vector}");
        }
    }

    #[test]
    fn what_is_no_whole_message_has_no_node() {
        let id = NodeId::try_from(7).unwrap().new_id().to_string();
        let request = framed(&GetRunRequest { run_id: id }.encode_to_vec());
        let path = "/cofferdam.v1.RunService/GetRun";
        assert_eq!(node_of(path, &request).map(NodeId::get), Some(7));
        let compressed = [&[1], &request[1..]].concat();
        for part in [&request[..0], &request[..4], &request[..5], &request[..request.len() - 1], &compressed]
        {
            assert_eq!(node_of(path, part), None);
        }
    }

    /// A daemon's stand-in, which keeps the metadata and the body of the requests that it gets.
    #[derive(Clone, Default)]
    struct StandIn(Arc<Mutex<Vec<Seen>>>);

    /// Node of a request, and the number of its messages.
    type Seen = (Option<String>, usize);

    impl Service<Request<Body>> for StandIn {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            let seen = self.0.clone();
            Box::pin(async move {
                let node = request.headers().get(NODE_METADATA).map(|node| node.to_str().unwrap().to_owned());
                let mut body = request.into_body();
                let mut bytes = 0;
                while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
                    bytes += frame.unwrap().data_ref().map_or(0, Bytes::len);
                }
                seen.lock().push((node, bytes));
                Ok(Status::unimplemented("a stand-in").into_http())
            })
        }
    }

    async fn sent(request: tonic::Request<GetRunRequest>) -> (Option<String>, usize) {
        let stand_in = StandIn::default();
        let mut client = RunServiceClient::new(Routed(stand_in.clone()));
        assert_eq!(client.get_run(request).await.unwrap_err().code(), tonic::Code::Unimplemented);
        let seen = stand_in.0.lock().pop();
        seen.unwrap()
    }

    #[tokio::test]
    async fn a_request_goes_whole_and_with_its_node() {
        let get = |run_id: &str| tonic::Request::new(GetRunRequest { run_id: run_id.to_owned() });
        let id = NodeId::try_from(7).unwrap().new_id().to_string();
        let whole = PREFIX + 2 + ID;
        assert_eq!(sent(get(&id)).await, (Some("7".to_owned()), whole));
        assert_eq!(sent(get("0198a1b2-c3d4-7000-8000-00000000aaaa")).await, (None, whole));
        let mut to_another = get(&id);
        to_another.metadata_mut().insert(NODE_METADATA, "8".parse().unwrap());
        assert_eq!(sent(to_another).await, (Some("8".to_owned()), whole), "the program's own choice");
    }
}
