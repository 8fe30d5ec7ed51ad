//! R1 to R3: clients over TCP that flood, delay, or show invalid credentials. The daemon serves all others meanwhile.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use harness::frames::{
    CONTINUATION, END_HEADERS, GOAWAY, HEADERS, PREFACE, RESET, SETTINGS, client_hello, frame, request, text,
};
use harness::{
    Bearer, Certificates, Clients, Daemon, RunHandle, Setup, calls, process, reason, requests, v1,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;
use wire::v1::token_service_client::TokenServiceClient;

use crate::inside::contents;

/// Longer than what a client who does not get on is given.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn auditor(name: &str) -> v1::Token {
    v1::Token { name: name.into(), roles: vec!["auditor".into()], ..Default::default() }
}

/// A daemon that listens in the clear on this host, so that a test can write frames of its own.
pub(crate) async fn plain(keys: &str) -> Daemon {
    let tcp = format!("address: '127.0.0.1:0', plaintext: true, tokens: {{}}, {keys}");
    Daemon::start_with(Setup { tcp, ..Default::default() }).await
}

const WATCH: &str = "/cofferdam.v1.RunService/WatchRuns";

/// A connection that has greeted.
async fn greeted(daemon: &Daemon) -> TcpStream {
    let mut stream = TcpStream::connect(daemon.address()).await.unwrap();
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await.unwrap();
    stream
}

/// Reads frames until the daemon ends the connection; the kinds of those that came.
pub(crate) async fn until_closed(mut stream: impl AsyncRead + Unpin) -> Vec<u8> {
    let read = async {
        let (mut kinds, mut header) = (Vec::new(), [0; 9]);
        while stream.read_exact(&mut header).await.is_ok() {
            kinds.push(header[3]);
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
            let mut payload = vec![0; length as usize];
            if stream.read_exact(&mut payload).await.is_err() {
                break;
            }
        }
        kinds
    };
    tokio::time::timeout(PATIENCE, read).await.expect("the connection stays open")
}

/// Resident, bytes.
fn memory(daemon: &Daemon) -> u64 {
    harness::memory(daemon.pid(), "VmRSS") << 10
}

/// Reads a file as often as `more` wants it. Each read succeeds; how many there were. `tests/bench.sh --lane access` has the times.
async fn reads(run: &mut RunHandle, mut more: impl FnMut(usize) -> bool) -> usize {
    let mut reads = 0;
    while more(reads) {
        run.ok(calls::read("a.txt")).await;
        reads += 1;
    }
    reads
}

#[tokio::test(flavor = "multi_thread")]
async fn r2_stalled_clients_are_disconnected() {
    let certificates = Certificates::make(&[]);
    let tcp = certificates.listen("tokens: {}, handshake_timeout: 1s");
    let tls = Daemon::start_with(Setup { tcp, ..Default::default() }).await;
    let plain = plain("").await;
    let closed = async |address: SocketAddr, said: &[u8]| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(said).await.unwrap();
        let begun = Instant::now();
        until_closed(stream).await;
        begun.elapsed()
    };
    // Not a word of TLS, half of a client's first record, and what is no TLS.
    for said in [&b""[..], &[0x16, 3, 1, 2, 0, 1], b"GET / HTTP/1.1\r\n"] {
        assert!(closed(tls.address(), said).await < Duration::from_secs(5), "{said:?}");
    }
    // No greeting, half a greeting, a greeting and no request, and a request that is refused.
    let refused =
        [PREFACE, &frame(SETTINGS, 0, 0, &[]), &frame(HEADERS, END_HEADERS | 1, 1, &request(WATCH, "x"))]
            .concat();
    let [nothing, half, greeting, refused] =
        [&b""[..], &PREFACE[..20], PREFACE, &refused].map(|said| closed(plain.address(), said));
    let (nothing, half, greeting, refused, drip) =
        tokio::join!(nothing, half, greeting, refused, dripping(&plain));
    let slowest = [nothing, half, greeting, refused, drip].into_iter().max().unwrap();
    assert!(slowest < Duration::from_secs(15), "{slowest:?}");
}

