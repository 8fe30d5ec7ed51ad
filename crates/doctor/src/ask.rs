//! Asks the container engine about itself, over its socket, with bounded requests.
//!
//! The listener is not trusted: an answer is read up to a size and a deadline, and only a few of its fields are used.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

const DEADLINE: Duration = Duration::from_secs(5);
/// Largest answer that is read, bytes.
const LARGEST: u64 = 1 << 20;

/// Reason why an engine gave no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// This user may not open the engine's socket.
    NotPermitted,
    Other(String),
}

impl From<io::Error> for NoAnswer {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::NotPermitted,
            _ => Self::Other(error.to_string()),
        }
    }
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotPermitted => "permission denied",
            Self::Other(why) => why,
        })
    }
}

/// Sends one GET and returns the answer as JSON, or the reason why there is none.
pub(crate) async fn get(socket: &Path, path: &'static str) -> Result<Value, NoAnswer> {
    let asked = async {
        let mut stream = UnixStream::connect(socket).await?;
        // HTTP/1.0: the answer ends with the connection and is never chunked.
        let request = format!("GET {path} HTTP/1.0\r\nHost: engine\r\nAccept: application/json\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(LARGEST).read_to_end(&mut answer).await?;
        body(&answer).map_err(NoAnswer::Other)
    };
    let late = |_| Err(NoAnswer::Other("it does not answer in time".to_owned()));
    tokio::time::timeout(DEADLINE, asked).await.unwrap_or_else(late)
}

fn body(answer: &[u8]) -> Result<Value, String> {
    const NOT_HTTP: &str = "the program that answers there is not a container engine";
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").ok_or(NOT_HTTP)?;
    let (head, body) = answer.split_at(end);
    let mut status = head.split(|&b| b == b' ');
    if !status.next().is_some_and(|version| version.starts_with(b"HTTP/1.")) {
        return Err(NOT_HTTP.into());
    }
    if status.next() != Some(b"200") {
        return Err("it does not report its version".into());
    }
    serde_json::from_slice(body).map_err(|_| NOT_HTTP.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::net::UnixListener;

    use super::*;

    #[test]
    fn answers_good_and_hostile() {
        assert_eq!(body(b"HTTP/1.0 200 OK\r\nA: b\r\n\r\n{\"Version\":\"1\"}"), Ok(json!({"Version": "1"})));
        for hostile in [
            &b""[..],
            b"\xff\xfe\r\n\r\n",
            b"HTTP/1.0\r\n\r\n",
            b"HTTP/1.1 500 No\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\n\r\n\x00\xff",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"SSH-2.0-OpenSSH 200\r\n\r\n{}",
        ] {
            assert!(body(hostile).is_err(), "{hostile:?}");
        }
        let deep = [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'['; 100_000]].concat();
        assert!(body(&deep).is_err());
    }

    #[tokio::test]
    async fn asks_over_the_socket() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("engine.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 256];
            let read = stream.read(&mut request).await.unwrap();
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n{\"Version\":\"x\"}").await.unwrap();
            String::from_utf8(request[..read].to_vec()).unwrap()
        });
        assert_eq!(get(&socket, "/version").await, Ok(json!({"Version": "x"})));
        assert!(server.await.unwrap().starts_with("GET /version HTTP/1.0\r\n"));
        assert!(get(&dir.path().join("nothing"), "/version").await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn does_not_wait_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("engine.sock");
        let _listener = UnixListener::bind(&socket).unwrap();
        assert_eq!(get(&socket, "/version").await, Err(NoAnswer::Other("it does not answer in time".into())));
    }
}
