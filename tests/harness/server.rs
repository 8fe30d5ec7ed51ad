//! Servers on the host's loopback, and the connections that they got.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::engine::docker;
use crate::image::dev_image;
use crate::remote::Certificates;

/// A server that counts its connections.
pub struct Server {
    pub port: u16,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// Answers each request over HTTP with its first line.
    pub async fn http() -> Self {
        Self::start(answer).await
    }

    /// Answers each request over HTTP as a model called `small-1` does, which read 20 tokens and wrote 10.
    pub async fn model() -> Self {
        Self::start(|stream| async move {
            let body = r#"{"model":"small-1","usage":{"prompt_tokens":20,"completion_tokens":10}}"#;
            answer_with(stream, "Content-Type: application/json\r\n", |_| body.to_owned()).await;
        })
        .await
    }

    /// The same as [`Self::http`] over TLS.
    pub async fn https(certificates: &Certificates) -> Self {
        let acceptor = certificates.acceptor();
        Self::start(move |stream| {
            let accepted = acceptor.accept(stream);
            async move {
                if let Ok(stream) = accepted.await {
                    answer(stream).await;
                }
            }
        })
        .await
    }

    /// Sends back what it gets.
    pub async fn echo() -> Self {
        Self::start(|mut stream| async move {
            let (mut input, mut output) = stream.split();
            let _ = tokio::io::copy(&mut input, &mut output).await;
        })
        .await
    }

    /// Sends as many MiB as the client asks for, in eight bytes (big-endian), and closes. It writes pieces of so many KiB, which
    /// divide a MiB.
    pub async fn source(piece_kib: usize) -> Self {
        assert_eq!(1024 % piece_kib, 0);
        Self::start(move |mut stream| async move {
            let Ok(mebibytes) = stream.read_u64().await else { return };
            let piece = vec![0_u8; piece_kib << 10];
            for _ in 0..mebibytes * (1 << 20) / piece.len() as u64 {
                if stream.write_all(&piece).await.is_err() {
                    return;
                }
            }
        })
        .await
    }

    /// Speaks first, and sends back the client's line.
    pub async fn banner() -> Self {
        Self::start(|mut stream| async move {
            let _ = stream.write_all(b"SSH-2.0-server\r\n").await;
            let (mut input, mut output) = stream.split();
            let _ = tokio::io::copy(&mut input, &mut output).await;
        })
        .await
    }

    /// Serves the repository of the path that is asked for, over git's own protocol (gitprotocol-pack(5)).
    pub async fn git() -> Self {
        Self::start(|mut stream| async move {
            let mut length = [0; 4];
            stream.read_exact(&mut length).await.unwrap();
            let length = usize::from_str_radix(std::str::from_utf8(&length).unwrap(), 16).unwrap();
            let mut request = vec![0; length - 4];
            stream.read_exact(&mut request).await.unwrap();
            let request = String::from_utf8(request).unwrap();
            let path = request.strip_prefix("git-upload-pack ").unwrap().split('\0').next().unwrap();
            let mut git = Command::new("git");
            git.args(["upload-pack", path]).stdin(Stdio::piped()).stdout(Stdio::piped());
            relay(stream, git.spawn().unwrap()).await;
        })
        .await
    }

    /// Serves SSH by the sshd of `images/dev`, a container for each connection. The directory has the key `host`, the file
    /// `sshd_config`, and all that the configuration names; it is `/tmp/keys` there.
    pub async fn ssh(directory: PathBuf) -> Self {
        let image = dev_image();
        let mount = format!("{}:/keys:ro", directory.display());
        let script = "cp -r /keys /tmp/keys && chmod 600 /tmp/keys/host && exec /usr/sbin/sshd -i -e -f /tmp/keys/sshd_config";
        Self::start(move |stream| {
            let mut docker = Command::from(docker());
            docker.args(["run", "--rm", "--interactive", "--network", "none", "--volume", &mount]);
            docker.args([image.as_str(), "sh", "-c", script]).kill_on_drop(true);
            relay(stream, docker.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
        })
        .await
    }

    async fn start<F: Future<Output = ()> + Send + 'static>(
        serve: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream));
            }
        });
        Self { port, connections }
    }

    /// Returns the number of connections that arrived.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Answers a request over HTTP with its first line.
async fn answer<S: AsyncRead + AsyncWrite + Unpin>(stream: S) {
    answer_with(stream, "", |line| format!("{line}\n")).await;
}

/// Answers a request over HTTP with these further headers, and a body that is made of its first line.
async fn answer_with<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    headers: &str,
    body: impl FnOnce(&str) -> String,
) {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let body = body(head.lines().next().unwrap_or_default());
    let answer = format!(
        "HTTP/1.1 200 OK\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// Connects a client to the input and output of a program, until it ends.
async fn relay(stream: TcpStream, mut program: Child) {
    let (mut to_program, mut from_program) = (program.stdin.take().unwrap(), program.stdout.take().unwrap());
    let (mut input, mut output) = stream.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut input, &mut to_program).await });
    let _ = tokio::io::copy(&mut from_program, &mut output).await;
    let _ = program.wait().await;
}
