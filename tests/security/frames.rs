//! R3: floods of frames that carry neither a request nor much data, before a token is shown and after it. Other clients work meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, RESET, SETTINGS, frame,
    request,
};
use harness::{Bearer, Clients, Daemon, RunHandle, calls, process, requests, v1};
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tonic::transport::Endpoint;

use super::remote::{auditor, plain, until_closed};

/// Connections that flood at the same time.
const FLOODERS: usize = 8;
/// Longer than the daemon needs to end a connection of a flood.
const PATIENCE: Duration = Duration::from_secs(30);
const PRIORITY: u8 = 2;
const WINDOW_UPDATE: u8 = 8;
const UNKNOWN: u8 = 0xfa;
/// A request that goes on, so that its client may send data.
const IMPORT: &str = "/cofferdam.v1.ImageService/ImportImage";

/// A flood: its name, what is sent once, and what is sent again and again.
struct Flood {
    name: &'static str,
    begin: Vec<u8>,
    again: Vec<u8>,
}

/// The floods of a client that shows this token.
fn floods(token: &str) -> Vec<Flood> {
    let open = frame(HEADERS, END_HEADERS, 1, &request(IMPORT, token));
    let lone = |name, again| Flood { name, begin: Vec::new(), again };
    let mut floods = vec![
        lone("PRIORITY", frame(PRIORITY, 0, 3, &[0, 0, 0, 0, 1])),
        lone("PING", frame(PING, 0, 0, &[0; 8])),
        lone("PING acknowledgement", frame(PING, 1, 0, &[0; 8])),
        lone("SETTINGS", frame(SETTINGS, 0, 0, &[])),
        lone("SETTINGS acknowledgement", frame(SETTINGS, 1, 0, &[])),
        lone("WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        lone("unknown", frame(UNKNOWN, 0, 0, &[1, 2, 3])),
        lone("GOAWAY", frame(GOAWAY, 0, 0, &[0; 8])),
    ];
    floods.extend([
        Flood { name: "empty DATA", begin: open.clone(), again: frame(DATA, 0, 1, &[]) },
        Flood { name: "tiny DATA", begin: open.clone(), again: frame(DATA, 0, 1, &[0]) },
        Flood { name: "RST_STREAM", begin: open, again: frame(RESET, 0, 1, &8_u32.to_be_bytes()) },
        Flood {
            name: "CONTINUATION",
            begin: frame(HEADERS, 0, 1, &[]),
            again: frame(CONTINUATION, 0, 1, &[]),
        },
    ]);
    floods
}

/// One connection of a flood. Returns the kind of the last frame that the daemon sent, once it has ended the connection.
async fn flood(daemon: &Daemon, begin: &[u8], again: &[u8]) -> Option<u8> {
    let stream = TcpStream::connect(daemon.address()).await.unwrap();
    let (reader, mut writer) = stream.into_split();
    let many = again.repeat(1_000);
    let greeting = [PREFACE, &frame(SETTINGS, 0, 0, &[]), begin].concat();
    let sends = tokio::spawn(async move {
        if writer.write_all(&greeting).await.is_ok() {
            while writer.write_all(&many).await.is_ok() {}
        }
    });
    let kinds = until_closed(reader).await;
    sends.abort();
    kinds.last().copied()
}

/// Requests without end whose token is not good, each on a stream of its own.
async fn flood_with_requests(daemon: &Daemon) -> Option<u8> {
    let block = request("/cofferdam.v1.RunService/ListRuns", "x");
    let call = |stream: u32| {
        let headers = frame(HEADERS, END_HEADERS, 2 * stream + 1, &block);
        [headers, frame(DATA, END_STREAM, 2 * stream + 1, &[0; 5])].concat()
    };
    let all: Vec<u8> = (0..100_000).flat_map(call).collect();
    flood(daemon, &all, &frame(UNKNOWN, 0, 0, &[])).await
}

/// The times of reads of another client while `goes_on`.
async fn reads(run: &mut RunHandle, goes_on: impl Fn(usize) -> bool) -> Vec<Duration> {
    let mut times = Vec::new();
    while goes_on(times.len()) {
        let begun = Instant::now();
        run.ok(calls::read("a.txt")).await;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    times
}

fn quantiles(times: &[Duration]) -> String {
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    format!("{} reads, p50 {:?}, p99 {:?}", times.len(), at(50), at(99))
}

/// Each connection of each flood is ended, whether its client is known or not, and each read of another client succeeds.
#[tokio::test(flavor = "multi_thread")]
async fn r3_floods_of_frames_end_their_connections_and_others_read_on() {
    let daemon = Arc::new(plain("connections_per_second: 10000, connections_per_address: 1024").await);
    let (_, token) = daemon.token(auditor("flood"), None).await;
    let workspace = daemon.workspace("w", &[("a.txt", "text")]);
    let mut run = daemon.run("open", &workspace).await;
    println!("quiet: {}", quantiles(&reads(&mut run, |count| count < 200).await));
    for (known, token) in [("unknown", "x"), ("known", token.as_str())] {
        for Flood { name, begin, again } in floods(token) {
            // A client is known once a request of it was let in.
            let shown = frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                101,
                &request("/cofferdam.v1.RunService/WatchRuns", token),
            );
            let begin = if known == "known" { [shown, begin].concat() } else { begin };
            let done = AtomicBool::new(false);
            let mut floods = JoinSet::new();
            for _ in 0..FLOODERS {
                let (daemon, begin, again) = (daemon.clone(), begin.clone(), again.clone());
                floods.spawn(async move { flood(&daemon, &begin, &again).await });
            }
            let ended = async {
                let last = floods.join_all().await;
                done.store(true, Ordering::Relaxed);
                last
            };
            let (last, times) =
                tokio::join!(ended, reads(&mut run, |count| count < 20 || !done.load(Ordering::Relaxed)));
            println!("{name} of {known} clients: {}; {last:?}", quantiles(&times));
        }
    }
    let (last, times) = tokio::join!(flood_with_requests(&daemon), reads(&mut run, |count| count < 100));
    println!("requests without a good token: {}; {last:?}", quantiles(&times));
    assert!(daemon.log().contains("too many frames without a request or data"), "{}", daemon.log());
}

/// A client that a budget was exceeded by is told so where it still reads.
#[tokio::test(flavor = "multi_thread")]
async fn r3_a_connection_over_its_budget_is_closed_with_goaway() {
    let daemon = plain("").await;
    let mut stream = TcpStream::connect(daemon.address()).await.unwrap();
    let bytes =
        [PREFACE, &frame(SETTINGS, 0, 0, &[]), &frame(PRIORITY, 0, 3, &[0, 0, 0, 0, 1]).repeat(300)].concat();
    stream.write_all(&bytes).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    let calm = frame(GOAWAY, 0, 0, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0xb]);
    assert!(answer.ends_with(&calm), "{answer:?}");
}

