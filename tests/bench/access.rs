//! How far floods by others hold up a read over TLS, and what a token of an issuer adds to one. A program of its own; `README.md` says what is compared.

#![allow(clippy::unwrap_used, clippy::expect_used)] // what cannot be set up or does not answer ends it

mod floods;
mod verdict;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use floods::{Flood, Flooding, Target};
use harness::{
    Bearer, Certificates, Clients, Daemon, Issuer, RunHandle, Setup, calls, process, requests, v1,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use verdict::{Ratios, Verdict, write};

const USAGE: &str = "tests/bench.sh --lane access [--json FILE] [--check] [--write-baseline] [--debug]";
/// The ratios of each build, as they were once.
const BASELINE: &str = "access.json";
/// Of a flood at the same time.
const FLOODERS: u64 = 64;
/// Before each flood: a hundred of them are slower than the 99th percentile.
const QUIET: usize = 10_000;
/// Of each flood at least.
const READS: usize = 2_000;
/// Reads with each token, to compare them.
const TURNS: usize = 3_000;

/// A client of which each read is measured.
trait Client {
    /// Returns the time that a read takes.
    async fn read(&mut self) -> Duration;

    /// Returns the times of reads in ascending order, for as long as `more` says.
    async fn times(&mut self, mut more: impl FnMut(usize) -> bool) -> Vec<Duration> {
        let mut times = Vec::new();
        while more(times.len()) {
            times.push(self.read().await);
        }
        times.sort_unstable();
        times
    }
}

/// A client that reads over TLS with a token.
struct Reader {
    clients: Clients,
    bearer: Bearer,
    request: v1::CallRequest,
}

impl Reader {
    async fn read_with(&mut self, bearer: &Bearer) -> Duration {
        let begun = Instant::now();
        let answer = self.clients.tools.call(bearer.shows(self.request.clone())).await.unwrap();
        let time = begun.elapsed();
        assert_eq!(answer.into_inner().status(), v1::call_response::Status::Succeeded);
        time
    }
}

impl Client for Reader {
    async fn read(&mut self) -> Duration {
        let bearer = self.bearer.clone();
        self.read_with(&bearer).await
    }
}

/// A client that lists the tools of its run over MCP, by a new connection each time.
struct Lister {
    address: SocketAddr,
    request: String,
}

impl Lister {
    async fn new(address: SocketAddr, token: &str) -> Self {
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n\
             Accept: application/json, text/event-stream\r\nAuthorization: Bearer {token}\r\n"
        );
        let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
        let begins = format!("{head}Content-Length: {}\r\n\r\n{initialize}", initialize.len());
        let answer = Self::send(address, &begins).await;
        let session = answer.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap();
        let list = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
        let length = list.len();
        let request = format!("{head}Mcp-Session-Id: {session}\r\nContent-Length: {length}\r\n\r\n{list}");
        Self { address, request }
    }

    async fn send(to: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(to).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer
    }
}

impl Client for Lister {
    async fn read(&mut self) -> Duration {
        let begun = Instant::now();
        let answer = Self::send(self.address, &self.request).await;
        let time = begun.elapsed();
        assert!(answer.contains("\"tools\""), "{answer}");
        time
    }
}

fn quantile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Reads with an API token and with an issuer's in turns. The second is verified with each request.
async fn compare_tokens(reader: &mut Reader, of_issuer: &Bearer) -> Value {
    let own = reader.bearer.clone();
    let (mut plain, mut signed, mut added) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..TURNS {
        let (first, second) = if turn % 2 == 0 { (&own, of_issuer) } else { (of_issuer, &own) };
        let (first, second) = (reader.read_with(first).await, reader.read_with(second).await);
        let (without, with) = if turn % 2 == 0 { (first, second) } else { (second, first) };
        plain.push(without);
        signed.push(with);
        added.push(with.as_secs_f64() - without.as_secs_f64());
    }
    plain.sort_unstable();
    signed.sort_unstable();
    added.sort_unstable_by(f64::total_cmp);
    let (plain, signed) = (quantile(&plain, 50), quantile(&signed, 50));
    let (added, ratio) = (added[added.len() / 2] * 1e6, signed.as_secs_f64() / plain.as_secs_f64());
    println!(
        "a read with an API token {} µs, with an issuer's {} µs: {added:.0} µs more, {ratio:.2} ×",
        micros(plain),
        micros(signed)
    );
    json!({ "api_token_us": micros(plain), "issuer_us": micros(signed), "added_us": added, "ratio": ratio })
}

