//! Clients that take connections and requests of the endpoint, with a token or without one, and others that want to work meanwhile.

use std::time::Duration;

use harness::Daemon;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::http::{INITIALIZE, LIST, bearer, daemon, post, session_of};
use super::run_with_token;

/// More than twice the connections of the endpoint under test.
const CROWD: usize = 300;
/// Less than the endpoint waits for the rest of a head, 10 s, or of a body, 30 s.
const SOON: Duration = Duration::from_secs(5);

/// Sends the beginning of a request, and no more.
async fn begin(port: u16, beginning: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let _ = stream.write_all(beginning.as_bytes()).await;
    stream
}

/// Connections that hold the beginning of a request.
async fn crowd(port: u16, beginning: &str) -> Vec<TcpStream> {
    let mut all = JoinSet::new();
    for _ in 0..CROWD {
        let beginning = beginning.to_owned();
        all.spawn(async move { begin(port, &beginning).await });
    }
    all.join_all().await
}

/// A client with the token of a run of its own, in a session.
struct Client {
    port: u16,
    token: String,
    session: String,
}

impl Client {
    async fn new(daemon: &Daemon, port: u16, name: &str) -> Self {
        let workspace = daemon.workspace(name, &[]);
        let (_run, token) = run_with_token(daemon, "open", &workspace).await;
        let token = bearer(&token);
        let session = session_of(&post(port, &[("Authorization", &token)], INITIALIZE).await);
        Self { port, token, session }
    }

    /// The status of an answer that came soon, each over a connection of its own.
    async fn lists(&self) -> Option<u16> {
        let headers = [("Authorization", &*self.token), ("Mcp-Session-Id", &*self.session)];
        timeout(SOON, post(self.port, &headers, LIST)).await.ok().map(|answer| answer.status)
    }

    /// The head of a request, and a body of which the most is missing.
    fn slow_body(&self) -> String {
        format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: {}\r\n\
             Mcp-Session-Id: {}\r\nContent-Length: 100000\r\n\r\n{{",
            self.token, self.session
        )
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r2_clients_with_half_a_head_lock_no_run_out() {
    let (daemon, port) = daemon(", connections: 128").await;
    let client = Client::new(&daemon, port, "w").await;
    for beginning in ["", "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bea"] {
        let _crowd = crowd(port, beginning).await;
        for _ in 0..20 {
            assert_eq!(client.lists().await, Some(200));
        }
    }
    // Those without a good token are unproven however often they ask.
    let unproven = "GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(3);
    let _crowd = crowd(port, &unproven).await;
    assert_eq!(client.lists().await, Some(200));
}

#[tokio::test(flavor = "multi_thread")]
async fn r2_slow_bodies_of_one_run_do_not_affect_other_runs() {
    let (daemon, port) = daemon(", connections: 512").await;
    let (slow, other) = (Client::new(&daemon, port, "slow").await, Client::new(&daemon, port, "other").await);
    let crowd = crowd(port, &slow.slow_body()).await;
    for _ in 0..20 {
        assert_eq!(other.lists().await, Some(200));
    }
    // Those that had no place were told so before their bodies were read.
    let mut answers = JoinSet::new();
    for mut stream in crowd {
        answers.spawn(async move {
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).await.unwrap();
            answer
        });
    }
    for _ in 0..CROWD - 32 {
        let answer = timeout(SOON, answers.join_next()).await.expect("more than 32 have a place");
        assert_eq!(&answer.unwrap().unwrap(), b"HTTP/1.1 429");
    }
    assert_eq!(slow.lists().await, Some(429));
    assert!(answers.try_join_next().is_none(), "fewer have a place");
    answers.shutdown().await;
    let again = async {
        while slow.lists().await != Some(200) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, again).await.expect("its places do not come back");
}

#[tokio::test(flavor = "multi_thread")]
async fn r2_the_connections_of_one_run_leave_slots_for_other_runs() {
    let (daemon, port) = daemon(", connections: 64").await;
    let (many, other) = (Client::new(&daemon, port, "many").await, Client::new(&daemon, port, "other").await);
    let list = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nAuthorization: {}\r\nMcp-Session-Id: {}\r\nContent-Length: {}\r\n\r\n{LIST}",
        many.token,
        many.session,
        LIST.len()
    );
    // An eighth of the connections, less an eighth of that. They stay open after their answers.
    let mut open = Vec::new();
    for number in 0..20 {
        let mut stream = begin(port, &list).await;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer == b"HTTP/1.1 200", number < 7, "{number}: {}", String::from_utf8_lossy(&answer));
        open.push(stream);
    }
    assert_eq!(other.lists().await, Some(200));
    open.clear();
    let again = async {
        while many.lists().await != Some(200) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, again).await.expect("its share does not come back");
}
