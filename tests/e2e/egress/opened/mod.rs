//! Connections that are opened for their rules, secrets that stay outside, and the door to a model.

mod agents;
mod attacks;
mod chromium;
mod clones;
mod consents;
mod door;
mod forge;
mod git;
mod injection;
mod java;
mod operations;
mod placeholders;
mod search;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use harness::{Certificates, Daemon};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::daemon_trusting;

/// The secret that no run may see.
const SECRET: &str = "Zq8-canary-5r7Kx2Lm9Tv4Wb1";

/// A server over HTTP/1 that keeps the heads and bodies of its requests.
struct Origin {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    /// Starts a server, with TLS if it has certificates. `answer` makes a whole response of a request.
    async fn start(
        certificates: Option<&Certificates>,
        answer: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let (kept, answer) = (Arc::clone(&requests), Arc::new(answer));
        let acceptor = certificates.map(Certificates::acceptor);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (kept, answer, acceptor) = (Arc::clone(&kept), Arc::clone(&answer), acceptor.clone());
                tokio::spawn(async move {
                    match acceptor {
                        None => serve(stream, &kept, &*answer).await,
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                serve(stream, &kept, &*answer).await;
                            }
                        }
                    }
                });
            }
        });
        Self { port, requests }
    }

    /// Returns the requests that arrived.
    fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    kept: &Mutex<Vec<String>>,
    answer: &(dyn Fn(&str) -> String + Send + Sync),
) {
    let mut bytes = Vec::new();
    loop {
        let Some(end) = head_end(&mut stream, &mut bytes).await else { return };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let length =
            header(&head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0_usize);
        while bytes.len() < end + length {
            if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let request = String::from_utf8_lossy(&bytes[..end + length]).into_owned();
        bytes.drain(..end + length);
        kept.lock().push(request.clone());
        if stream.write_all(answer(&request).as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads until the head of a request is there, and returns its length. `None` if the client leaves before.
async fn head_end(stream: &mut (impl AsyncRead + Unpin), bytes: &mut Vec<u8>) -> Option<usize> {
    loop {
        if let Some(at) = bytes.windows(4).position(|end| end == b"\r\n\r\n") {
            return Some(at + 4);
        }
        if stream.read_buf(bytes).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

/// Returns the value of a header. A header that is there twice fails the test.
fn header(request: &str, name: &str) -> Option<String> {
    let head = request.split("\r\n\r\n").next().unwrap_or_default();
    let mut found = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let mut found = found.by_ref().filter(|(known, _)| known.eq_ignore_ascii_case(name));
    let value = found.next().map(|(_, value)| value.trim().to_owned());
    assert!(found.next().is_none(), "{name} is there twice: {head}");
    value
}

/// Returns a response with a body.
fn ok(content_type: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// The files of a daemon that has a secret and trusts the authority of the test's servers.
struct Keys {
    directory: TempDir,
    certificates: Certificates,
}

impl Keys {
    fn make() -> Self {
        let keys = Self {
            directory: tempfile::tempdir().unwrap(),
            certificates: Certificates::for_host("files.example.org"),
        };
        keys.write(SECRET);
        keys
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("model")
    }

    /// Replaces the secret, as an operator does.
    fn write(&self, secret: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let made = self.directory.path().join("made");
        std::fs::write(&made, format!("{secret}\n")).unwrap();
        std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(made, self.file()).unwrap();
    }

    /// Starts a daemon whose profile `out` has these rules, and these further keys of `egress`.
    async fn daemon(&self, rules: &[String], keys: &str) -> Daemon {
        self.daemon_with("", rules, keys).await
    }

    /// The same with further lines of the configuration.
    async fn daemon_with(&self, config: &str, rules: &[String], keys: &str) -> Daemon {
        let config = format!("secrets: {{ model: {{ file: '{}' }} }}\n{config}", self.file().display());
        let mut egress = "{ networks: [\"127.0.0.0/8\"], rules: [".to_owned();
        for rule in rules {
            write!(egress, "{rule}, ").unwrap();
        }
        egress.push(']');
        egress.push_str(keys);
        egress.push('}');
        let authority = format!("'{}'", self.certificates.authority().display());
        daemon_trusting(&authority, &config, &egress, "").await
    }
}