fn runtime(is_nice: bool) -> Runtime {
    let nice = move || {
        if is_nice {
            rustix::process::nice(19).unwrap();
        }
    };
    Builder::new_multi_thread().worker_threads(2).on_thread_start(nice).enable_all().build().unwrap()
}

/// What came of one flood, and the ratio of the 99th percentiles.
async fn measure(
    name: &str,
    flood: Flood,
    is_nice: bool,
    reader: &mut impl Client,
    target: &Target,
) -> (Value, f64) {
    let quiet = reader.times(|reads| reads < QUIET).await;
    target.left.store(flood.number(), Ordering::Relaxed);
    target.answered.store(0, Ordering::Relaxed);
    let flooders = runtime(is_nice);
    let begun = Instant::now();
    let own = target.clone();
    let flooding = flooders.spawn(async move {
        let mut all = JoinSet::new();
        for number in 0..FLOODERS {
            all.spawn(own.clone().flood(flood, number));
        }
        all.join_all().await;
        begun.elapsed()
    });
    let under = reader.times(|reads| reads < READS || !flooding.is_finished()).await;
    let took = flooding.await.unwrap();
    flooders.shutdown_background();
    let ratio = |percent| quantile(&under, percent).as_secs_f64() / quantile(&quiet, percent).as_secs_f64();
    let (sent, answered) = (flood.number(), target.answered.load(Ordering::Relaxed));
    let nice = if is_nice { 19 } else { 0 };
    println!(
        "{name:<14} {nice:>4} {sent:>8} {answered:>8} {:>8.1} {:>8} {:>8} {:>8} {:>8} {:>8.1} {:>8.1}",
        took.as_secs_f64(),
        micros(quantile(&quiet, 50)),
        micros(quantile(&quiet, 99)),
        micros(quantile(&under, 50)),
        micros(quantile(&under, 99)),
        ratio(50),
        ratio(99)
    );
    let result = json!({
        "flood": name, "nice": nice, "sent": sent, "answered": answered, "seconds": took.as_secs_f64(),
        "quiet": { "reads": quiet.len(), "p50_us": micros(quantile(&quiet, 50)), "p99_us": micros(quantile(&quiet, 99)) },
        "under": { "reads": under.len(), "p50_us": micros(quantile(&under, 50)), "p99_us": micros(quantile(&under, 99)) },
        "ratio_p50": ratio(50), "ratio_p99": ratio(99),
    });
    (result, ratio(99))
}

fn connector(certificates: &Certificates) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificates.authority()).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.resumption = Resumption::disabled();
    TlsConnector::from(Arc::new(config))
}

/// A run with a token of its own and a process that does not end.
async fn run_with_token(daemon: &Daemon) -> (Flooding, String) {
    let request = v1::CreateRunRequest { issue_token: true, ..requests::managed("harness") };
    let mut clients = daemon.connect().await;
    let created = clients.runs.create_run(request).await.unwrap().into_inner();
    let mut run = RunHandle { run: Box::new(created.run.unwrap()), clients };
    let process = run.start(process::command(&["sleep", "100000"])).await.process_id;
    let token = created.token;
    (Flooding { run: run.id().to_owned(), process, token: token.clone() }, token)
}

