//! Connections whose TLS is opened, against direct ones and those that stay closed.
//!
//! `caller/tls.py` takes the times, in a run and in a container of the same image that is in the host's network.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use harness::v1::signal_process_request::Signal;
use harness::{Certificates, Daemon, RunHandle, dev_image, docker, process, requests, v1};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{DOWNLOADS, MEBIBYTES, NAME, PIECES, SETTLED, WARM_UP, daemon_in, memory, times};
use crate::args::Args;
use crate::host::Host;
use crate::report::mib;
use crate::sample::Sample;
use crate::stage::INSIDE;
use crate::table::{Most, Row, Table};

const CALLER: &str = include_str!("../caller/tls.py");
/// Most time that the first connection takes more than a direct one.
const MORE: Duration = Duration::from_millis(8);
/// Connections after the first one.
const LATER: &str = "20";
/// Least share of the direct throughput, percent.
const SHARE: f64 = 50.0;
const STREAMS: &str = "500";
/// Most memory of `coffer-egress` with these.
const MEMORY: u64 = 60 << 20;
/// Time between two events of a stream.
const EVERY: Duration = Duration::from_millis(500);
const EVENT: &str = "data: {\"type\":\"ping\"}\n\n";

/// Measures, prints, and checks if that is asked for.
pub(crate) async fn run(args: &Args) -> ExitCode {
    let began = Host::look();
    let rows = Place::make().await.measure(args.rounds).await;
    let columns = ["direct", "opened"];
    Table { lane: "opened", columns, began, ended: Host::look(), rows }.finish(args)
}

/// Runs that reach servers of the host, and a container that does so directly.
struct Place {
    daemon: Daemon,
    workspace: PathBuf,
    direct: Direct,
    /// Ports of the servers for each of [`PIECES`]: of those that are opened, and of the others.
    ports: [[u16; 2]; 2],
}

impl Place {
    async fn make() -> Self {
        let certificates = Certificates::for_host(NAME);
        let mut ports = [[0; 2]; 2];
        for of_rule in &mut ports {
            for (port, piece) in of_rule.iter_mut().zip(PIECES) {
                *port = serve(certificates.acceptor(), piece).await;
            }
        }
        let [opened, closed] = ports;
        let rules = format!(
            "{{ networks: [\"127.0.0.0/8\"], connections_per_minute: 100000, rules: [\
             {{ host: {NAME}, ports: [{}, {}], methods: [GET], decision: allow }}, \
             {{ host: {NAME}, ports: [{}, {}], decision: allow }}] }}",
            opened[0], opened[1], closed[0], closed[1]
        );
        let authority = certificates.authority();
        let environment = vec![("SSL_CERT_FILE", authority.display().to_string())];
        let daemon = daemon_in(environment, &rules, "").await;
        let workspace = daemon.workspace("opened", &[("tls.py", CALLER)]);
        let files = daemon.outside().join("direct");
        std::fs::create_dir(&files).unwrap();
        std::fs::write(files.join("tls.py"), CALLER).unwrap();
        // Readable by the user of the image, as a copy of the file would not be.
        std::fs::write(files.join("ca.pem"), std::fs::read(authority).unwrap()).unwrap();
        let direct = Direct::start(&files.display().to_string()).await;
        Self { daemon, workspace, direct, ports }
    }

    async fn measure(self, rounds: usize) -> Vec<Row> {
        let mut rows = self.connections(rounds).await;
        let mut run = self.run().await;
        for (number, piece) in PIECES.into_iter().enumerate() {
            rows.extend(self.downloads(&mut run, rounds.min(DOWNLOADS), number, piece).await);
        }
        rows.push(self.streams(&mut run).await);
        rows
    }

    async fn run(&self) -> RunHandle {
        let request = v1::CreateRunRequest { image: dev_image(), ..requests::bind("out", &self.workspace) };
        self.daemon.run_on(request).await
    }

    /// Measures the first connection of a run, and some later ones.
    async fn connections(&self, rounds: usize) -> Vec<Row> {
        let port = self.ports[0][0];
        let mut first = [Sample::default(), Sample::default()];
        let mut later = [Sample::default(), Sample::default()];
        for round in 0..WARM_UP + rounds {
            let mut run = self.run().await;
            for (sample, count) in [(&mut first, "1"), (&mut later, LATER)] {
                let direct = self.direct.times("connect", port, count).await;
                let opened = through(&mut run, "connect", port, count).await;
                if round >= WARM_UP {
                    sample[0].extend(direct);
                    sample[1].extend(opened);
                }
            }
            run.stop().await;
        }
        eprintln!("connections: done");
        let [direct, opened] = &first;
        let rows = Row::of_times("first connection, first byte", Some(direct), opened, Most::More(MORE));
        let [direct, opened] = &later;
        let more = Row::of_times("later connections, first byte", Some(direct), opened, Most::Unbounded);
        rows.into_iter().chain(more).collect()
    }

