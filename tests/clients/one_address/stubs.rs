//! Stubs of tonic with metadata, and a run that they reach through the one address.

use harness::v1::call_response::Status as CallStatus;
use harness::v1::operation::Kind as Operation;
use harness::v1::result::Kind as Answer;
use harness::v1::run_service_client::RunServiceClient;
use harness::v1::tool_service_client::ToolServiceClient;
use harness::{calls, requests, v1};
use node_id::{NODE_METADATA, NodeId};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status};

/// Shows the token, and names the node, with each request.
#[derive(Clone)]
pub(super) struct Metadata {
    token: MetadataValue<Ascii>,
    node: Option<u16>,
}

impl Interceptor for Metadata {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.token.clone());
        if let Some(node) = self.node {
            request.metadata_mut().insert(NODE_METADATA, node.into());
        }
        Ok(request)
    }
}

pub(super) type Connection = InterceptedService<Channel, Metadata>;

/// Clients of the one address.
#[derive(Clone)]
pub(super) struct Address {
    channel: Channel,
    token: MetadataValue<Ascii>,
}

impl Address {
    /// Takes the connection through the balancer, and the token.
    pub(super) fn new(channel: Channel, token: &str) -> Self {
        Self { channel, token: format!("Bearer {token}").parse().unwrap() }
    }

    /// Returns a connection for the requests to a node, or to any.
    pub(super) fn to(&self, node: Option<u16>) -> Connection {
        let metadata = Metadata { token: self.token.clone(), node };
        InterceptedService::new(self.channel.clone(), metadata)
    }

    /// Makes a run of a profile on a node, or on any.
    pub(super) async fn create(&self, profile: &str, node: Option<u16>) -> Result<Run, Status> {
        let mut runs = RunServiceClient::new(self.to(node));
        let id = runs.create_run(requests::managed(profile)).await?.into_inner().run.unwrap().run_id;
        let node = NodeId::of_text(&id).unwrap().get();
        Ok(Run { id, node, connection: self.to(Some(node)) })
    }
}

/// A run, and a connection whose requests name its node.
pub(super) struct Run {
    pub(super) id: String,
    pub(super) node: u16,
    pub(super) connection: Connection,
}

impl Run {
    /// Makes a call that may wait for a person.
    pub(super) async fn call(&self, operation: Operation) -> v1::CallResponse {
        let request = v1::CallRequest {
            run_id: self.id.clone(),
            request: Some(operation.into()),
            wait_for_approval: true,
            ..Default::default()
        };
        let called = ToolServiceClient::new(self.connection.clone()).call(request).await;
        called.unwrap().into_inner()
    }

    /// Makes a call that must succeed.
    pub(super) async fn ok(&self, operation: Operation) -> Answer {
        let answer = self.call(operation).await;
        assert_eq!(answer.status(), CallStatus::Succeeded, "{:?}", answer.error);
        answer.into_kind().unwrap()
    }

    pub(super) async fn read(&self, path: &str) -> String {
        match self.ok(calls::read(path)).await {
            Answer::Read(read) => read.content,
            other => panic!("{other:?}"),
        }
    }

    /// Stops the run; its state after that.
    pub(super) async fn stop(&self) -> v1::run::State {
        let mut runs = RunServiceClient::new(self.connection.clone());
        runs.stop_run(v1::StopRunRequest { run_id: self.id.clone() }).await.unwrap();
        let shown = runs.get_run(v1::GetRunRequest { run_id: self.id.clone() }).await.unwrap();
        shown.into_inner().run.unwrap().state()
    }
}
