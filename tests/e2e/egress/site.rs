//! A site over HTTP/1, with TLS or without: files, uploads, events word by word, and an echo over WebSocket.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use harness::Certificates;
use parking_lot::Mutex;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

/// Bytes of `/large`.
pub(super) const LARGE: usize = 100 << 20;
/// Words of `/events`. The last comes after the silence.
pub(super) const WORDS: [&str; 5] = ["one", "two", "three", "four", "five"];

/// Files by their paths.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

pub(super) struct Site {
    pub(super) port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    files: Mutex<Files>,
    silence: Duration,
    /// First lines of requests.
    requests: Mutex<Vec<String>>,
    /// Tells of each request for `/heard`.
    heard: Notify,
}

/// The parts of a request that count.
struct Request {
    method: String,
    path: String,
    length: usize,
    key: String,
}

impl Site {
    /// Starts a site. `silence` is the time before the last word.
    pub(super) async fn start(certificates: Option<&Certificates>, silence: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared =
            Shared { files: Mutex::default(), silence, requests: Mutex::default(), heard: Notify::new() };
        let shared = Arc::new(shared);
        let acceptor = certificates.map(Certificates::acceptor);
        let serving = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(accept(Arc::clone(&serving), acceptor.clone(), stream));
            }
        });
        Self { port, shared }
    }

    /// Adds files.
    pub(super) fn put(&self, files: impl IntoIterator<Item = (String, Vec<u8>)>) {
        self.shared.files.lock().extend(files);
    }

    /// Returns the first lines of all requests.
    pub(super) fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().clone()
    }
}

async fn accept(shared: Arc<Shared>, acceptor: Option<TlsAcceptor>, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    match acceptor {
        Some(acceptor) => {
            if let Ok(stream) = acceptor.accept(stream).await {
                serve(&shared, stream).await;
            }
        }
        None => serve(&shared, stream).await,
    }
}

/// Serves one request. The client may leave at any time.
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(shared: &Shared, stream: S) {
    let mut stream = BufReader::with_capacity(64 << 10, stream);
    let Some(request) = read(&mut stream).await else { return };
    shared.requests.lock().push(format!("{} {}", request.method, request.path));
    let path = request.path.split('?').next().unwrap_or_default();
    let _ = match path {
        "/upload" => take(&mut stream, request.length).await,
        "/large" => give(&mut stream).await,
        "/events" => tell(shared, &mut stream).await,
        "/echo" => echo(&mut stream, &request.key).await,
        "/heard" => {
            shared.heard.notify_one();
            answer(&mut stream, "200 OK", b"").await
        }
        "/away" => {
            let to = request.path.split_once('?').unwrap_or_default().1;
            answer(&mut stream, &format!("302 Found\r\nLocation: {to}"), b"").await
        }
        path => {
            let file = shared.files.lock().get(path).cloned();
            match file {
                Some(file) => answer(&mut stream, "200 OK", &file).await,
                None => answer(&mut stream, "404 Not Found", b"no such file\n").await,
            }
        }
    };
    let _ = stream.shutdown().await;
}

async fn read<S: AsyncRead + Unpin>(stream: &mut BufReader<S>) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut request = Request { method, path, length: 0, key: String::new() };
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { return Some(request) };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => request.length = value.parse().ok()?,
            "sec-websocket-key" => value.clone_into(&mut request.key),
            _ => {}
        }
    }
}

async fn answer<S: AsyncWrite + Unpin>(stream: &mut S, status: &str, body: &[u8]) -> std::io::Result<()> {
    let kind = if body.starts_with(b"<") { "text/html" } else { "application/octet-stream" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await
}

/// Answers an upload with its digest.
async fn take<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut BufReader<S>,
    mut length: usize,
) -> std::io::Result<()> {
    let mut digest = Context::new(&SHA256);
    let mut buffer = vec![0; 64 << 10];
    while length > 0 {
        let most = length.min(buffer.len());
        let read = stream.read(&mut buffer[..most]).await?;
        if read == 0 {
            return Ok(());
        }
        digest.update(&buffer[..read]);
        length -= read;
    }
    let digest = hex::encode(digest.finish());
    answer(stream, "200 OK", digest.as_bytes()).await
}

/// Returns a part of `/large`, which is the same at each multiple of its length.
fn part() -> Vec<u8> {
    (0..1_u32 << 18).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

/// Returns the digest of `/large`.
pub(super) fn digest_of_large() -> String {
    let (mut digest, part) = (Context::new(&SHA256), part());
    for _ in 0..LARGE / part.len() {
        digest.update(&part);
    }
    hex::encode(digest.finish())
}

async fn give<S: AsyncWrite + Unpin>(stream: &mut S) -> std::io::Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let part = part();
    for _ in 0..LARGE / part.len() {
        stream.write_all(&part).await?;
    }
    Ok(())
}

/// Sends words. Each waits until the client has heard the one before, so none may be held back on the way.
async fn tell<S: AsyncWrite + Unpin>(shared: &Shared, stream: &mut S) -> std::io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    for (number, word) in WORDS.iter().enumerate() {
        if number + 1 == WORDS.len() {
            tokio::time::sleep(shared.silence).await;
        }
        stream.write_all(format!("data: {word}\n\n").as_bytes()).await?;
        stream.flush().await?;
        shared.heard.notified().await;
    }
    Ok(())
}

/// Sends back the frames of a WebSocket (RFC 6455), until one closes it.
async fn echo<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut BufReader<S>,
    key: &str,
) -> std::io::Result<()> {
    let accept =
        digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11").as_bytes());
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n\r\n",
        STANDARD.encode(accept)
    );
    stream.write_all(head.as_bytes()).await?;
    loop {
        // Of the client, each frame is masked, and each is short here.
        let (kind, length) = (stream.read_u8().await?, stream.read_u8().await? & 0x7f);
        let mut mask = [0; 4];
        stream.read_exact(&mut mask).await?;
        let mut bytes = vec![0; length.into()];
        stream.read_exact(&mut bytes).await?;
        for (byte, mask) in bytes.iter_mut().zip(mask.iter().cycle()) {
            *byte ^= mask;
        }
        stream.write_all(&[&[kind, length][..], &bytes].concat()).await?;
        stream.flush().await?;
        if kind & 0xf == 8 {
            return Ok(());
        }
    }
}
