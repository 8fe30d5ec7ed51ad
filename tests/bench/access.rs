//! How far floods by others hold up a read over TLS, and what a token of an issuer adds to one. A program of its own; `README.md` says what is compared.

#![allow(clippy::unwrap_used, clippy::expect_used)] // what cannot be set up or does not answer ends it

mod verdict;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use harness::frames::{END_HEADERS, HEADERS, PREFACE, RESET, SETTINGS, client_hello, frame, request};
use harness::{Bearer, Certificates, Clients, Daemon, Issuer, Setup, calls, v1};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use verdict::{Ratios, Verdict, write};

const USAGE: &str = "tests/bench.sh --lane access [--json FILE] [--check] [--write-baseline] [--debug]";
/// The ratios of each build, as they were once.
const BASELINE: &str = "access.json";
/// Where floods come from: 127.0.1.1 and on.
const ADDRESSES: u64 = 16;
/// Of a flood at the same time.
const FLOODERS: u64 = 64;
/// Before each flood: a hundred of them are slower than the 99th percentile.
const QUIET: usize = 10_000;
/// Of each flood at least.
const READS: usize = 2_000;
/// Reads with each token, to compare them.
const TURNS: usize = 3_000;
/// Streams that one connection opens and resets.
const STREAMS: u64 = 1_000;
/// A connection that the daemon does not end.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy)]
enum Flood {
    Handshakes,
    HalfOpen,
    Resets,
}

impl Flood {
    const ALL: [(&'static str, Self); 3] =
        [("handshakes", Self::Handshakes), ("half-open", Self::HalfOpen), ("rapid resets", Self::Resets)];

    fn number(self) -> u64 {
        let long = std::env::var_os("COFFERDAM_LONG").is_some();
        match self {
            Self::Handshakes | Self::HalfOpen => {
                if long {
                    200_000
                } else {
                    2_000
                }
            }
            Self::Resets => {
                if long {
                    10_000
                } else {
                    2_000
                }
            }
        }
    }
}

/// Whom floods are sent to.
#[derive(Clone)]
struct Target {
    address: SocketAddr,
    tls: TlsConnector,
    token: String,
    left: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
}

impl Target {
    /// Sends its part of a flood, from one address after the other.
    async fn flood(self, flood: Flood, first: u64) {
        let step = if matches!(flood, Flood::Resets) { STREAMS } else { 1 };
        let take = |left: u64| left.checked_sub(step);
        for number in first.. {
            if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
                return;
            }
            let one = async {
                let stream = self.connect(number % ADDRESSES).await?;
                match flood {
                    Flood::Handshakes => self.shake_hands(stream).await.map(drop),
                    Flood::HalfOpen => half_open(stream).await,
                    Flood::Resets => self.reset(stream).await,
                }
            };
            if let Ok(Some(())) = tokio::time::timeout(PATIENCE, one).await {
                self.answered.fetch_add(step, Ordering::Relaxed);
            }
        }
    }

    async fn connect(&self, from: u64) -> Option<TcpStream> {
        let from = Ipv4Addr::new(127, 0, 1, u8::try_from(from).unwrap_or(0) + 1);
        let socket = TcpSocket::new_v4().ok()?;
        // Half a million connections in TIME_WAIT leave no ports.
        socket.set_zero_linger().ok()?;
        socket.bind((from, 0).into()).ok()?;
        socket.connect(self.address).await.ok()
    }

    async fn shake_hands(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        self.tls.connect(ServerName::try_from("localhost").unwrap(), stream).await.ok()
    }

    /// Opens streams and resets them at once, until the daemon has enough of it.
    async fn reset(&self, stream: TcpStream) -> Option<()> {
        let mut stream = self.shake_hands(stream).await?;
        let block = request("/cofferdam.v1.RunService/WatchRuns", &self.token);
        let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
        for number in 0..u32::try_from(STREAMS).unwrap_or(0) {
            bytes.extend(frame(HEADERS, END_HEADERS | 1, 2 * number + 1, &block));
            bytes.extend(frame(RESET, 0, 2 * number + 1, &8_u32.to_be_bytes()));
        }
        let _ = stream.write_all(&bytes).await;
        let mut answer = [0; 4_096];
        while stream.read(&mut answer).await.is_ok_and(|count| count > 0) {}
        Some(())
    }
}

/// A ClientHello, the ServerHello, and no more.
async fn half_open(mut stream: TcpStream) -> Option<()> {
    stream.write_all(&client_hello()).await.ok()?;
    stream.read_exact(&mut [0; 64]).await.ok().map(drop)
}

/// A client that reads over TLS with a token.
struct Reader {
    clients: Clients,
    bearer: Bearer,
    request: v1::CallRequest,
}

impl Reader {
    /// Times of reads, for as long as `more` says.
    async fn times(&mut self, mut more: impl FnMut(usize) -> bool) -> Vec<Duration> {
        let mut times = Vec::new();
        let bearer = self.bearer.clone();
        while more(times.len()) {
            times.push(self.read(&bearer).await);
        }
        times.sort_unstable();
        times
    }

    /// How long a read takes with this token.
    async fn read(&mut self, bearer: &Bearer) -> Duration {
        let begun = Instant::now();
        let answer = self.clients.tools.call(bearer.shows(self.request.clone())).await.unwrap();
        let time = begun.elapsed();
        assert_eq!(answer.into_inner().status(), v1::call_response::Status::Succeeded);
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
        let (first, second) = (reader.read(first).await, reader.read(second).await);
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
    reader: &mut Reader,
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
    let target = Target {
        address: daemon.address(),
        tls: connector(&certificates),
        token: of_flood,
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
            let (result, ratio) = measure(name, flood, is_nice, &mut reader, &target).await;
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
