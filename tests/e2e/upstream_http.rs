//! Upstream MCP servers somewhere else: good ones by JSON and by events, and such as are slow, endless, or send one away.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use harness::v1::operation::Kind as Operation;
use harness::v1::result::Kind as Answer;
use harness::v1::{self, McpRequest};
use harness::{Daemon, RunHandle, Setup};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const TOKEN: &str = "tok-planted-0123456789";

/// What the servers of a test saw.
#[derive(Default)]
struct Seen {
    /// Connections to where a redirect leads.
    elsewhere: AtomicUsize,
    /// Requests without the token, the session or the version that they need.
    bare: AtomicUsize,
    ended: AtomicUsize,
}

async fn serve(seen: Arc<Seen>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, seen.clone(), address));
        }
    });
    address
}

/// One request: its head and its body.
async fn request(stream: &mut TcpStream) -> Option<(String, Value)> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
    while bytes.len() < end + length {
        stream.read_buf(&mut bytes).await.ok()?;
    }
    Some((head, serde_json::from_slice(&bytes[end..]).unwrap_or_default()))
}

async fn answer(mut stream: TcpStream, seen: Arc<Seen>, address: SocketAddr) -> Option<()> {
    let (head, message) = request(&mut stream).await?;
    let path = head.split(' ').nth(1)?.to_owned();
    if path == "/elsewhere" {
        seen.elsewhere.fetch_add(1, Ordering::Relaxed);
    }
    if head.starts_with("delete") {
        seen.ended.fetch_add(1, Ordering::Relaxed);
    }
    let method = message["method"].as_str().unwrap_or_default();
    let first = method == "initialize";
    let authorized = head.contains(&format!("authorization: bearer {TOKEN}"));
    let in_session =
        head.contains("mcp-session-id: s-1") && head.contains("mcp-protocol-version: 2025-06-18");
    if !authorized || !(first || in_session) {
        seen.bare.fetch_add(1, Ordering::Relaxed);
    }
    let result = match method {
        "initialize" => {
            json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}})
        }
        "tools/list" => json!({"tools": [{"name": "get", "inputSchema": {"type": "object"}}]}),
        "tools/call" => {
            json!({"content": [{"type": "text", "text": message["params"]["arguments"].to_string()}]})
        }
        _ => {
            stream.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").await.ok()?;
            return None;
        }
    };
    let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
    let called = method == "tools/call";
    let head = "HTTP/1.1 200 OK\r\nmcp-session-id: s-1\r\nconnection: close\r\n";
    match path.as_str() {
        "/events" => {
            let asks = "data: {\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"roots/list\"}\n\n";
            let asks = if called { asks } else { "" };
            let events = format!(
                ": hello\n\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}}\n\n{asks}event: message\ndata: {body}\n\n"
            );
            stream
                .write_all(format!("{head}content-type: text/event-stream\r\n\r\n{events}").as_bytes())
                .await
                .ok()?;
        }
        "/slow" if called => tokio::time::sleep(std::time::Duration::from_secs(60)).await,
        "/endless" if called => {
            stream
                .write_all(format!("{head}content-type: text/event-stream\r\n\r\n").as_bytes())
                .await
                .ok()?;
            loop {
                stream.write_all(&vec![b'x'; 65_536]).await.ok()?;
            }
        }
        "/redirect" if called => {
            let redirect = format!(
                "HTTP/1.1 307 Go\r\nlocation: http://{address}/elsewhere\r\ncontent-length: 0\r\n\r\n"
            );
            stream.write_all(redirect.as_bytes()).await.ok()?;
        }
        "/html" if called => {
            stream
                .write_all(format!("{head}content-type: text/html\r\n\r\n<h1>hi</h1>").as_bytes())
                .await
                .ok()?;
        }
        "/broken" if called => {
            stream
                .write_all(
                    format!("{head}content-type: application/json\r\ncontent-length: 900\r\n\r\n{{")
                        .as_bytes(),
                )
                .await
                .ok()?;
        }
        _ => {
            let text = format!(
                "{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(text.as_bytes()).await.ok()?;
        }
    }
    Some(())
}

