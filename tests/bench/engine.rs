//! `docker exec`, without the command line's own start: the two requests that it sends, over the engine's socket.

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

    /// The body of the response, which is all that comes until the engine closes.
    async fn post(&self, path: &str, body: &Value) -> Vec<u8> {
        let mut stream = UnixStream::connect(&self.socket).await.unwrap();
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: docker\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await.unwrap();
        let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a response has a head");
        let head = String::from_utf8_lossy(&response[..end]);
        assert!(head.starts_with("HTTP/1.1 2"), "{path}: {}", String::from_utf8_lossy(&response));
        response.split_off(end + 4)
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