/// Ordinary use, however much of it, is not taken for a flood: many streams, thousands of small requests, PINGs, and a download with
/// many WINDOW_UPDATEs, on one connection.
#[tokio::test(flavor = "multi_thread")]
async fn r3_heavy_use_of_one_connection_is_not_a_flood() {
    const DOWNLOADED: usize = 20 << 20;
    let daemon = plain("").await;
    let (_, secret) = daemon
        .token(v1::Token { name: "user".into(), roles: vec!["operator".into()], ..Default::default() }, None)
        .await;
    let bearer = Bearer::new(&secret);
    let channel = Endpoint::from_shared(daemon.url("http"))
        .unwrap()
        .initial_stream_window_size(16 * 1024)
        .initial_connection_window_size(16 * 1024)
        .http2_keep_alive_interval(Duration::from_millis(20))
        .keep_alive_while_idle(true)
        .connect()
        .await
        .unwrap();
    let mut clients = Clients::on(channel);
    let create = bearer.shows(requests::managed("harness"));
    let run = clients.runs.create_run(create).await.unwrap().into_inner().run.unwrap().run_id;
    let start = |argv: &[&str], stdin| v1::StartProcessRequest {
        run_id: run.clone(),
        process: Some(v1::ProcessRequest { stdin, ..process::command(argv) }),
        ..Default::default()
    };
    let echo =
        clients.processes.start_process(bearer.shows(start(&["cat"], true))).await.unwrap().into_inner();
    let echo = echo.process.unwrap().process_id;
    let mut sent = JoinSet::new();
    for _ in 0..60 {
        let (mut processes, bearer) = (clients.processes.clone(), bearer.clone());
        let list = v1::ListProcessesRequest { run_id: run.clone(), ..Default::default() };
        sent.spawn(async move {
            for _ in 0..50 {
                processes.list_processes(bearer.shows(list.clone())).await.unwrap();
            }
        });
    }
    for offset in 0..2_000 {
        let data = b"x".to_vec();
        let request = v1::WriteStdinRequest {
            run_id: run.clone(),
            process_id: echo.clone(),
            offset,
            data,
            close: false,
        };
        clients.processes.write_stdin(bearer.shows(request)).await.unwrap();
    }
    sent.join_all().await;
    let script = format!("head -c {DOWNLOADED} /dev/zero");
    let started =
        clients.processes.start_process(bearer.shows(start(&["sh", "-c", &script], false))).await.unwrap();
    let process_id = started.into_inner().process.unwrap().process_id;
    let attach =
        v1::AttachProcessRequest { run_id: run.clone(), process_id, follow: true, ..Default::default() };
    let mut output = clients.processes.attach_process(bearer.shows(attach)).await.unwrap().into_inner();
    let mut read = 0;
    while let Some(response) = output.message().await.unwrap() {
        read += response.encoded_len();
    }
    assert!(read >= DOWNLOADED, "{read}");
    assert!(!daemon.log().contains("connections were closed"), "{}", daemon.log());
}
