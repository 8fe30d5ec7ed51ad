//! The way out of a run, against the same work without it: connections, a download, names, idle connections, and starts.
//!
//! A program in the run takes the times (`caller/main.rs`), and the same program on the host takes those of the direct way.

pub(crate) mod opened;
mod sse;
mod starts;

use std::fs;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use harness::egress::{tree, workers};
use harness::server::Server;
use harness::v1::signal_process_request::Signal;
use harness::{Daemon, RunHandle, Setup, inspect, process, requests};
use tokio::process::Command;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::args::Args;
use crate::host::Host;
use crate::report::mib;
use crate::sample::Sample;
use crate::stage::{INSIDE, install};
use crate::table::{Most, Row, Table};
use crate::{program, usage};

const NAME: &str = "files.example.org";
/// Rounds that are thrown away.
const WARM_UP: usize = 2;
/// Connections, or names, of a turn.
const TURN: &str = "20";
/// Most time that a connection takes more than a direct one.
const MORE: Duration = Duration::from_millis(1);
/// Most time of the first query for a name.
const QUERY: Duration = Duration::from_millis(2);
/// Size of the download, MiB.
const MEBIBYTES: u32 = 256;
/// Size of a server's writes, KiB: as servers have it that copy files, and as one that keeps two cores busy alone.
const PIECES: [usize; 2] = [64, 1024];
/// Downloads, at most.
const DOWNLOADS: usize = 10;
/// Least share of the direct throughput, percent.
const SHARE: f64 = 80.0;
const IDLE_CONNECTIONS: &str = "1000";
/// Most memory of `coffer-egress` with these.
const MEMORY: u64 = 30 << 20;
/// Time from the last byte until the memory is read.
const SETTLED: Duration = Duration::from_secs(2);

/// Measures, prints, and checks if that is asked for.
pub(crate) async fn run(args: &Args) -> ExitCode {
    let began = Host::look();
    let mut rows = Place::make().await.measure(args.rounds).await;
    rows.push(sse::measure().await);
    rows.extend(starts::measure(args.rounds).await);
    let columns = ["direct", "egress"];
    Table { lane: "egress", columns, began, ended: Host::look(), rows }.finish(args)
}

/// Starts a daemon with two profiles, `out` with these rules and `none`, which are the same otherwise.
async fn daemon(rules: &str, config: &str) -> Daemon {
    daemon_in(Vec::new(), rules, config).await
}

