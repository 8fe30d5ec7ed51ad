//! One address of two nodes: Envoy, then HAProxy, with the configurations that `coffer fleet` writes.

use std::io::ErrorKind::WouldBlock;
use std::time::{Duration, Instant};

use harness::balancer::{Balancer, Kind, MAKERS, Nodes};
use harness::v1::node_service_client::NodeServiceClient;
use harness::{Bearer, Certificates, Clients, Daemon, Setup, calls, reason, requests, until, v1};
use node_id::{NODE_METADATA, NodeId};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt as _;

/// Time within which what a dead node had must fail, and others must answer.
const SOON: Duration = Duration::from_secs(5);

/// Where a daemon answers agent checks.
fn agent(daemon: &Daemon) -> String {
    daemon.told("agent checks are answered address=")
}

/// Connections that the balancer keeps of a hundred without a word of TLS, all of one address.
async fn silent_connections(balancer: &Balancer) -> Vec<TcpStream> {
    let (port, mut all) = (balancer.port(), JoinSet::new());
    for _ in 0..100 {
        all.spawn(async move {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
            socket.connect(([127, 0, 0, 1], port).into()).await.ok()
        });
    }
    let mut all: Vec<TcpStream> = all.join_all().await.into_iter().flatten().collect();
    let bounded = until("more than 64 are kept", async || {
        all.retain(|stream| stream.try_read(&mut [0; 1]).is_err_and(|error| error.kind() == WouldBlock));
        all.len() <= 64
    });
    // Less than the time that the configuration gives a handshake.
    timeout(Duration::from_secs(8), bounded).await.expect("more than 64 are kept");
    all
}

struct Client {
    clients: Clients,
    alice: Bearer,
}

impl Client {
    /// Another connection through the balancer, with a client's certificate or without.
    fn of(balancer: &Balancer, nodes: &Nodes, certificate: Option<&str>) -> Self {
        let clients = Clients::on(balancer.endpoint(certificate).connect_lazy());
        Self { clients, alice: Bearer::new(&nodes.token(MAKERS)) }
    }

    /// A request for a node; "": for any.
    fn to<T>(&self, node: &str, message: T) -> Request<T> {
        let mut request = self.alice.shows(message);
        if !node.is_empty() {
            request.metadata_mut().insert(NODE_METADATA, node.parse().unwrap());
        }
        request.set_timeout(Duration::from_secs(30));
        request
    }

    async fn list(&mut self, node: &str) -> Result<v1::ListRunsResponse, Status> {
        let request = self.to(node, v1::ListRunsRequest::default());
        Ok(self.clients.runs.list_runs(request).await?.into_inner())
    }

    /// Makes a run anywhere; its id, and its node.
    async fn create(&mut self) -> Result<(String, u16), Status> {
        let request = self.to("", requests::managed("open"));
        let run = self.clients.runs.create_run(request).await?.into_inner().run.unwrap();
        let node = NodeId::of_text(&run.run_id).unwrap().get();
        Ok((run.run_id, node))
    }

    async fn echo(&mut self, run_id: &str, node: u16) -> Result<v1::CallResponse, Status> {
        let request = Some(calls::exec(&["echo", "hi"]).into());
        let call = v1::CallRequest { run_id: run_id.to_owned(), request, ..Default::default() };
        let request = self.to(&node.to_string(), call);
        Ok(self.clients.tools.call(request).await?.into_inner())
    }

    async fn watch(&mut self, run_id: &str, node: u16) -> tonic::Streaming<v1::WatchRunsResponse> {
        let mut request = self.alice.shows(v1::WatchRunsRequest { run_id: run_id.to_owned() });
        request.metadata_mut().insert(NODE_METADATA, node.to_string().parse().unwrap());
        // An order of a client, which would end the stream if Envoy obeyed it.
        request.metadata_mut().insert("x-envoy-upstream-rq-timeout-ms", "1".parse().unwrap());
        self.clients.runs.watch_runs(request).await.unwrap().into_inner()
    }

    /// Makes runs until four in a row are of node 1. Meanwhile others may be refused by the node that is drained.
    async fn creates_on_one_alone(&mut self) {
        let (began, mut in_a_row) = (Instant::now(), 0);
        while in_a_row < 4 {
            match self.create().await {
                Ok((_, 1)) => in_a_row += 1,
                Ok((run_id, node)) => panic!("run {run_id} was made on node {node}"),
                Err(refused) => {
                    assert_eq!(
                        (refused.code(), reason(&refused).as_str()),
                        (Code::Unavailable, "NODE_DRAINED")
                    );
                    in_a_row = 0;
                }
            }
            assert!(began.elapsed() < Duration::from_secs(60), "creates still go to node 2");
        }
    }
}