/// How long a connection stays open whose bytes drip.
async fn dripping(daemon: &Daemon) -> Duration {
    let mut drip = greeted(daemon).await;
    let begun = Instant::now();
    let (mut reader, mut writer) = drip.split();
    let drips = async {
        let ping = frame(6, 0, 0, &[0; 8]);
        for byte in ping.iter().cycle() {
            if writer.write_all(&[*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let reads = async {
        let mut bytes = [0; 1024];
        while reader.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
    };
    let ended = tokio::time::timeout(PATIENCE, async {
        tokio::select! { () = drips => {}, () = reads => {} }
    });
    ended.await.expect("the connection stays open");
    begun.elapsed()
}

/// Whether the daemon keeps a connection: it greets, too.
async fn is_kept(stream: &mut TcpStream) -> bool {
    let _ = stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await;
    stream.read_exact(&mut [0; 9]).await.is_ok()
}

/// While one address has all of its connections and opens more, another one works. A new connection
/// evicts the oldest one without a proven identity, and none that has shown a valid token. A closed connection frees its slot.
#[tokio::test(flavor = "multi_thread")]
async fn r2_connections_are_bounded_for_each_address() {
    const MOST: usize = 8;
    let daemon = plain("connections_per_address: 8, connections_per_second: 10000").await;
    let (_, secret) = daemon.token(auditor("a"), None).await;
    let connect = async |from: [u8; 4]| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((IpAddr::from(from), 0).into()).unwrap();
        socket.connect(daemon.address()).await.unwrap()
    };
    let good = async || {
        let mut audit = Clients::on(Endpoint::from_shared(daemon.url("http")).unwrap().connect_lazy()).audit;
        audit.verify_log(Bearer::new(&secret).shows(v1::VerifyLogRequest {})).await.map(|_| audit)
    };
    let mut silent = Vec::new();
    for _ in 0..100 {
        let mut stream = connect([127, 0, 0, 1]).await;
        assert!(is_kept(&mut stream).await);
        silent.push(stream);
    }
    let mut proven = Vec::new();
    for _ in 0..MOST {
        proven.push(good().await.unwrap());
    }
    for stream in silent {
        until_closed(stream).await;
    }
    for _ in 0..100 {
        assert!(!is_kept(&mut connect([127, 0, 0, 1]).await).await);
    }
    assert!(is_kept(&mut connect([127, 0, 0, 2]).await).await);
    for audit in &mut proven {
        audit.verify_log(Bearer::new(&secret).shows(v1::VerifyLogRequest {})).await.unwrap();
    }
    drop(proven);
    let again = async {
        while good().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("no place came back");
    assert!(daemon.log().contains("connections were refused"), "{}", daemon.log());
}

/// What was refused for a limit, and the limit's key.
fn limit(refused: &Status) -> (Code, String, String) {
    let info = refused.get_details_error_info().unwrap();
    assert!(refused.message().ends_with(&info.metadata["hint"]), "{refused}");
    (refused.code(), info.reason, info.metadata["limit"].clone())
}

fn beyond(key: &str) -> (Code, String, String) {
    (Code::ResourceExhausted, "OVERLOADED".to_owned(), key.to_owned())
}

/// Each certificate's subject and each token's holder has so many connections, wherever they come from. One beyond them is told so.
#[tokio::test(flavor = "multi_thread")]
async fn r2_connections_are_bounded_for_each_principal_by_certificate_or_token() {
    let certificates = Certificates::make(&["ci", "other"]);
    let config =
        "access: [{ certificate: ci, roles: [auditor] }, { certificate: other, roles: [auditor] }]\n";
    let tcp = certificates.listen("tokens: {}, connections_per_principal: 2");
    let daemon = Daemon::start_with(Setup { config: config.into(), tcp, ..Default::default() }).await;
    let (_, a) = daemon.token(auditor("a"), None).await;
    let (_, b) = daemon.token(auditor("b"), None).await;
    let connect = async |client, from: [u8; 4]| {
        let endpoint = certificates.endpoint(&daemon, client).unwrap().local_address(Some(from.into()));
        Clients::on(endpoint.connect().await.unwrap())
    };
    let verify = async |clients: &mut Clients, token: Option<&str>| {
        let request = v1::VerifyLogRequest {};
        let request = match token {
            Some(token) => Bearer::new(token).shows(request),
            None => Request::new(request),
        };
        clients.audit.verify_log(request).await.map(drop)
    };
    let full = beyond("connections_per_principal");

    // By certificate, from two addresses: the place is taken by the handshake.
    let mut first = connect(Some("ci"), [127, 0, 0, 1]).await;
    let mut second = connect(Some("ci"), [127, 0, 0, 2]).await;
    verify(&mut first, None).await.unwrap();
    verify(&mut second, None).await.unwrap();
    let mut third = connect(Some("ci"), [127, 0, 0, 2]).await;
    assert_eq!(limit(&verify(&mut third, None).await.unwrap_err()), full);
    verify(&mut connect(Some("other"), [127, 0, 0, 1]).await, None).await.unwrap();
    // By token, also over a connection whose certificate has no place.
    verify(&mut third, Some(&a)).await.unwrap();
    let mut fourth = connect(None, [127, 0, 0, 1]).await;
    verify(&mut fourth, Some(&a)).await.unwrap();
    let mut fifth = connect(None, [127, 0, 0, 1]).await;
    assert_eq!(limit(&verify(&mut fifth, Some(&a)).await.unwrap_err()), full);
    verify(&mut fifth, Some(&b)).await.unwrap();
    // A place comes back with its connection. The daemon hears of the end on that one.
    drop((second, fourth));
    let again = async {
        while verify(&mut connect(Some("ci"), [127, 0, 0, 1]).await, None).await.is_err()
            || verify(&mut fifth, Some(&a)).await.is_err()
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("no place came back");
    verify(&mut first, None).await.unwrap();
    // By the Unix socket the same user has connections of another listener, bounded in all.
    let mut local = Vec::new();
    for _ in 0..3 {
        let mut clients = daemon.connect().await;
        verify(&mut clients, None).await.unwrap();
        local.push(clients);
    }
}

/// From all principals, and by how many connections. Another address has its own.
#[tokio::test(flavor = "multi_thread")]
async fn r2_requests_are_bounded_for_each_address() {
    let daemon = plain("streams_per_address: 3, streams_per_principal: 2").await;
    let (_, a) = daemon.token(auditor("a"), None).await;
    let (_, b) = daemon.token(auditor("b"), None).await;
    let watch = async |from: [u8; 4], token: &str| {
        let endpoint = Endpoint::from_shared(daemon.url("http")).unwrap().local_address(Some(from.into()));
        let mut runs = Clients::on(endpoint.connect().await.unwrap()).runs;
        runs.watch_runs(Bearer::new(token).shows(v1::WatchRunsRequest::default())).await
    };
    let one = [127, 0, 0, 1];
    let mut open = vec![watch(one, &a).await.unwrap(), watch(one, &a).await.unwrap()];
    assert_eq!(limit(&watch([127, 0, 0, 2], &a).await.unwrap_err()), beyond("streams_per_principal"));
    open.push(watch(one, &b).await.unwrap());
    assert_eq!(limit(&watch(one, &b).await.unwrap_err()), beyond("streams_per_address"));
    open.push(watch([127, 0, 0, 2], &b).await.unwrap());
    open.remove(0);
    let again = async {
        while watch(one, &a).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("no place came back");
}

/// Owner of runs over TCP, by an API token.
struct Owner {
    clients: Clients,
    bearer: Bearer,
}

impl Owner {
    async fn new(daemon: &Daemon) -> Self {
        let token = v1::Token { name: "o".into(), roles: vec!["orchestrator".into()], ..Default::default() };
        let bearer = Bearer::new(&daemon.token(token, None).await.1);
        Self { clients: over_tcp(daemon), bearer }
    }

    /// Makes a run with a lease and a token. Returns its id and that token.
    async fn create(&mut self) -> (String, Bearer) {
        let lease = Some(wire::duration(Duration::from_secs(300)));
        let request = v1::CreateRunRequest { issue_token: true, lease, ..requests::managed("harness") };
        let made = self.clients.runs.create_run(self.bearer.shows(request)).await.unwrap().into_inner();
        (made.run.unwrap().run_id, Bearer::new(&made.token))
    }

    /// Lists, renews and stops. Returns the time that it takes.
    async fn steer(&mut self, kept: &str, stopped: &str) -> Duration {
        let (runs, bearer, begun) = (&mut self.clients.runs, &self.bearer, Instant::now());
        let list = v1::ListRunsRequest::default();
        assert!(!runs.list_runs(bearer.shows(list)).await.unwrap().into_inner().runs.is_empty());
        let renew = v1::KeepAliveRunRequest { run_id: kept.to_owned() };
        runs.keep_alive_run(bearer.shows(renew)).await.unwrap();
        runs.stop_run(bearer.shows(v1::StopRunRequest { run_id: stopped.to_owned() })).await.unwrap();
        begun.elapsed()
    }
}

/// Each has its connection.
fn over_tcp(daemon: &Daemon) -> Clients {
    Clients::on(Endpoint::from_shared(daemon.url("http")).unwrap().connect_lazy())
}

/// By eight connections from its owner's own address, and by all of its owner's other runs. Each request that waits is counted for the
/// token that it shows.
#[tokio::test(flavor = "multi_thread")]
async fn r2_the_tokens_of_runs_use_no_share_of_their_owner() {
    let daemon = plain("connections_per_second: 10000").await;
    let mut owner = Owner::new(&daemon).await;
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(owner.create().await);
    }
    let control = owner.steer(&runs[0].0, &runs[3].0).await;
    let (run_id, token) = runs[0].clone();
    let start = v1::StartProcessRequest {
        run_id: run_id.clone(),
        process: Some(process::command(&["sleep", "600"])),
        ..Default::default()
    };
    let started = owner.clients.processes.start_process(token.shows(start)).await.unwrap().into_inner();
    let process_id = started.process.unwrap().process_id;
    let wait = v1::WaitProcessRequest { run_id: run_id.clone(), process_id, timeout: None };
    let mut waits = JoinSet::new();
    for _ in 0..8 {
        let clients = over_tcp(&daemon);
        for _ in 0..50 {
            let (mut processes, request) = (clients.processes.clone(), token.shows(wait.clone()));
            waits.spawn(async move { processes.wait_process(request).await.map(drop) });
        }
    }
    let mut refused = 0;
    let most_are = async {
        while let Some(waited) = waits.join_next().await {
            assert_eq!(limit(&waited.unwrap().unwrap_err()), beyond("streams_per_principal"));
            refused += 1;
            // An eighth of 256 is its share, of which an eighth is kept.
            if refused == 400 - 28 {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, most_are).await.expect("it waits more often than it may");
    // While it waits, it may still list its processes, and another run's token works.
    let list = v1::ListProcessesRequest { run_id, tag: String::new() };
    owner.clients.processes.list_processes(token.shows(list)).await.unwrap();
    let other = v1::ListProcessesRequest { run_id: runs[1].0.clone(), tag: String::new() };
    owner.clients.processes.list_processes(runs[1].1.shows(other)).await.unwrap();
    let under = owner.steer(&runs[1].0, &runs[2].0).await;
    assert!(under < control * 20 + Duration::from_secs(5), "{under:?}, and {control:?} before");
    // Each wait goes on until the owner stops the run.
    assert!(waits.try_join_next().is_none());
    let third = owner.steer(&runs[1].0, &runs[0].0).await;
    assert!(third < control * 20 + Duration::from_secs(5), "{third:?}, and {control:?} before");
    let all = async { while waits.join_next().await.is_some() {} };
    tokio::time::timeout(PATIENCE, all).await.expect("a request outlives its run");
}

/// Watchers of an owner fill its share but for the part that steering keeps.
#[tokio::test(flavor = "multi_thread")]
async fn r2_an_owner_that_waits_as_often_as_it_may_still_stops_its_runs() {
    let daemon = plain("streams_per_principal: 16").await;
    let mut owner = Owner::new(&daemon).await;
    let (kept, _) = owner.create().await;
    let (stopped, _) = owner.create().await;
    let mut watchers = Vec::new();
    let full = loop {
        let watch = owner.bearer.shows(v1::WatchRunsRequest::default());
        match owner.clients.runs.watch_runs(watch).await {
            Ok(watcher) => watchers.push(watcher),
            Err(refused) => break refused,
        }
    };
    assert_eq!((watchers.len(), limit(&full)), (14, beyond("streams_per_principal")));
    owner.steer(&kept, &stopped).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r2_the_connections_of_a_run_s_token_are_few_and_not_its_owner_s() {
    let daemon = plain("connections_per_principal: 16").await;
    let mut owner = Owner::new(&daemon).await;
    let (run_id, token) = owner.create().await;
    let list = v1::ListProcessesRequest { run_id: run_id.clone(), tag: String::new() };
    let mut open = Vec::new();
    let full = loop {
        let mut clients = over_tcp(&daemon);
        match clients.processes.list_processes(token.shows(list.clone())).await {
            Ok(_) => open.push(clients),
            Err(refused) => break refused,
        }
    };
    assert_eq!((open.len(), limit(&full)), (2, beyond("connections_per_principal")));
    for _ in 0..8 {
        let mut another = Owner { clients: over_tcp(&daemon), bearer: owner.bearer.clone() };
        let list = owner.bearer.shows(v1::ListRunsRequest::default());
        another.clients.runs.list_runs(list).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r1_resets_streams_and_headers_without_end_close_the_connection() {
    let daemon = plain("").await;
    let workspace = daemon.workspace("w", &[("a.txt", "here\n")]);
    let mut run = daemon.run("open", &workspace).await;
    let (_, secret) = daemon.token(auditor("a"), None).await;
    let opening = |stream: u32| frame(HEADERS, END_HEADERS | 1, stream, &request(WATCH, &secret));
    reads(&mut run, |reads| reads < 200).await;
    let before = memory(&daemon);

    // Streams that are opened and reset at once, 10,000 of them on ten connections (CVE-2023-44487).
    let mut resets = Vec::new();
    for number in 0..1_000 {
        resets.extend(opening(2 * number + 1));
        resets.extend(frame(RESET, 0, 2 * number + 1, &8_u32.to_be_bytes()));
    }
    let ended = AtomicUsize::new(0);
    let attack = async {
        while ended.load(Ordering::Relaxed) < 10 {
            let mut stream = greeted(&daemon).await;
            // The daemon may end it before it has all.
            let _ = stream.write_all(&resets).await;
            assert!(until_closed(stream).await.contains(&GOAWAY));
            ended.fetch_add(1, Ordering::Relaxed);
        }
    };
    let reading = reads(&mut run, |reads| reads < 100 || ended.load(Ordering::Relaxed) < 10);
    tokio::join!(attack, reading);

    // More streams than a connection may have: those beyond are refused.
    let mut stream = greeted(&daemon).await;
    let many: Vec<u8> = (0..200).flat_map(|number| opening(2 * number + 1)).collect();
    stream.write_all(&many).await.unwrap();
    let mut refused = 0;
    let read = async {
        let mut header = [0; 9];
        while refused < 100 {
            stream.read_exact(&mut header).await.unwrap();
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
            let mut payload = vec![0; length as usize];
            stream.read_exact(&mut payload).await.unwrap();
            // REFUSED_STREAM
            refused += u32::from(header[3] == RESET && payload == 7_u32.to_be_bytes());
            if header[3] == GOAWAY {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, read).await.expect("streams without end are taken");

    // A header block that never ends (CVE-2024-27316).
    let mut stream = greeted(&daemon).await;
    let literal = [&[0x00][..], &text(b"x-more"), &text(&[b'a'; 100])].concat();
    let piece = literal.repeat(16_000 / literal.len());
    let _ = stream.write_all(&frame(HEADERS, 0, 1, &request(WATCH, &secret))).await;
    for _ in 0..1_000 {
        if stream.write_all(&frame(CONTINUATION, 0, 1, &piece)).await.is_err() {
            break;
        }
    }
    until_closed(stream).await;

    let grown = memory(&daemon).saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
    run.ok(calls::read("a.txt")).await;
}

/// Clients that flood at the same time: one alone may be slower than it is allowed to be.
const FLOODERS: u32 = 8;

/// Begins so many handshakes, one after the other; how many were answered.
async fn shakes_hands(address: SocketAddr, times: u32) -> u32 {
    // A client's first record, as openssl sends it, so that the daemon has to answer.
    let hello = client_hello();
    let mut answered = 0;
    for _ in 0..times {
        let Ok(mut stream) = TcpStream::connect(address).await else { continue };
        let _ = stream.write_all(&hello).await;
        let mut record = [0; 64];
        let heard = stream.read(&mut record).await.unwrap_or(0);
        // Its ServerHello.
        answered += u32::from(heard == 64 && record[0] == 0x16 && record[5] == 2);
    }
    answered
}

/// 2,000 handshakes, and 200,000 with `COFFERDAM_LONG`, while another client reads.
#[tokio::test(flavor = "multi_thread")]
async fn r1_a_flood_of_handshakes_is_refused_and_every_read_succeeds() {
    let certificates = Certificates::make(&[]);
    let tcp = certificates.listen("tokens: {}");
    let daemon = Daemon::start_with(Setup { tcp, ..Default::default() }).await;
    let workspace = daemon.workspace("w", &[("a.txt", "here\n")]);
    let mut run = daemon.run("open", &workspace).await;
    reads(&mut run, |reads| reads < 200).await;
    let before = memory(&daemon);
    let handshakes = effort::cases(2_000, 200_000);
    let address = daemon.address();
    let mut clients = JoinSet::new();
    for _ in 0..FLOODERS {
        clients.spawn(shakes_hands(address, handshakes / FLOODERS));
    }
    let flood = tokio::spawn(async move { clients.join_all().await.into_iter().sum::<u32>() });
    let count = reads(&mut run, |reads| reads < 100 || !flood.is_finished()).await;
    let answered = flood.await.unwrap();
    let grown = memory(&daemon).saturating_sub(before);
    eprintln!("{count} reads while {answered} of {handshakes} handshakes were answered, {grown} bytes more");
    // Those over the address's budget were ended without an answer, and counted.
    assert!(answered >= 50 && answered < handshakes, "{answered} answered");
    assert!(daemon.log().contains("connections were refused"), "{}", daemon.log());
    assert!(grown < 128 << 20, "{grown} bytes more");
}

#[tokio::test(flavor = "multi_thread")]
async fn r3_ended_and_foreign_tokens_are_refused_and_recorded() {
    let daemon = plain("").await;
    let channel =
        tonic::transport::Channel::from_shared(daemon.url("http")).unwrap().connect().await.unwrap();
    let mut remote = Clients::on(channel);
    let (revoked, revoked_secret) = daemon.token(auditor("revoked"), None).await;
    let (_, expired_secret) = daemon.token(auditor("expired"), Some(Duration::from_secs(1))).await;
    let elsewhere = v1::Token { source_networks: vec!["10.0.0.0/8".into()], ..auditor("elsewhere") };
    let (_, elsewhere_secret) = daemon.token(elsewhere, None).await;
    let (_, good) = daemon.token(auditor("good"), None).await;
    let mut tokens = TokenServiceClient::new(daemon.connect().await.channel);
    tokens.revoke_token(v1::RevokeTokenRequest { token_id: revoked.token_id }).await.unwrap();
    let verify = |token: &str| Bearer::new(token).shows(v1::VerifyLogRequest {});
    let expiry = async {
        while remote.audit.verify_log(verify(&expired_secret)).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, expiry).await.expect("it does not expire");
    remote.audit.verify_log(verify(&good)).await.unwrap();
    // One letter of the secret is another, in each place of it.
    let at = good.rfind('_').unwrap() + 1;
    for place in [0, at - 2, at, at + 20, good.len() - 1] {
        let mut forged = good.clone().into_bytes();
        forged[place] = if forged[place] == b'0' { b'1' } else { b'0' };
        let refused = remote.audit.verify_log(verify(&String::from_utf8(forged).unwrap())).await.unwrap_err();
        assert_eq!(
            (refused.code(), reason(&refused).as_str()),
            (Code::PermissionDenied, "PERMISSION_DENIED")
        );
        assert!(!refused.message().contains(&good[at..]), "{refused}");
    }
    for (secret, says) in [
        (&revoked_secret, "was revoked"),
        (&expired_secret, "has expired"),
        (&elsewhere_secret, "from this address"),
    ] {
        let refused = remote.audit.verify_log(verify(secret)).await.unwrap_err();
        assert!(refused.message().contains(says), "{refused}");
    }
    // Two that are shown are refused, in either order.
    for (first, second) in [(&good, "cfa_x"), (&"cfa_x".to_owned(), good.as_str())] {
        let mut request = verify(first);
        let second = format!("Bearer {second}").parse::<MetadataValue<Ascii>>().unwrap();
        request.metadata_mut().append("authorization", second);
        let refused = remote.audit.verify_log(request).await.unwrap_err();
        assert!(refused.message().contains("several authorization headers"), "{refused}");
    }
    // A flood of guesses is counted, and not written.
    for _ in 0..200 {
        remote.audit.verify_log(verify("cfa_x")).await.unwrap_err();
    }
    let mut own = daemon.connect().await;
    let events = own.events("", "escalation_attempt").await;
    let attempts: Vec<_> = events
        .iter()
        .map(|event| harness::record(event)["details"]["attempt"].as_str().unwrap().to_owned())
        .collect();
    for attempt in ["bad_token", "revoked_token", "expired_token", "token_elsewhere"] {
        assert!(attempts.iter().any(|one| one == attempt), "{attempt}: {attempts:?}");
    }
    assert!(attempts.len() <= 2 * 30, "{} records", attempts.len());
}

/// The token itself is told once. What is kept of it is its hash, in the store alone.
#[tokio::test(flavor = "multi_thread")]
async fn r3_a_token_is_in_no_file_no_log_and_no_record() {
    let config = "log: { level: debug }\n".to_owned();
    let tcp = "address: '127.0.0.1:0', plaintext: true, tokens: {}".to_owned();
    let mut daemon = Daemon::start_with(Setup { config, tcp, ..Default::default() }).await;
    let roles = ["operator", "orchestrator", "auditor"].map(str::to_owned).into();
    let (_, secret) = daemon.token(v1::Token { roles, ..auditor("a") }, None).await;
    let channel =
        tonic::transport::Channel::from_shared(daemon.url("http")).unwrap().connect().await.unwrap();
    let mut remote = Clients::on(channel);
    let bearer = Bearer::new(&secret);
    let made = remote.runs.create_run(bearer.shows(requests::managed("open"))).await.unwrap().into_inner();
    let run = made.run.unwrap().run_id;
    // It is shown, refused, and also passed to a command, whose arguments and output are kept.
    let request = v1::CallRequest {
        run_id: run,
        request: Some(calls::exec(&["echo", &secret]).into()),
        ..Default::default()
    };
    remote.tools.call(bearer.shows(request)).await.unwrap();
    let half = &secret[..secret.len() - 4];
    remote.audit.verify_log(Bearer::new(half).shows(v1::VerifyLogRequest {})).await.unwrap_err();
    daemon.connect().await.events("", "").await;
    let shown = remote.audit.query_events(bearer.shows(v1::QueryEventsRequest::default())).await.unwrap();
    let shown = format!("{:?}", shown.into_inner());
    daemon.stop().await;
    let after = secret.rfind('_').unwrap() + 1;
    let part = &secret.as_bytes()[after..secret.len() - 4];
    let has = |content: &[u8]| memchr::memmem::find(content, part).is_some();
    let kept = contents(&daemon.state_dir());
    assert!(kept.len() > 10, "{} files", kept.len());
    let leaks: Vec<_> = kept.into_iter().filter(|(_, content)| has(content)).map(|(path, _)| path).collect();
    assert_eq!(leaks, Vec::<PathBuf>::new());
    assert!(!has(daemon.log().as_bytes()) && !has(shown.as_bytes()));
}