/// The same with variables of its environment.
async fn daemon_in(environment: Vec<(&'static str, String)>, rules: &str, config: &str) -> Daemon {
    let processors = Host::look().processors * 1_000;
    let unlimited = "{ minute: unlimited, hour: unlimited, day: unlimited }";
    let same = format!(
        "\n    workspace: read-write\n    allowed_images: [\"*\"]\n    operations: {{ exec: allow, process: allow }}\n    \
         exec: {{ default: allow, default_timeout_s: 120, max_timeout_s: 120 }}\n    \
         limits: {{ cpu_millis: {processors}, memory_mib: 1024, open_files: 8192 }}\n    \
         rate_limits: {{ operations: {{ default: {unlimited} }}, run: {unlimited}, principal: {unlimited} }}"
    );
    let policy = format!(
        "profiles:\n  none:{same}\n  out:{same}\n    egress: {rules}\nroles: {{ director: {{ allow: \"*\" }} }}\n"
    );
    let config = format!("egress: {{ hosts: {{ {NAME}: 127.0.0.1 }} }}\n{config}");
    let policy = vec![("egress.yaml", policy)];
    Daemon::start_with(Setup { config, policy, environment, ..Default::default() }).await
}

/// A run that reaches servers of the host, and the program that takes the times.
struct Place {
    daemon: Daemon,
    run: RunHandle,
    workspace: PathBuf,
    caller: PathBuf,
    echo: Server,
    tls: Server,
    /// One server for each of [`PIECES`].
    sources: [Server; 2],
    /// Parts of a run without a way out, and of this one.
    parts: [[usize; 3]; 2],
}

impl Place {
    async fn make() -> Self {
        let (echo, tls) = (Server::echo().await, Server::echo().await);
        let sources = [Server::source(PIECES[0]).await, Server::source(PIECES[1]).await];
        let daemon = daemon(
            &format!(
                "{{ networks: [\"127.0.0.0/8\"], connections_per_minute: 100000, names_per_minute: 10000, rules: [\
                 {{ host: {NAME}, ports: [{}, {}, {}], scheme: tcp, decision: allow }}, \
                 {{ host: {NAME}, ports: [{}], decision: allow }}, \
                 {{ host: \"*.example.org\", ports: [9], scheme: tcp, decision: allow }}] }}",
                echo.port, sources[0].port, sources[1].port, tls.port
            ),
            "",
        )
        .await;
        let caller = program::compile("caller", daemon.outside());
        let files = daemon.roots().join("egress");
        fs::create_dir(&files).unwrap();
        fs::write(files.join("byte"), "x").unwrap();
        fs::write(files.join("hello"), client_hello()).unwrap();
        install(&caller, &files.join("caller"));
        let workspace = daemon.workspace("egress", &[]);
        let mut without = daemon.run("none", &workspace).await;
        let without_parts = parts(&daemon, &without);
        assert_eq!(without_parts, [0; 3], "a run without a way out has parts of one");
        without.stop().await;
        let run = daemon.run_on(requests::bind("out", &workspace)).await;
        let with_parts = parts(&daemon, &run);
        assert!(with_parts.iter().all(|count| *count > 0), "a part was not found: {with_parts:?}");
        let parts = [without_parts, with_parts];
        Self { daemon, run, workspace, caller, echo, tls, sources, parts }
    }

    async fn measure(mut self, rounds: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        for (what, port, file) in [
            ("connection over tcp, first byte", self.echo.port, "byte"),
            ("connection over https, first byte", self.tls.port, "hello"),
        ] {
            let [direct, egress] = self.turns(rounds, "connect", port, &[TURN, file]).await;
            rows.extend(Row::of_times(what, Some(&direct), &egress, Most::More(MORE)));
            eprintln!("{what}: done");
        }
        for (port, piece) in self.sources.each_ref().map(|source| source.port).into_iter().zip(PIECES) {
            rows.push(self.download(rounds.min(DOWNLOADS), port, piece).await);
        }
        rows.extend(self.names(rounds).await);
        rows.push(self.idle().await);
        rows.extend(self.without());
        rows
    }

    /// Measures a download from a server whose writes have so many KiB.
    async fn download(&mut self, rounds: usize, port: u16, piece: usize) -> Row {
        let [direct, egress] = self.turns(rounds, "download", port, &[&MEBIBYTES.to_string()]).await;
        eprintln!("download, {piece} KiB a write: done");
        let [direct, egress] =
            [direct, egress].map(|sample| f64::from(MEBIBYTES) / sample.median().as_secs_f64());
        let share = 100.0 * egress / direct;
        Row {
            what: format!("download of {MEBIBYTES} MiB, {piece} KiB a write, p50"),
            other: format!("{direct:.0} MiB/s"),
            ours: format!("{egress:.0} MiB/s"),
            difference: format!("{share:.0} %"),
            target: format!("≥ {SHARE:.0} %"),
            met: Some(share >= SHARE),
        }
    }

    /// Measures the first queries for names that a rule allows.
    async fn names(&mut self, rounds: usize) -> [Row; 2] {
        let mut sample = Sample::default();
        for round in 0..WARM_UP + rounds {
            let times = self.through(&["names", &format!("round{round}-"), TURN]).await;
            if round >= WARM_UP {
                sample.extend(times);
            }
        }
        eprintln!("names: done");
        Row::of_times("first query for a name", None, &sample, Most::All(QUERY))
    }

    /// Measures the memory of `coffer-egress` with many idle connections. `other` is the memory before.
    async fn idle(&mut self) -> Row {
        let before = memory(&self.daemon);
        let (caller, port) = (format!("{INSIDE}/caller"), self.echo.port.to_string());
        let held = process::command(&[&caller, "hold", NAME, &port, IDLE_CONNECTIONS]);
        let id = self.run.start(held).await.process_id;
        self.run.until(&id, "held").await;
        tokio::time::sleep(SETTLED).await;
        let after = memory(&self.daemon);
        self.run.send(&id, Signal::Kill).await.unwrap();
        self.run.waited(&id).await;
        eprintln!("idle connections: done");
        Row {
            what: format!("memory, {IDLE_CONNECTIONS} idle connections"),
            other: mib(before),
            ours: mib(after),
            difference: format!("+{}", mib(after.saturating_sub(before))),
            target: format!("≤ {}", mib(MEMORY)),
            met: Some(after <= MEMORY),
        }
    }

    /// Returns the rows of the parts of a way out. `other` is a run without one.
    fn without(&self) -> Vec<Row> {
        let [without, with] = self.parts;
        let names = ["processes", "sockets in the namespace", "BPF handles of the daemon"];
        let rows = names.into_iter().zip(without.into_iter().zip(with));
        rows.map(|(what, (without, with))| Row {
            what: format!("{what}, without and with"),
            other: without.to_string(),
            ours: with.to_string(),
            target: "0 without".to_owned(),
            met: Some(without == 0),
            ..Row::default()
        })
        .collect()
    }

    /// Lets the direct way and the way out take turns. Which is first changes every time.
    async fn turns(&mut self, rounds: usize, verb: &str, port: u16, rest: &[&str]) -> [Sample; 2] {
        let port = port.to_string();
        let direct = [&[verb, "127.0.0.1", &port][..], rest].concat();
        let egress = [&[verb, NAME, &port][..], rest].concat();
        let mut samples = [Sample::default(), Sample::default()];
        for round in 0..WARM_UP + rounds {
            let times = if round.is_multiple_of(2) {
                let first = self.direct(&direct).await;
                [first, self.through(&egress).await]
            } else {
                let first = self.through(&egress).await;
                [self.direct(&direct).await, first]
            };
            if round >= WARM_UP {
                for (sample, times) in samples.iter_mut().zip(times) {
                    sample.extend(times);
                }
            }
        }
        samples
    }

    /// Runs the program on the host.
    async fn direct(&self, words: &[&str]) -> Sample {
        let mut caller = Command::new(&self.caller);
        let output = caller.args(words).current_dir(&self.workspace).stdin(Stdio::null()).output().await;
        let output = output.unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        times(&String::from_utf8(output.stdout).unwrap())
    }

    /// Runs the program in the run.
    async fn through(&mut self, words: &[&str]) -> Sample {
        let caller = format!("{INSIDE}/caller");
        let ran = self.run.exec(&[&[caller.as_str()][..], words].concat()).await;
        assert_eq!(ran.exit_code, Some(0), "{words:?}: {ran:?}");
        times(&ran.stdout)
    }
}

/// Returns the resident memory of the two processes of `coffer-egress` together. What they share counts twice.
fn memory(daemon: &Daemon) -> u64 {
    let pids: Vec<u32> = workers(daemon).into_iter().flat_map(tree).collect();
    assert_eq!(pids.len(), 2, "{pids:?}");
    pids.iter().map(|pid| usage::mapped(*pid, "Rss").unwrap()).sum()
}

/// Reads the times that the program printed.
fn times(text: &str) -> Sample {
    let mut sample = Sample::default();
    for line in text.lines() {
        sample.add(Duration::from_nanos(line.parse().unwrap_or_else(|_| panic!("no times: {text}"))));
    }
    sample
}

/// Returns the first bytes of a client over TLS.
fn client_hello() -> Vec<u8> {
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(NAME).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// Counts the parts of a way out: processes of the daemon, sockets in the run's network namespace, and BPF handles of the daemon.
fn parts(daemon: &Daemon, run: &RunHandle) -> [usize; 3] {
    let processes = workers(daemon).into_iter().flat_map(tree).count();
    let first = inspect(&run.run.container_id)["State"]["Pid"].as_u64().unwrap();
    let sockets = ["tcp", "tcp6", "udp", "udp6", "raw", "raw6"].map(|kind| {
        let table = fs::read_to_string(format!("/proc/{first}/net/{kind}")).unwrap_or_default();
        // After the names of the columns.
        table.lines().skip(1).count()
    });
    let files = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().flatten();
    let links = files.filter_map(|file| fs::read_link(file.path()).ok());
    let handles = links.filter(|link| link.to_string_lossy().starts_with("anon_inode:bpf")).count();
    [processes, sockets.iter().sum(), handles]
}