/// The first error of a stream, whose other messages are skipped.
async fn end_of(mut stream: tonic::Streaming<v1::WatchRunsResponse>) -> Result<(), Status> {
    while stream.message().await?.is_some() {}
    Ok(())
}

async fn one_address_serves_both_nodes(kind: Kind) {
    let mut nodes = Nodes::start(2).await;
    let balancer = Balancer::start(kind, &nodes).await;
    let mut client = Client::of(&balancer, &nodes, Some("ci"));

    // Runs by weight, and everything else by the header.
    let mut runs = Vec::new();
    for _ in 0..6 {
        runs.push(client.create().await.unwrap());
    }
    let of = |node: u16| {
        runs.iter().filter(|(_, made)| *made == node).map(|(id, _)| id.clone()).collect::<Vec<_>>()
    };
    let (ones, twos) = (of(1), of(2));
    assert!(!ones.is_empty() && !twos.is_empty(), "{runs:?}");
    for (run_id, node) in &runs {
        let answer = client.echo(run_id, *node).await.unwrap();
        assert_eq!(answer.status(), v1::call_response::Status::Succeeded, "{answer:?}");
        let line = ["exec", run_id, "--", "echo", "hi"];
        assert_eq!(balancer.coffer(&nodes.token(MAKERS), &line).await, "hi\n");
    }
    for (node, ids) in [("1", &ones), ("2", &twos)] {
        let listed = client.list(node).await.unwrap().runs;
        assert_eq!(listed.len(), ids.len(), "{node}");
    }
    for unknown in ["3", "0", "1,2", "01"] {
        let refused = client.list(unknown).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{unknown}: {refused}");
        assert!(refused.message().contains("no node with this number"), "{refused}");
    }

    // The certificate of the balancer opens nothing for a client without a token, and a client needs a certificate.
    let bare = client.clients.runs.list_runs(v1::ListRunsRequest::default()).await.unwrap_err();
    assert_eq!(reason(&bare), "PERMISSION_DENIED", "{bare}");
    assert!(bare.message().contains("cert:balancer has no role"), "{bare}");
    Client::of(&balancer, &nodes, None).list("1").await.unwrap_err();

    if kind == Kind::Haproxy {
        let silent = silent_connections(&balancer).await;
        assert!(!silent.is_empty());
        client.list("1").await.unwrap();
        let (_, node) = client.create().await.unwrap();
        client.list(&node.to_string()).await.unwrap();
    }

    // Another configuration, while streams go on.
    let mut streams = [client.watch(&ones[0], 1).await, client.watch(&twos[0], 2).await];
    for stream in &mut streams {
        stream.message().await.unwrap().unwrap();
    }
    balancer.reload("- { id: 3, address: '127.0.0.1:9', server_name: localhost, weight: 2 }\n").await;
    until("the other configuration is not in force", async || {
        client.list("3").await.is_err_and(|refused| refused.code() == Code::Unavailable)
    })
    .await;
    let [mut of_one, of_two] = streams;
    let stop = client.to("1", v1::StopRunRequest { run_id: ones[0].clone() });
    client.clients.runs.stop_run(stop).await.unwrap();
    let stopped = async {
        while of_one.message().await.unwrap().unwrap().run.unwrap().state() != v1::run::State::Stopped {}
    };
    timeout(Duration::from_secs(30), stopped).await.expect("the stream is silent");

    // A drain keeps runs away, and those that live are reached.
    let mut node_two = NodeServiceClient::new(nodes.daemons[1].connect().await.channel);
    let drain = v1::DrainNodeRequest { reason: "a new kernel".to_owned(), deadline: None };
    node_two.drain_node(drain).await.unwrap();
    client.creates_on_one_alone().await;
    client.echo(&twos[0], 2).await.unwrap();

    // The death of one node.
    nodes.daemons[1].kill().await;
    let died = Instant::now();
    let ended = timeout(SOON, end_of(of_two)).await.expect("a stream of the dead node goes on");
    assert!(ended.is_err());
    loop {
        // A request of before the first check may still try to connect.
        let refused = client.echo(&twos[0], 2).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        let began = Instant::now();
        client.list("1").await.unwrap();
        if let Err(refused) = client.list("").await {
            assert!(died.elapsed() < SOON, "{refused}");
        }
        assert!(began.elapsed() < SOON);
        if died.elapsed() > SOON {
            break;
        }
    }
    client.create().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_makes_one_address_of_two_nodes() {
    Box::pin(one_address_serves_both_nodes(Kind::Envoy)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn haproxy_makes_one_address_of_two_nodes() {
    Box::pin(one_address_serves_both_nodes(Kind::Haproxy)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_check_says_the_state_of_the_node_and_nothing_else() {
    let config = "node: { capacity: { runs: 2 } }\nagent_check: { listen: '127.0.0.1:0' }\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Setup::default() }).await;
    let address = agent(&daemon);
    let asked = async || {
        let mut answer = String::new();
        TcpStream::connect(&address).await.unwrap().read_to_string(&mut answer).await.unwrap();
        answer
    };
    until("the node is not ready", async || asked().await.starts_with("up ready ")).await;
    let run = daemon.run_on(requests::managed("open")).await;
    until("half of the runs are not counted", async || {
        let answer = asked().await;
        let percent = answer.strip_prefix("up ready ").and_then(|rest| rest.strip_suffix("%\n")).unwrap();
        (1..=50).contains(&percent.parse::<u8>().unwrap())
    })
    .await;
    let mut nodes = NodeServiceClient::new(run.clients.channel.clone());
    nodes.drain_node(v1::DrainNodeRequest { reason: "x".to_owned(), deadline: None }).await.unwrap();
    until("the drain is not said", async || asked().await == "up drain\n").await;
    nodes.undrain_node(v1::UndrainNodeRequest {}).await.unwrap();
    until("the node is not back", async || asked().await.starts_with("up ready ")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_without_a_role_opens_the_check_of_health_alone() {
    let certificates = Certificates::make(&["balancer"]);
    let tcp = certificates.listen("tokens: {}");
    let daemon = Daemon::start_with(Setup { tcp, ..Setup::default() }).await;
    let channel = certificates.connect(&daemon, Some("balancer")).await.unwrap();
    let mut health = HealthClient::new(channel.clone());
    for service in ["", "liveness", "cofferdam.create"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let status = health.check(request).await.unwrap().into_inner().status();
        assert_eq!(status, ServingStatus::Serving, "{service}");
    }
    let refused = [
        health.watch(HealthCheckRequest::default()).await.map(drop).unwrap_err(),
        Clients::on(channel).runs.list_runs(v1::ListRunsRequest::default()).await.map(drop).unwrap_err(),
    ];
    for refused in refused {
        assert_eq!(reason(&refused), "PERMISSION_DENIED", "{refused}");
    }
    // A client without a certificate gets not even that.
    let anonymous = certificates.connect(&daemon, None).await.unwrap();
    let refused = HealthClient::new(anonymous).check(HealthCheckRequest::default()).await.unwrap_err();
    assert_eq!(reason(&refused), "PERMISSION_DENIED", "{refused}");
}

/// A balancer that has all connections of its address still finds the node alive.
#[tokio::test(flavor = "multi_thread")]
async fn a_balancer_with_all_connections_of_its_address_still_checks_the_health() {
    let certificates = Certificates::make(&["balancer"]);
    let tcp = certificates
        .listen("tokens: {}, connections: 4, connections_per_address: 3, connections_per_second: 10000");
    let daemon = Daemon::start_with(Setup { tcp, ..Setup::default() }).await;
    let auditor = v1::Token { name: "a".into(), roles: vec!["auditor".into()], ..Default::default() };
    let bearer = Bearer::new(&daemon.token(auditor, None).await.1);
    let connect = async || certificates.connect(&daemon, Some("balancer")).await.unwrap();
    let is_alive = async |channel: &Channel| {
        let request = HealthCheckRequest { service: "liveness".to_owned() };
        let answer = HealthClient::new(channel.clone()).check(request).await;
        answer.is_ok_and(|answer| answer.into_inner().status() == ServingStatus::Serving)
    };
    let list = async |channel: &Channel| {
        let request = bearer.shows(v1::ListRunsRequest::default());
        Clients::on(channel.clone()).runs.list_runs(request).await.map(drop)
    };
    let mut held = Vec::new();
    for _ in 0..3 {
        let channel = connect().await;
        list(&channel).await.unwrap();
        held.push(channel);
    }
    // More than there are spare slots: the oldest check gives way to the next.
    for number in 0..20 {
        let channel = connect().await;
        assert!(is_alive(&channel).await, "check {number}");
        let refused = list(&channel).await.unwrap_err();
        let info = refused.get_details_error_info().unwrap();
        assert_eq!(
            (info.reason.as_str(), info.metadata["limit"].as_str()),
            ("OVERLOADED", "connections_per_address")
        );
        assert_eq!(info.metadata["retry_safe"], "true", "{refused}");
    }
    // A client without a certificate gets none of them.
    let anonymous = certificates.endpoint(&daemon, None).unwrap().connect_lazy();
    assert!(list(&anonymous).await.is_err());
    for channel in &held {
        list(channel).await.unwrap();
    }
    drop(held);
    until("no connection came back", async || list(&connect().await).await.is_ok()).await;
}
