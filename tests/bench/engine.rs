//! `docker exec`, `run`, and `rm`, without the command line's own start: the requests that it sends, over the engine's socket.

use std::path::PathBuf;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// The engine.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    socket: PathBuf,
}

impl Engine {
    pub(crate) fn find() -> Self {
        let given = std::env::var("DOCKER_HOST").unwrap_or_default();
        let socket = given.strip_prefix("unix://").unwrap_or("/var/run/docker.sock");
        Self { socket: socket.into() }
    }

    /// Makes a container as asked and starts it; its id.
    pub(crate) async fn run(&self, config: &Value) -> String {
        let made = self.post("/containers/create", config).await;
        let made: Value = serde_json::from_slice(object(&made)).unwrap();
        let id =
            made["Id"].as_str().unwrap_or_else(|| panic!("the engine makes no container: {made}")).to_owned();
        self.post(&format!("/containers/{id}/start"), &json!({})).await;
        id
    }

    /// Ends a container and removes it, as `docker rm --force` does.
    pub(crate) async fn remove(&self, container: &str) {
        let path = format!("/containers/{container}?force=true");
        let (head, body) = self.send("DELETE", &path, "").await;
        assert!(head.starts_with("HTTP/1.1 2"), "{path}: {}", String::from_utf8_lossy(&body));
    }

    /// Whether there is such a container.
    pub(crate) async fn has(&self, container: &str) -> bool {
        let (head, _) = self.send("GET", &format!("/containers/{container}/json"), "").await;
        head.starts_with("HTTP/1.1 200")
    }

    /// Its release.
    pub(crate) async fn version(&self) -> String {
        let (_, body) = self.send("GET", "/version", "").await;
        let version: Value = serde_json::from_slice(object(&body)).unwrap();
        version["Version"].as_str().unwrap_or("unknown").to_owned()
    }

    /// Runs a command in a container to its end; what it wrote to its standard output.
    pub(crate) async fn exec(&self, container: &str, argv: &[&str]) -> Vec<u8> {
        let body = json!({ "Cmd": argv, "AttachStdout": true, "AttachStderr": true });
        let made = self.post(&format!("/containers/{container}/exec"), &body).await;
        let made: Value = serde_json::from_slice(object(&made)).unwrap();
        let id = made["Id"].as_str().unwrap_or_else(|| panic!("the engine makes no exec: {made}"));
        let body = json!({ "Detach": false, "Tty": false });
        let stream = self.post(&format!("/exec/{id}/start"), &body).await;
        standard_output(&stream)
    }

    /// The body of the response, which must be a good one.
    async fn post(&self, path: &str, body: &Value) -> Vec<u8> {
        let (head, answer) = self.send("POST", path, &body.to_string()).await;
        assert!(head.starts_with("HTTP/1.1 2"), "{path}: {head}: {}", String::from_utf8_lossy(&answer));
        answer
    }

    /// Head and body of the response, which is all that comes until the engine closes.
    async fn send(&self, method: &str, path: &str, body: &str) -> (String, Vec<u8>) {
        let mut stream = UnixStream::connect(&self.socket).await.unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: docker\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await.unwrap();
        let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a response has a head");
        let body = response.split_off(end + 4);
        (String::from_utf8_lossy(&response[..end]).into_owned(), body)
    }
}

/// The JSON object in a body that may have come in chunks.
fn object(body: &[u8]) -> &[u8] {
    let start = body.iter().position(|&byte| byte == b'{').unwrap_or_default();
    let end = body.iter().rposition(|&byte| byte == b'}').map_or(body.len(), |end| end + 1);
    &body[start..end]
}

/// Frames of a kind, three empty bytes, a length of four bytes, and so many bytes.
fn standard_output(mut stream: &[u8]) -> Vec<u8> {
    let mut output = Vec::new();
    while let Some((&[kind, _, _, _, a, b, c, d], rest)) = stream.split_first_chunk() {
        let (bytes, rest) = rest.split_at(u32::from_be_bytes([a, b, c, d]) as usize);
        match kind {
            1 => output.extend_from_slice(bytes),
            _ => panic!("the command complains: {}", String::from_utf8_lossy(bytes)),
        }
        stream = rest;
    }
    output
}