    /// Measures downloads from servers whose writes have so many KiB. The three ways take turns.
    async fn downloads(&self, run: &mut RunHandle, rounds: usize, number: usize, piece: usize) -> [Row; 2] {
        let size = MEBIBYTES.to_string();
        let [opened, closed] = self.ports.map(|ports| ports[number]);
        let mut samples = [Sample::default(), Sample::default(), Sample::default()];
        for round in 0..WARM_UP + rounds {
            for turn in 0..samples.len() {
                let way = (round + turn) % samples.len();
                let times = match way {
                    0 => self.direct.times("download", opened, &size).await,
                    1 => through(run, "download", opened, &size).await,
                    _ => through(run, "download", closed, &size).await,
                };
                if round >= WARM_UP {
                    samples[way].extend(times);
                }
            }
        }
        eprintln!("download, {piece} KiB a write: done");
        let [direct, opened, closed] =
            samples.map(|sample| f64::from(MEBIBYTES) / sample.median().as_secs_f64());
        let row = |what: &str, ours: f64, least: Option<f64>| {
            let share = 100.0 * ours / direct;
            Row {
                what: format!("download of {MEBIBYTES} MiB, {piece} KiB a write{what}, p50"),
                other: format!("{direct:.0} MiB/s"),
                ours: format!("{ours:.0} MiB/s"),
                difference: format!("{share:.0} %"),
                target: least.map(|least| format!("≥ {least:.0} %")).unwrap_or_default(),
                met: least.map(|least| share >= least),
            }
        };
        [row("", opened, Some(SHARE)), row(", not opened", closed, None)]
    }

    /// Measures the memory with many streams of events. `other` is the memory before.
    async fn streams(&self, run: &mut RunHandle) -> Row {
        let before = memory(&self.daemon);
        let (script, port) = (format!("{INSIDE}/tls.py"), self.ports[0][0].to_string());
        let held = process::command(&["python3", &script, "streams", NAME, &port, STREAMS]);
        let id = run.start(held).await.process_id;
        run.until(&id, "held").await;
        tokio::time::sleep(SETTLED).await;
        let after = memory(&self.daemon);
        run.send(&id, Signal::Kill).await.unwrap();
        run.waited(&id).await;
        eprintln!("streams of events: done");
        Row {
            what: format!("memory, {STREAMS} opened streams of events"),
            other: mib(before),
            ours: mib(after),
            difference: format!("+{}", mib(after.saturating_sub(before))),
            target: format!("≤ {}", mib(MEMORY)),
            met: Some(after <= MEMORY),
        }
    }
}

/// Runs the program in a run.
async fn through(run: &mut RunHandle, verb: &str, port: u16, number: &str) -> Sample {
    let (script, port) = (format!("{INSIDE}/tls.py"), port.to_string());
    let ran = run.exec(&["python3", &script, verb, NAME, &port, number]).await;
    assert_eq!(ran.exit_code, Some(0), "{verb}: {ran:?}");
    times(&ran.stdout)
}

/// A container in the host's network. It ends with the value.
struct Direct(String);

impl Direct {
    async fn start(files: &str) -> Self {
        let mount = format!("{files}:/direct:ro");
        let mut start = Command::from(docker());
        start.args(["run", "--detach", "--rm", "--network", "host", "--volume", &mount]);
        start.args(["--env", "SSL_CERT_FILE=/direct/ca.pem", &dev_image(), "sleep", "infinity"]);
        Self(said(start).await.trim().to_owned())
    }

    /// Runs the program in it.
    async fn times(&self, verb: &str, port: u16, number: &str) -> Sample {
        let mut exec = Command::from(docker());
        exec.args(["exec", &self.0, "python3", "/direct/tls.py", verb, "127.0.0.1"]);
        exec.args([port.to_string().as_str(), number]);
        times(&said(exec).await)
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        let _ = docker().args(["rm", "--force", &self.0]).output();
    }
}

/// Runs a command that has to succeed, and returns its output.
async fn said(mut command: Command) -> String {
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Starts a server over TLS whose writes have so many KiB, and returns its port.
async fn serve(acceptor: TlsAcceptor, piece_kib: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    // A client leaves when it has what it wanted.
                    let _ = answer(stream, piece_kib << 10).await;
                }
            });
        }
    });
    port
}

/// Answers a request as its path says: with a byte, with a stream of events, or with so many MiB.
async fn answer(mut stream: TlsStream<TcpStream>, piece: usize) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
    match path {
        "byte" => stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").await?,
        "events" => {
            let mut text = format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n{EVENT}");
            loop {
                stream.write_all(text.as_bytes()).await?;
                stream.flush().await?;
                EVENT.clone_into(&mut text);
                tokio::time::sleep(EVERY).await;
            }
        }
        mebibytes => {
            let bytes = mebibytes.parse::<usize>().unwrap() << 20;
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
            stream.write_all(head.as_bytes()).await?;
            let part = vec![b'\n'; piece];
            for _ in 0..bytes / piece {
                stream.write_all(&part).await?;
            }
        }
    }
    stream.flush().await?;
    // Until the client has left.
    while stream.read_buf(&mut Vec::new()).await? > 0 {}
    Ok(())
}
