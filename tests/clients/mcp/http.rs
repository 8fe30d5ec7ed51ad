//! The HTTP endpoint: the official Python client, and requests that no client makes.

use std::fmt::Write as _;
use std::path::Path;

use harness::{Daemon, Setup, v1};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::python::{Client, text, with};
use super::run_with_token;

pub(super) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
pub(super) const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;

/// A daemon with an endpoint, and its port.
pub(super) async fn daemon(more: &str) -> (Daemon, u16) {
    let config = format!("mcp: {{ http: {{ listen: '127.0.0.1:0'{more} }} }}\n");
    let daemon = Daemon::start_with(Setup { config, ..Setup::default() }).await;
    let place = daemon.told("MCP over HTTP: http://127.0.0.1:");
    let port = place.strip_suffix("/mcp").unwrap().parse().unwrap();
    (daemon, port)
}

/// How the Python client connects.
pub(super) fn http(port: u16, token: &str) -> Value {
    json!({"http": {"url": format!("http://127.0.0.1:{port}/mcp"), "token": token}})
}

/// One request, and the answer as far as it came: status, headers in small letters, beginning of the body.
pub(super) struct Answer {
    pub(super) status: u16,
    head: String,
    pub(super) body: String,
}

/// Sends `request` as it stands and reads until the other side closes, or there is a whole event or message.
async fn send(port: u16, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    // Where it is refused early nobody reads the rest.
    let _ = stream.write_all(request).await;
    let mut bytes = Vec::new();
    let read = async {
        let mut piece = [0; 4096];
        while let Ok(count) = stream.read(&mut piece).await {
            bytes.extend_from_slice(&piece[..count]);
            let said = String::from_utf8_lossy(&bytes);
            let body = said.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            let is_whole = said.contains("content-length: 0")
                || said.starts_with("HTTP/1.1 204 ")
                || body.contains("\"jsonrpc\"")
                || (!body.is_empty() && !said.contains("event-stream"));
            if count == 0 || (said.contains("\r\n\r\n") && is_whole) {
                break;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), read).await.expect("no answer");
    let said = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = said.split_once("\r\n\r\n").unwrap_or((&said, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

pub(super) async fn post(port: u16, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut head = String::from("POST /mcp HTTP/1.1\r\n");
    let defaults = [
        ("Host", "localhost"),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
    ];
    let defaults = defaults.iter().filter(|(name, _)| !headers.iter().any(|(given, _)| given == name));
    for (name, value) in defaults.chain(headers) {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    write!(head, "Content-Length: {}\r\n\r\n", body.len()).unwrap();
    send(port, (head + body).as_bytes()).await
}

pub(super) fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

pub(super) fn session_of(answer: &Answer) -> String {
    let line = answer.head.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
    line.unwrap_or_else(|| panic!("no session: {}", answer.head)).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_lists_reads_edits_and_runs_over_http() {
    let (daemon, port) = daemon("").await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let (_run, token) = run_with_token(&daemon, "open", &workspace).await;
    for (mode, protocol) in [("auto", "2026-07-28"), ("legacy", "2025-11-25")] {
        let mut client = Client::connect(with(http(port, &token), json!({"mode": mode}))).await;
        assert_eq!(client.hello["protocol"], protocol);
        let listed = client.step(json!({"do": "list"})).await;
        assert!(listed["tools"].as_array().unwrap().len() >= 5, "{listed}");
        let read = client.call("read", json!({"file_path": "a.txt"})).await;
        assert!(text(&read).contains("one"), "{read}");
        let created = client.call("write", json!({"file_path": mode, "content": "x\n"})).await;
        assert_eq!(created["isError"], false, "{created}");
        assert_eq!(std::fs::read_to_string(workspace.join(mode)).unwrap(), "x\n");
        let counted = client.call("bash", json!({"command": "wc -l a.txt"})).await;
        assert!(text(&counted).contains("1 a.txt"), "{counted}");
        client.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoint_requires_the_token_of_a_live_run() {
    let (daemon, port) = daemon("").await;
    let workspace = daemon.workspace("w", &[]);
    let (mut run, token) = run_with_token(&daemon, "open", &workspace).await;
    let bare = post(port, &[], INITIALIZE).await;
    assert!(bare.status == 401 && bare.head.contains("www-authenticate: bearer"), "{}", bare.head);
    let mut forged = token.clone();
    forged.replace_range(token.len() - 4.., "AAAA");
    for bad in [bearer(&forged), bearer("cft_x_y"), bearer(""), format!("Basic {token}"), token.clone()] {
        let refused = post(port, &[("Authorization", &bad)], INITIALIZE).await;
        assert!(refused.status == 401 && refused.head.contains("invalid_token"), "{bad}: {}", refused.head);
    }
    let good = bearer(&token);
    let twice = post(port, &[("Authorization", &good), ("Authorization", &good)], INITIALIZE).await;
    assert_eq!(twice.status, 401);
    let session = session_of(&post(port, &[("Authorization", &good)], INITIALIZE).await);
    // A session is no credential.
    let stolen = post(port, &[("Mcp-Session-Id", &session)], LIST).await;
    assert_eq!(stolen.status, 401, "{}", stolen.body);
    run.stop().await;
    let dead = post(port, &[("Authorization", &good), ("Mcp-Session-Id", &session)], LIST).await;
    assert_eq!(dead.status, 401, "{}", dead.body);
    let attempts = run.clients.events("", "escalation_attempt").await;
    assert!(attempts.iter().any(|attempt| attempt.record_json.contains("MCP over HTTP")), "{attempts:?}");
    assert!(!daemon.log().contains(&token));
}

/// The endpoint looks now and then whether the run still lives, with the token that opened the stream: that is no attempt without a credential.
#[tokio::test(flavor = "multi_thread")]
async fn orderly_end_with_open_streams_records_no_attempt() {
    let (daemon, port) = daemon("").await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let (mut run, token) = run_with_token(&daemon, "open", &workspace).await;
    let mut client = Client::connect(with(http(port, &token), json!({"mode": "legacy"}))).await;
    let read = client.call("read", json!({"file_path": "a.txt"})).await;
    assert!(text(&read).contains("one"), "{read}");
    let good = bearer(&token);
    let session = session_of(&post(port, &[("Authorization", &good)], INITIALIZE).await);
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let get = format!(
        "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: {good}\r\nMcp-Session-Id: {session}\r\n\
         Accept: text/event-stream\r\n\r\n"
    );
    stream.write_all(get.as_bytes()).await.unwrap();
    let mut head = [0; 512];
    let count = stream.read(&mut head).await.unwrap();
    assert!(String::from_utf8_lossy(&head[..count]).starts_with("HTTP/1.1 200"), "the stream is not open");
    // Its owner cleans up at once.
    run.stop().await;
    run.delete().await;
    let late = post(port, &[("Authorization", &good), ("Mcp-Session-Id", &session)], LIST).await;
    assert_eq!(late.status, 401, "{}", late.body);
    // The stream ends when the endpoint has seen that the run did; nothing on record calls that an attempt.
    let end = async { while stream.read(&mut head).await.is_ok_and(|count| count > 0) {} };
    tokio::time::timeout(std::time::Duration::from_secs(60), end).await.expect("the stream outlives its run");
    let attempts = run.clients.events("", "escalation_attempt").await;
    assert!(attempts.is_empty(), "{attempts:?}");
    let alerts = run.clients.events("", "alert").await;
    assert!(alerts.is_empty(), "{alerts:?}");
}

/// Its streams of events end at once, its sessions are gone, and the next token begins anew.
#[tokio::test(flavor = "multi_thread")]
async fn r3_sessions_and_streams_end_with_the_token_that_is_replaced() {
    let (daemon, port) = daemon("").await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let (mut run, token) = run_with_token(&daemon, "open", &workspace).await;
    let old = bearer(&token);
    let session = session_of(&post(port, &[("Authorization", &old)], INITIALIZE).await);
    let mut events = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let get = format!(
        "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: {old}\r\nMcp-Session-Id: {session}\r\n\
         Accept: text/event-stream\r\n\r\n"
    );
    events.write_all(get.as_bytes()).await.unwrap();
    let mut piece = [0; 512];
    let count = events.read(&mut piece).await.unwrap();
    assert!(String::from_utf8_lossy(&piece[..count]).starts_with("HTTP/1.1 200"), "the stream is not open");
    // A call that is under way is one of its streams.
    let sleep = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"bash","arguments":{"command":"sleep 600"}}}"#;
    let (shown, own) = (old.clone(), session.clone());
    let call = tokio::spawn(async move {
        post(port, &[("Authorization", &shown), ("Mcp-Session-Id", &own)], sleep).await
    });
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert!(!call.is_finished());

    let issue = v1::IssueRunTokenRequest { run_id: run.id().to_owned() };
    let next = bearer(&run.clients.runs.issue_run_token(issue).await.unwrap().into_inner().token);
    let begun = std::time::Instant::now();
    // At once: the endpoint does not wait until it looks for runs that have ended.
    let stale = post(port, &[("Authorization", &next), ("Mcp-Session-Id", &session)], LIST).await;
    assert_eq!(stale.status, 404, "{}", stale.body);
    // The connection stays open for another request; the last chunk ends the stream.
    let end = async {
        let mut said = Vec::new();
        while !said.ends_with(b"0\r\n\r\n") {
            match events.read(&mut piece).await {
                Ok(count) if count > 0 => said.extend_from_slice(&piece[..count]),
                _ => return,
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), end).await.expect("a stream outlives its token");
    assert!(begun.elapsed() < std::time::Duration::from_secs(4), "{:?}", begun.elapsed());
    let ended = call.await.unwrap();
    assert!(!ended.body.contains("\"isError\":false"), "{}", ended.body);
    let replaced = post(port, &[("Authorization", &old), ("Mcp-Session-Id", &session)], LIST).await;
    assert_eq!(replaced.status, 401, "{}", replaced.body);
    let session = session_of(&post(port, &[("Authorization", &next)], INITIALIZE).await);
    let listed = post(port, &[("Authorization", &next), ("Mcp-Session-Id", &session)], LIST).await;
    assert!(listed.status == 200 && listed.body.contains("file_path"), "{} {}", listed.status, listed.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tokens_of_two_runs_do_not_reach_each_other() {
    let (daemon, port) = daemon("").await;
    let mine = daemon.workspace("mine", &[("secret.txt", "mine alone\n")]);
    let theirs = daemon.workspace("theirs", &[]);
    let (_a, token_a) = run_with_token(&daemon, "open", &mine).await;
    let (_b, token_b) = run_with_token(&daemon, "open", &theirs).await;
    let (a, b) = (bearer(&token_a), bearer(&token_b));
    let session = session_of(&post(port, &[("Authorization", &a)], INITIALIZE).await);
    // The other's session does not exist for them: not for messages, not for its events, not to end it.
    let used = post(port, &[("Authorization", &b), ("Mcp-Session-Id", &session)], LIST).await;
    assert_eq!(used.status, 404, "{}", used.body);
    // Ending what is not there is no error; it is not the other's that ends.
    for (method, status) in [("GET", 404), ("DELETE", 204)] {
        let request = format!(
            "{method} /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nAuthorization: {b}\r\nMcp-Session-Id: {session}\r\n\r\n"
        );
        assert_eq!(send(port, request.as_bytes()).await.status, status, "{method}");
    }
    let kept = post(port, &[("Authorization", &a), ("Mcp-Session-Id", &session)], LIST).await;
    assert!(kept.status == 200 && kept.body.contains("file_path"), "{} {}", kept.status, kept.body);
    let mut client = Client::connect(http(port, &token_b)).await;
    let read = client.call("read", json!({"file_path": "secret.txt"})).await;
    assert_eq!(read["isError"], true, "{read}");
    client.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_and_origins_that_are_not_its_own_are_refused() {
    let (daemon, port) = daemon("").await;
    let workspace = daemon.workspace("w", &[]);
    let (_run, token) = run_with_token(&daemon, "open", &workspace).await;
    let token = bearer(&token);
    for (header, value, status) in [
        ("Host", "evil.example.org", 403),
        ("Host", "localhost.evil.example.org", 403),
        ("Origin", "http://evil.example.org", 403),
        ("Origin", "null", 403),
        ("Origin", "nonsense", 403),
        ("Origin", "http://localhost:3000", 200),
    ] {
        let answer = post(port, &[("Authorization", &token), (header, value)], INITIALIZE).await;
        assert_eq!(answer.status, status, "{header}: {value}: {}", answer.body);
    }
}

/// What is asked first: a page that a name was rebound for learns neither what there is nor whether a token is good.
#[tokio::test(flavor = "multi_thread")]
async fn the_host_is_checked_before_anything_else() {
    let (daemon, port) = daemon("").await;
    let workspace = daemon.workspace("w", &[]);
    let (mut run, token) = run_with_token(&daemon, "open", &workspace).await;
    let (good, evil) = (bearer(&token), ("Host", "evil.example.org"));
    for headers in [
        vec![evil],
        vec![evil, ("Authorization", "Bearer cft_x_y")],
        vec![evil, ("Authorization", &good), ("Mcp-Session-Id", "none")],
    ] {
        assert_eq!(post(port, &headers, INITIALIZE).await.status, 403, "{headers:?}");
    }
    for (request, status) in [
        ("GET /metrics HTTP/1.1\r\nHost: evil.example.org\r\n\r\n", 403),
        ("POST /mcp HTTP/1.1\r\nHost: evil.example.org\r\nContent-Length: 9999999\r\n\r\n", 403),
        ("GET http://evil.example.org/mcp HTTP/1.1\r\nHost: localhost\r\n\r\n", 403),
        ("GET /mcp HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
        ("GET /mcp HTTP/1.1\r\n\r\n", 400),
    ] {
        assert_eq!(send(port, request.as_bytes()).await.status, status, "{request}");
    }
    let attempts = run.clients.events("", "escalation_attempt").await;
    assert!(attempts.is_empty(), "the token was looked at: {attempts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn silently_leaving_clients_do_not_use_up_sessions() {
    let (daemon, port) = daemon(", sessions_per_run: 2").await;
    let workspace = daemon.workspace("w", &[]);
    let (_run, token) = run_with_token(&daemon, "open", &workspace).await;
    let good = bearer(&token);
    let begins = async || post(port, &[("Authorization", &good)], INITIALIZE).await;
    let lists = async |session: &str| {
        post(port, &[("Authorization", &good), ("Mcp-Session-Id", session)], LIST).await.status
    };
    let listens = async |session: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let get = format!(
            "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: {good}\r\nMcp-Session-Id: {session}\r\n\
             Accept: text/event-stream\r\n\r\n"
        );
        stream.write_all(get.as_bytes()).await.unwrap();
        let mut head = [0; 512];
        let count = stream.read(&mut head).await.unwrap();
        assert!(String::from_utf8_lossy(&head[..count]).starts_with("HTTP/1.1 200"));
        stream
    };
    // The oldest has a stream under way, and is not idle.
    let oldest = session_of(&begins().await);
    let stream = listens(&oldest).await;
    let mut last = String::new();
    for _ in 0..9 {
        let left = std::mem::replace(&mut last, session_of(&begins().await));
        if !left.is_empty() {
            assert_eq!(lists(&left).await, 404, "it was idle longest");
        }
    }
    assert_eq!((lists(&oldest).await, lists(&last).await), (200, 200));
    let other = listens(&last).await;
    assert_eq!(begins().await.status, 503, "none of them is idle");
    drop((stream, other));
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_messages_cost_their_sender_an_error_and_others_nothing() {
    let (daemon, port) = daemon(", sessions_per_run: 2").await;
    let workspace = daemon.workspace("w", &[]);
    let (_run, token) = run_with_token(&daemon, "open", &workspace).await;
    let token = bearer(&token);
    let say = async |body: &str| post(port, &[("Authorization", &token)], body).await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for bad in [
        "",
        "x",
        "null",
        "[]",
        "{}",
        &deep,
        r#"{"jsonrpc":"2.0","id":{},"method":7}"#,
        r#"{"jsonrpc":"1.0","method":"initialize"}"#,
    ] {
        let answer = say(bad).await;
        assert!(
            (400..500).contains(&answer.status),
            "{}: {} {}",
            &bad[..bad.len().min(40)],
            answer.status,
            answer.body
        );
    }
    let large =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":"{}"}}}}"#, "a".repeat(5 << 20));
    assert_eq!(say(&large).await.status, 413);
    let head = format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "a".repeat(200_000));
    let refused = send(port, head.as_bytes()).await;
    assert!(refused.status >= 400 || refused.head.is_empty(), "{}", refused.head);
    assert_eq!(send(port, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await.status, 404);
    let unknown = post(
        port,
        &[("Authorization", &token), ("Mcp-Session-Id", "00000000-0000-0000-0000-000000000000")],
        LIST,
    )
    .await;
    assert_eq!(unknown.status, 404);

    let first = session_of(&say(INITIALIZE).await);
    let second = session_of(&say(INITIALIZE).await);
    assert!(first != second && first.len() >= 32, "{first} {second}");
    // A third one is one too many, and evicts the one that was idle longest.
    let third = session_of(&say(INITIALIZE).await);
    let with = async |session: &str| {
        post(port, &[("Authorization", &token), ("Mcp-Session-Id", session)], LIST).await.status
    };
    assert_eq!((with(&first).await, with(&second).await, with(&third).await), (404, 200, 200));
    let end = format!(
        "DELETE /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\nMcp-Session-Id: {second}\r\n\r\n"
    );
    assert!(send(port, end.as_bytes()).await.status < 300);
    assert_eq!(say(INITIALIZE).await.status, 200);
    daemon_is_well(&daemon, &workspace).await;
}

async fn daemon_is_well(daemon: &Daemon, workspace: &Path) {
    let mut run = daemon.run("open", workspace).await;
    run.exec(&["true"]).await;
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
}
