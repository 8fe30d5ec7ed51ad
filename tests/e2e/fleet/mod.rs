//! Three nodes of a fleet: `coffer --fleet` over all of them, and what the death and the drain of one means for the others.

mod creates;
mod death;
mod push;
mod view;

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use harness::{Certificates, Clients, Daemon, Setup, binary, free_port, v1};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::task::JoinSet;
use tonic::transport::Endpoint;

/// Time within which what a dead node had must fail, and others must answer.
const SOON: Duration = Duration::from_secs(5);
/// Index of the node that is killed.
const VICTIM: usize = 1;
const PATIENCE: Duration = Duration::from_secs(60);

const POLICY: &str = "profiles:
  p:
    workspace: read-write
    unattended: true
    operations: { read: allow, exec: allow }
    exec: { read_only_commands: true, default: allow }
    limits: { memory_mib: 64, cpu_millis: 500, disk_mib: 16, pids: 64 }
    rate_limits:
      operations: { default: { minute: unlimited, hour: unlimited, day: unlimited } }
      run: { minute: unlimited, hour: unlimited, day: unlimited }
      principal: { minute: unlimited, hour: unlimited, day: unlimited }
roles: { director: { allow: \"*\" } }
";

/// Nodes 1 to 3, each with its state, socket and address, and the list of them.
struct Fleet {
    nodes: Vec<Daemon>,
    certificates: Certificates,
    directory: TempDir,
}

struct End {
    code: i32,
    out: String,
    err: String,
    took: Duration,
}

impl Fleet {
    async fn start() -> Self {
        Self::start_with("").await
    }

    /// Starts nodes with further keys of `node`, each with a comma before it.
    async fn start_with(keys: &str) -> Self {
        let certificates = Certificates::make(&["ops"]);
        let mut starting = JoinSet::new();
        let mut list = "nodes:\n".to_owned();
        for id in 1..=3 {
            // A port that stays when the daemon starts again.
            let port = free_port();
            let tcp = certificates.listen("tokens: {}").replace("127.0.0.1:0", &format!("127.0.0.1:{port}"));
            let line = format!("- {{ id: {id}, address: '127.0.0.1:{port}', server_name: localhost }}\n");
            list.push_str(&line);
            let config = format!(
                "node: {{ id: {id}{keys} }}\n\
                 access: [{{ certificate: ops, roles: [operator, orchestrator, approver, auditor] }}]\n"
            );
            let policy = vec![("p.yaml", POLICY.to_owned())];
            let setup = Setup { config, tcp, policy, ..Setup::default() };
            starting.spawn(async move { (id, Daemon::start_with(setup).await) });
        }
        let mut nodes = starting.join_all().await;
        nodes.sort_by_key(|(id, _)| *id);
        let nodes = nodes.into_iter().map(|(_, daemon)| daemon).collect();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("nodes.yaml"), list).unwrap();
        Self { nodes, certificates, directory }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("nodes.yaml")
    }

    fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new(binary("coffer"));
        command.env_remove("COFFERDAM_RUN").env_remove("COFFERDAM_TOKEN").env_remove("COFFERDAM_ENDPOINT");
        command.env("COFFERDAM_FLEET", self.file()).env("COFFERDAM_TLS", self.certificates.client("ops"));
        command.args(line).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    async fn coffer(&self, line: &[&str]) -> End {
        let began = Instant::now();
        let output = tokio::time::timeout(PATIENCE, self.command(line).output());
        let output = output.await.expect("coffer does not end").unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let took = began.elapsed();
        End { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr), took }
    }

    /// Runs `coffer --fleet`, which must succeed; its standard output.
    async fn all(&self, line: &[&str]) -> String {
        let End { code, out, err, .. } = self.coffer(&[&["--fleet"], line].concat()).await;
        assert_eq!(code, 0, "{line:?}: {out}{err}");
        out
    }

    /// A connection to each node that connects again by itself.
    fn clients(&self) -> Vec<Clients> {
        let client = |daemon: &Daemon| {
            let endpoint = Endpoint::try_from(format!("unix:{}", daemon.socket().display())).unwrap();
            Clients::on(endpoint.connect_lazy())
        };
        self.nodes.iter().map(client).collect()
    }
}

/// Returns all runs of a node, those that have ended too.
async fn listed(clients: &mut Clients) -> Vec<v1::Run> {
    let request = v1::ListRunsRequest { page_size: 1_000, ..Default::default() };
    let mut answer = clients.runs.list_runs(request.clone()).await.unwrap().into_inner();
    let mut runs = answer.runs;
    while !answer.next_page_token.is_empty() {
        let page = v1::ListRunsRequest { page_token: answer.next_page_token, ..request.clone() };
        answer = clients.runs.list_runs(page).await.unwrap().into_inner();
        runs.append(&mut answer.runs);
    }
    runs
}