/// What becomes of what was measured.
#[derive(Debug, Default)]
struct Args {
    /// Where it is written.
    json: Option<PathBuf>,
    /// It is compared with the baseline.
    check: bool,
    /// It is the baseline from now on.
    write_baseline: bool,
}

impl Args {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut parsed = Self::default();
        while let Some(argument) = args.next() {
            match argument.as_str() {
                "--json" => parsed.json = Some(args.next().ok_or(USAGE)?.into()),
                "--check" => parsed.check = true,
                "--write-baseline" => parsed.write_baseline = true,
                "--lane" => drop(args.next()),
                // cargo says so to every benchmark.
                "--bench" => {}
                _ => return Err(USAGE.to_owned()),
            }
        }
        Ok(parsed)
    }

    fn verdict(&self) -> Verdict {
        match (self.write_baseline, self.check) {
            (true, _) => Verdict::Store,
            (_, true) => Verdict::Check,
            _ => Verdict::Nothing,
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    let certificates = Certificates::make(&[]);
    let issuer = Issuer::default();
    let config = issuer.config_with_file("{ claim: sub, value: reader, roles: [operator] }");
    let config = format!("{config}mcp: {{ http: {{ listen: '127.0.0.1:0' }} }}\n");
    let tcp = certificates.listen("tokens: {}");
    let daemon = Daemon::start_with(Setup { config, tcp, ..Default::default() }).await;
    let workspace = daemon.workspace("w", &[("file", &"x".repeat(4_096))]);
    let run = daemon.run("open", &workspace).await;
    let token = |name: &str, roles: &[&str]| v1::Token {
        name: name.to_owned(),
        roles: roles.iter().map(ToString::to_string).collect(),
        ..Default::default()
    };
    let (_, of_reader) = daemon.token(token("reader", &["operator"]), None).await;
    let (_, of_flood) = daemon.token(token("flood", &["auditor"]), None).await;
    let request = Some(calls::read("file").into());
    let mut reader = Reader {
        clients: Clients::on(certificates.connect(&daemon, None).await.unwrap()),
        bearer: Bearer::new(&of_reader),
        request: v1::CallRequest { run_id: run.id().to_owned(), request, ..Default::default() },
    };
    let mcp = daemon.told("MCP over HTTP: http://").strip_suffix("/mcp").unwrap().parse().unwrap();
    let (flooding, _) = run_with_token(&daemon).await;
    let (_, listing) = run_with_token(&daemon).await;
    let mut lister = Lister::new(mcp, &listing).await;
    let target = Target {
        address: daemon.address(),
        mcp,
        tls: connector(&certificates),
        token: of_flood,
        run: flooding,
        left: Arc::default(),
        answered: Arc::default(),
    };
    reader.times(|reads| reads < READS).await;
    let of_issuer = Bearer::new(&issuer.token("reader", &[], Duration::from_secs(3_600)));
    let tokens = compare_tokens(&mut reader, &of_issuer).await;
    println!(
        "flood          nice     sent answered  seconds  p50 µs   p99 µs    under    under     p50×     p99×"
    );
    let (mut measured, mut ratios) = (Vec::new(), Ratios::new());
    for (name, flood) in Flood::ALL {
        for is_nice in [false, true] {
            let (result, ratio) = if flood.is_of_mcp() {
                measure(name, flood, is_nice, &mut lister, &target).await
            } else {
                measure(name, flood, is_nice, &mut reader, &target).await
            };
            measured.push(result);
            let nice = if is_nice { ", nice" } else { "" };
            ratios.insert(format!("p99 of a read under {name}{nice} / quiet"), ratio);
            // The addresses have their budgets again, and what is half open has been given up.
            tokio::time::sleep(Duration::from_secs(6)).await;
        }
    }
    if let Some(file) = &args.json {
        write(file, &format!("{:#}\n", json!({ "access": measured, "tokens": tokens })));
    }
    args.verdict().give(BASELINE, &ratios, &[])
}
