//! One address of two nodes: Envoy, then HAProxy, with the configurations that `coffer fleet` writes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use harness::v1::node_service_client::NodeServiceClient;
use harness::{
    Bearer, Certificates, Clients, Daemon, Issuer, Setup, binary, calls, reason, requests, until, v1,
};
use node_id::{NODE_METADATA, NodeId};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt as _;

const GRANTS: &str = "{ claim: groups, value: ml, roles: [orchestrator] }";
const HOUR: Duration = Duration::from_secs(3_600);
/// Time within which what a dead node had must fail, and others must answer.
const SOON: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Envoy,
    Haproxy,
}

/// Two nodes, and a balancer with one address of both.
struct Fleet {
    kind: Kind,
    nodes: [Daemon; 2],
    /// Signed by the authority of the nodes: theirs, and the balancer's.
    inner: Certificates,
    /// Signed by the authority of the clients: the balancer's, and a client's.
    outer: Certificates,
    issuer: Issuer,
    directory: TempDir,
    port: u16,
    balancer: Option<Child>,
}

async fn node(number: u8, inner: &Certificates, issuer: &Issuer) -> Daemon {
    let oidc = issuer.config_with_file(GRANTS);
    let config = format!("node: {{ id: {number} }}\nagent_check: {{ listen: '127.0.0.1:0' }}\n{oidc}");
    // No `access`: the certificate of the balancer has no role.
    let tcp = inner.listen("tokens: {}");
    Daemon::start_with(Setup { config, tcp, ..Setup::default() }).await
}

/// Where a daemon answers agent checks.
fn agent(daemon: &Daemon) -> String {
    daemon.told("agent checks are answered address=")
}

impl Fleet {
    async fn start(kind: Kind) -> Self {
        let (inner, outer) = (Certificates::make(&["balancer"]), Certificates::make(&["ci"]));
        let issuer = Issuer::default();
        let (one, two) = tokio::join!(node(1, &inner, &issuer), node(2, &inner, &issuer));
        // HAProxy reads a key beside its certificate.
        for place in [outer.directory().join("server"), inner.client("balancer")] {
            std::os::unix::fs::symlink("key.pem", place.join("cert.pem.key")).unwrap();
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let nodes = [one, two];
        let directory = tempfile::tempdir().unwrap();
        let mut fleet = Self { kind, nodes, inner, outer, issuer, directory, port, balancer: None };
        fleet.write("").await;
        fleet.balancer = Some(fleet.command().spawn().unwrap());
        let mut client = fleet.client();
        for node in ["1", "2"] {
            until("the balancer does not serve", async || client.list(node).await.is_ok()).await;
        }
        fleet
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Has `coffer fleet` write the configuration, with further lines of the list of nodes.
    async fn write(&self, more: &str) {
        let mut list = "nodes:\n".to_owned();
        for (at, daemon) in self.nodes.iter().enumerate() {
            let (id, address, agent) = (at + 1, daemon.address(), agent(daemon));
            writeln!(
                list,
                "- {{ id: {id}, address: '{address}', server_name: localhost, agent_check: '{agent}' }}"
            )
            .unwrap();
        }
        std::fs::write(self.file("nodes.yaml"), list + more).unwrap();
        let (verb, out) = match self.kind {
            Kind::Envoy => ("envoy", self.file("envoy")),
            Kind::Haproxy => ("haproxy", self.file("haproxy.cfg")),
        };
        let mut command = Command::new(binary("coffer"));
        command.args(["fleet", verb, "--listen", &format!("127.0.0.1:{}", self.port), "--nodes"]);
        command.arg(self.file("nodes.yaml")).arg("--listen-tls").arg(self.outer.directory().join("server"));
        command.arg("--node-tls").arg(self.inner.client("balancer")).arg("--out").arg(out);
        succeeded(&command.output().await.unwrap());
        // Both programs find no fault, and no cause for a warning.
        let mut check = match self.kind {
            Kind::Envoy => self.envoy(&["--mode", "validate"]),
            Kind::Haproxy => self.haproxy(&["-c"]),
        };
        let checked = check.output().await.unwrap();
        succeeded(&checked);
        let said = String::from_utf8_lossy(&checked.stderr).to_lowercase();
        assert!(!said.contains("[warning]") && !said.contains("deprecated"), "{said}");
    }

    fn envoy(&self, options: &[&str]) -> Command {
        // tests/run.sh installs it.
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/envoy/bin/envoy");
        let mut command = Command::new(program);
        command.args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning", "-c"]);
        command.arg(self.file("envoy/envoy.json")).args(options).kill_on_drop(true);
        command
    }

    fn haproxy(&self, options: &[&str]) -> Command {
        let mut command = Command::new("haproxy");
        command.arg("-f").arg(self.file("haproxy.cfg")).args(options).kill_on_drop(true);
        command
    }

    fn command(&self) -> Command {
        let mut command = match self.kind {
            Kind::Envoy => self.envoy(&[]),
            Kind::Haproxy => self.haproxy(&["-W"]),
        };
        let log = || Stdio::from(std::fs::File::create(self.file("log")).unwrap());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log());
        command
    }

    /// Has the balancer take another configuration. Envoy sees it by itself.
    async fn reload(&self, more: &str) {
        self.write(more).await;
        if self.kind == Kind::Haproxy {
            self.signal(Signal::USR2);
        }
    }

    fn signal(&self, signal: Signal) {
        let id = self.balancer.as_ref().and_then(Child::id);
        if let Some(pid) = id.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) {
            kill_process(pid, signal).unwrap();
        }
    }

    fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    /// Connections that the balancer keeps of a hundred without a word of TLS, all of one address.
    async fn silent_connections(&self) -> Vec<TcpStream> {
        let (port, mut all) = (self.port, JoinSet::new());
        for _ in 0..100 {
            all.spawn(async move {
                let socket = TcpSocket::new_v4().unwrap();
                socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
                let mut stream = socket.connect(([127, 0, 0, 1], port).into()).await.ok()?;
                let closed = tokio::time::timeout(Duration::from_secs(1), stream.read(&mut [0; 1])).await;
                closed.is_err().then_some(stream)
            });
        }
        all.join_all().await.into_iter().flatten().collect()
    }

    /// Another connection through the balancer.
    fn client(&self) -> Client {
        self.client_with(Some("ci"))
    }

    fn client_with(&self, certificate: Option<&str>) -> Client {
        let alice = Bearer::new(&self.issuer.token("alice", &["ml"], HOUR));
        let endpoint = self.outer.endpoint_at(&self.url(), certificate).unwrap();
        Client { clients: Clients::on(endpoint.connect_lazy()), alice }
    }

    /// Runs `coffer` through the balancer, which must succeed; its standard output.
    async fn coffer(&self, line: &[&str]) -> String {
        let mut command = Command::new(binary("coffer"));
        command.env("COFFERDAM_ENDPOINT", self.url()).env("COFFERDAM_TLS", self.outer.client("ci"));
        command.env("COFFERDAM_TOKEN", self.issuer.token("alice", &["ml"], HOUR)).env_remove("COFFERDAM_RUN");
        let output = command.args(line).stdin(Stdio::null()).output().await.unwrap();
        succeeded(&output);
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // The workers of HAProxy end with their master.
        self.signal(Signal::TERM);
        if std::thread::panicking() {
            eprintln!(
                "--- the balancer's log ---\n{}",
                std::fs::read_to_string(self.file("log")).unwrap_or_default()
            );
        }
    }
}

fn succeeded(output: &Output) {
    let said = [&output.stdout[..], &output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

struct Client {
    clients: Clients,
    alice: Bearer,
}

impl Client {
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
    let mut fleet = Fleet::start(kind).await;
    let mut client = fleet.client();

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
        assert_eq!(fleet.coffer(&["exec", run_id, "--", "echo", "hi"]).await, "hi\n");
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
    fleet.client_with(None).list("1").await.unwrap_err();

    if kind == Kind::Haproxy {
        let silent = fleet.silent_connections().await;
        assert!((1..=64).contains(&silent.len()), "{}", silent.len());
        client.list("1").await.unwrap();
        let (_, node) = client.create().await.unwrap();
        client.list(&node.to_string()).await.unwrap();
    }

    // Another configuration, while streams go on.
    let mut streams = [client.watch(&ones[0], 1).await, client.watch(&twos[0], 2).await];
    for stream in &mut streams {
        stream.message().await.unwrap().unwrap();
    }
    fleet.reload("- { id: 3, address: '127.0.0.1:9', server_name: localhost, weight: 2 }\n").await;
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
    tokio::time::timeout(Duration::from_secs(30), stopped).await.expect("the stream is silent");

    // A drain keeps runs away, and those that live are reached.
    let mut node_two = NodeServiceClient::new(fleet.nodes[1].connect().await.channel);
    let drain = v1::DrainNodeRequest { reason: "a new kernel".to_owned(), deadline: None };
    node_two.drain_node(drain).await.unwrap();
    client.creates_on_one_alone().await;
    client.echo(&twos[0], 2).await.unwrap();

    // The death of one node.
    fleet.nodes[1].kill().await;
    let died = Instant::now();
    let ended = tokio::time::timeout(SOON, end_of(of_two)).await.expect("a stream of the dead node goes on");
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
