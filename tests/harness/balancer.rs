//! Nodes of a fleet with one address: Envoy or HAProxy before them, with the configurations that `coffer fleet` writes.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use node_id::NODE_METADATA;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tonic::transport::Endpoint;
use wire::v1::ListRunsRequest;
use wire::v1::run_service_client::RunServiceClient;

use crate::daemon::{Daemon, Setup, binary};
use crate::issuer::Issuer;
use crate::network::Network;
use crate::remote::{Bearer, Certificates};
use crate::waiting::until;

/// Group of the issuer whose members make runs.
pub const MAKERS: &str = "ml";
/// Group of the issuer whose members have all roles.
pub const OPERATORS: &str = "ops";
const GRANTS: &str = "{ claim: groups, value: ml, roles: [orchestrator] }, \
     { claim: groups, value: ops, roles: [operator, orchestrator, approver, auditor] }";
/// Client of the nodes whose certificate a balancer shows.
const BALANCER: &str = "balancer";
/// Client of a balancer.
const CLIENT: &str = "ci";
/// Ports of each node.
const PORT: u16 = 7_443;
const AGENT_PORT: u16 = 7_445;
/// Validity of a token: longer than any test.
const HOUR: Duration = Duration::from_secs(3_600);

/// Nodes, numbered from 1, with separate states, sockets, networks and addresses.
///
/// They trust one authority and one issuer, and share the directory of workspaces.
pub struct Nodes {
    pub daemons: Vec<Daemon>,
    addresses: Vec<SocketAddr>,
    /// Signed by the authority of the nodes: theirs, and the balancer's.
    certificates: Certificates,
    issuer: Issuer,
    roots: TempDir,
}

impl Nodes {
    /// Starts so many, each in a network namespace.
    pub async fn start(count: usize) -> Self {
        let (certificates, issuer) = (Certificates::make(&[BALANCER]), Issuer::default());
        let roots = tempfile::Builder::new().prefix("cofferdam-roots-").tempdir_in("/var/tmp").unwrap();
        let (mut starting, mut addresses) = (JoinSet::new(), Vec::new());
        for id in 1..=count {
            let network = Network::make();
            let host = network.address();
            addresses.push(SocketAddr::new(host, PORT));
            let config = format!(
                "node: {{ id: {id} }}\nagent_check: {{ listen: '{host}:{AGENT_PORT}' }}\n\
                 workspace_roots: [{}]\n{}",
                roots.path().display(),
                issuer.config_with_file(GRANTS)
            );
            // No `access`: the certificate of the balancer has no role.
            let tcp = certificates.listen("tokens: {}").replace("127.0.0.1:0", &format!("{host}:{PORT}"));
            let setup = Setup { config, tcp, network: Some(Arc::new(network)), ..Setup::default() };
            starting.spawn(async move { (id, Daemon::start_with(setup).await) });
        }
        let mut daemons = starting.join_all().await;
        daemons.sort_by_key(|(id, _)| *id);
        let daemons = daemons.into_iter().map(|(_, daemon)| daemon).collect();
        Self { daemons, addresses, certificates, issuer, roots }
    }

    /// Returns the workspace root of all nodes.
    pub fn roots(&self) -> &Path {
        self.roots.path()
    }

    /// Returns a token of Alice, who is in this group.
    pub fn token(&self, group: &str) -> String {
        self.issuer.token("alice", &[group], HOUR)
    }

    /// Returns the way to a node without a balancer, with the balancer's certificate.
    pub fn endpoint(&self, node: u16) -> Endpoint {
        let url = format!("https://{}", self.addresses[usize::from(node) - 1]);
        self.certificates.endpoint_at(&url, Some(BALANCER)).unwrap()
    }

    /// Returns the list that `coffer fleet` reads.
    fn list(&self) -> String {
        let mut list = "nodes:\n".to_owned();
        for (at, address) in self.addresses.iter().enumerate() {
            let (id, host) = (at + 1, address.ip());
            writeln!(
                list,
                "- {{ id: {id}, address: '{address}', server_name: localhost, agent_check: '{host}:{AGENT_PORT}' }}"
            )
            .unwrap();
        }
        list
    }
}

