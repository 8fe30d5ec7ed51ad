//! The main cases through one address of three nodes: Envoy, then HAProxy, with what `coffer fleet` writes for them.

mod sdks;
mod stock;
mod stubs;

use std::time::Duration;

use harness::balancer::{Balancer, Kind, Nodes, OPERATORS};
use harness::v1::run_service_client::RunServiceClient;
use harness::{Bearer, binary, requests, v1};
use serde_json::json;

use crate::mcp::{Client, text};

const NODES: usize = 3;
/// Time in which all of it ends, before the test runner ends this test.
const PATIENCE: Duration = Duration::from_secs(280);

/// An agent lists and calls the tools of its run by `coffer mcp`, with nothing but the run's token.
async fn an_agent_is_served(balancer: &Balancer, token: &str) {
    let mut runs = RunServiceClient::new(balancer.endpoint(Some("ci")).connect().await.unwrap());
    let request = v1::CreateRunRequest { issue_token: true, ..requests::managed("harness") };
    let made = runs.create_run(Bearer::new(token).shows(request)).await.unwrap().into_inner();
    let (run_id, own) = (made.run.unwrap().run_id, made.token);
    let setup = json!({"stdio": {
        "command": binary("coffer"),
        "args": ["mcp", "--run", run_id],
        "env": {"COFFERDAM_ENDPOINT": balancer.url(), "COFFERDAM_TLS": balancer.tls(), "COFFERDAM_TOKEN": own},
    }});
    let mut client = Client::connect(setup).await;
    let listed = client.step(json!({"do": "list"})).await;
    assert!(listed["tools"].as_array().is_some_and(|tools| !tools.is_empty()), "{listed}");
    client.call("write", json!({"file_path": "a.txt", "content": "one\n"})).await;
    let counted = client.call("bash", json!({"command": "wc -l a.txt"})).await;
    assert!(text(&counted).contains("1 a.txt"), "{counted}");
    client.leave().await;
    let line = ["run", "stop", &run_id];
    balancer.coffer(token, &line).await;
}

async fn main_cases_pass(kind: Kind, half: &[&str]) {
    let nodes = Nodes::start(NODES).await;
    let balancer = Balancer::start(kind, &nodes).await;
    let token = nodes.token(OPERATORS);
    let channel = balancer.endpoint(Some("ci")).connect().await.unwrap();
    let all = async {
        tokio::join!(
            stock::main_cases_pass(channel, &token, NODES),
            an_agent_is_served(&balancer, &token),
            sdks::python_passes(&balancer, &nodes, half),
            sdks::typescript_passes(&balancer, &nodes),
        );
    };
    tokio::time::timeout(PATIENCE, Box::pin(all)).await.expect("they do not end");
}

#[tokio::test(flavor = "multi_thread")]
async fn main_cases_pass_through_envoy() {
    Box::pin(main_cases_pass(Kind::Envoy, &crate::python_sdk::BLOCKING)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn main_cases_pass_through_haproxy() {
    Box::pin(main_cases_pass(Kind::Haproxy, &crate::python_sdk::ASYNCHRONOUS)).await;
}