const PATHS: [&str; 7] = ["good", "events", "slow", "endless", "redirect", "html", "broken"];

async fn start(seen: &Arc<Seen>, token: &Path) -> (Daemon, RunHandle) {
    let address = serve(seen.clone()).await;
    std::fs::write(token, format!("{TOKEN}\n")).unwrap();
    let mut servers = String::new();
    for path in PATHS {
        let (url, token) = (format!("http://{address}/{path}"), token.display());
        writeln!(
            servers,
            "  {path}: {{http: {{url: \"{url}\", bearer_token_file: {token}}}, call_timeout_s: 4}}"
        )
        .unwrap();
    }
    let policy = format!(
        "mcp_servers:\n{servers}  nobody: {{http: {{url: \"http://127.0.0.1:1/\"}}}}\naliases: {{http_get: mcp.good.get}}\n\
         profiles: {{p: {{operations: {{read: allow, \"mcp.*\": allow}}}}}}\nroles: {{director: {{allow: \"*\"}}}}\n"
    );
    let policy = vec![("p.yaml", policy)];
    let daemon = Daemon::start_with(Setup { policy, ..Default::default() }).await;
    let workspace = daemon.workspace("w", &[]);
    let run = daemon.run("p", &workspace).await;
    (daemon, run)
}

fn get(server: &str) -> Operation {
    let arguments_json = r#"{"url":"x"}"#.to_owned();
    Operation::Mcp(McpRequest { server: server.to_owned(), tool: "get".to_owned(), arguments_json })
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_answer_by_json_or_events_and_invalid_ones_fail_alone() {
    let seen = Arc::new(Seen::default());
    let directory = tempfile::tempdir().unwrap();
    let (daemon, mut run) = start(&seen, &directory.path().join("token")).await;
    for server in ["good", "events"] {
        let Answer::Mcp(result) = run.ok(get(server)).await else { panic!() };
        assert_eq!(result.content[0].data, r#"{"url":"x"}"#, "{server}");
    }
    assert_eq!(
        seen.bare.load(Ordering::Relaxed),
        0,
        "every request has the token, the session and the version"
    );
    for (server, expected, kind) in [
        ("redirect", "UPSTREAM_FAILED", "protocol"),
        ("html", "UPSTREAM_FAILED", "protocol"),
        ("broken", "UPSTREAM_FAILED", "lost"),
        ("endless", "UPSTREAM_FAILED", "protocol"),
        ("slow", "TIMED_OUT", "timed_out"),
        ("nobody", "UPSTREAM_FAILED", "absent"),
    ] {
        let failure = run.fails(get(server)).await;
        assert_eq!(
            (failure.reason.as_str(), failure.details["kind"].as_str()),
            (expected, kind),
            "{server}: {failure:?}"
        );
        assert!(!failure.message.contains("127.0.0.1"), "no address is told: {failure:?}");
        run.ok(get("good")).await;
    }
    assert_eq!(seen.elsewhere.load(Ordering::Relaxed), 0, "no redirect is followed");

    let call = v1::DialectCall {
        dialect: "gateway".to_owned(),
        name: "http_get".to_owned(),
        arguments_json: r#"{"url":"x"}"#.to_owned(),
    };
    let rendered = run.call(call).await.unwrap().rendered;
    assert_eq!(serde_json::from_str::<Value>(&rendered).unwrap()["status"], "success", "{rendered}");

    let id = run.id().to_owned();
    let events = format!("{:?}", run.clients.events(&id, "").await);
    assert!(events.contains("mcp_server") && !events.contains(TOKEN) && !daemon.log().contains(TOKEN));
    run.stop().await;
    let told = async {
        while seen.ended.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), told)
        .await
        .expect("the server is told that the session is over");
}