/// The program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Envoy,
    Haproxy,
}

/// A balancer on a port of this host. It ends with the value.
pub struct Balancer {
    kind: Kind,
    /// The list of nodes.
    list: String,
    /// Directory of the certificate that the nodes see.
    node_tls: PathBuf,
    /// Signed by the authority of the clients: the balancer's, and a client's.
    certificates: Certificates,
    directory: TempDir,
    port: u16,
    child: Option<Child>,
}

impl Balancer {
    /// Returns the port where clients connect.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Starts one before these nodes, and waits until it reaches each.
    pub async fn start(kind: Kind, nodes: &Nodes) -> Self {
        let certificates = Certificates::make(&[CLIENT]);
        let node_tls = nodes.certificates.client(BALANCER);
        // HAProxy reads a key beside its certificate. Another balancer may have made the second link.
        for place in [&certificates.directory().join("server"), &node_tls] {
            let link = place.join("cert.pem.key");
            if !link.exists() {
                std::os::unix::fs::symlink("key.pem", link).unwrap();
            }
        }
        let port = crate::free_port();
        let (list, directory) = (nodes.list(), tempfile::tempdir().unwrap());
        let mut balancer = Self { kind, list, node_tls, certificates, directory, port, child: None };
        balancer.write("").await;
        balancer.child = Some(balancer.command().spawn().unwrap());
        let alice = Bearer::new(&nodes.token(MAKERS));
        let mut runs = RunServiceClient::new(balancer.endpoint(Some(CLIENT)).connect_lazy());
        for id in 1..=nodes.daemons.len() {
            until("the balancer does not serve", async || {
                let mut request = alice.shows(ListRunsRequest::default());
                request.metadata_mut().insert(NODE_METADATA, id.to_string().parse().unwrap());
                runs.list_runs(request).await.is_ok()
            })
            .await;
        }
        balancer
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Has `coffer fleet` write the configuration, with further lines of the list of nodes.
    async fn write(&self, more: &str) {
        std::fs::write(self.file("nodes.yaml"), self.list.clone() + more).unwrap();
        let (verb, out) = match self.kind {
            Kind::Envoy => ("envoy", self.file("envoy")),
            Kind::Haproxy => ("haproxy", self.file("haproxy.cfg")),
        };
        let mut command = Command::new(binary("coffer"));
        command.args(["fleet", verb, "--listen", &format!("127.0.0.1:{}", self.port), "--nodes"]);
        command.arg(self.file("nodes.yaml"));
        command.arg("--listen-tls").arg(self.certificates.directory().join("server"));
        command.arg("--node-tls").arg(&self.node_tls).arg("--out").arg(out);
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
        // tests/run.sh and tests/bench.sh install it.
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
        let log = std::fs::File::create(self.file("log")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command
    }

    /// Has the balancer take another configuration, with further lines of the list of nodes. Envoy sees it by itself.
    pub async fn reload(&self, more: &str) {
        self.write(more).await;
        if self.kind == Kind::Haproxy {
            self.signal(Signal::USR2);
        }
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.as_ref().and_then(Child::id);
        if let Some(pid) = id.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) {
            kill_process(pid, signal).unwrap();
        }
    }

    /// Returns the one address.
    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    /// Returns the directory with a client's certificate, as `COFFERDAM_TLS` names it.
    pub fn tls(&self) -> PathBuf {
        self.certificates.client(CLIENT)
    }

    /// Returns the way through it, with a client's certificate or without.
    pub fn endpoint(&self, certificate: Option<&str>) -> Endpoint {
        self.certificates.endpoint_at(&self.url(), certificate).unwrap()
    }

    /// Runs `coffer` through the balancer with a token, which must succeed; its standard output.
    pub async fn coffer(&self, token: &str, line: &[&str]) -> String {
        let mut command = Command::new(binary("coffer"));
        command.env("COFFERDAM_ENDPOINT", self.url()).env("COFFERDAM_TLS", self.tls());
        command.env("COFFERDAM_TOKEN", token).env_remove("COFFERDAM_RUN");
        let output = command.args(line).stdin(Stdio::null()).output().await.unwrap();
        succeeded(&output);
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Balancer {
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
