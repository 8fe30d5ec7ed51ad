//! The floods that clients without a place of their own send, each from sixteen addresses.

#![allow(clippy::unwrap_used)] // what cannot be set up ends it

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use harness::frames::{
    DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, RESET, SETTINGS, client_hello, frame, request,
};
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use wire::v1;

/// Addresses that floods come from: 127.0.1.1 and on.
const ADDRESSES: u64 = 16;
/// Streams that one connection opens and resets.
const STREAMS: u64 = 1_000;
/// Calls that wait, on each connection.
const WAITING: u32 = 100;
/// Frames without a request that one connection sends.
const FRAMES: usize = 20_000;
/// A connection that the daemon does not end.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time that calls, heads and bodies are held open.
const HELD: Duration = Duration::from_millis(500);

/// What is sent without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flood {
    Handshakes,
    HalfOpen,
    Resets,
    /// WaitProcess, by one run's token.
    Waits,
    /// PING acknowledgements before anything else.
    Frames,
    /// Half a head, to the MCP endpoint.
    Heads,
    /// Half a body with one run's token, to the MCP endpoint.
    Bodies,
}

impl Flood {
    pub(crate) const ALL: [(&'static str, Self); 7] = [
        ("handshakes", Self::Handshakes),
        ("half-open", Self::HalfOpen),
        ("rapid resets", Self::Resets),
        ("waiting calls", Self::Waits),
        ("lone frames", Self::Frames),
        ("half heads", Self::Heads),
        ("half bodies", Self::Bodies),
    ];

    /// Returns how much of it is sent.
    pub(crate) fn number(self) -> u64 {
        let long = std::env::var_os("COFFERDAM_LONG").is_some();
        match self {
            Self::Handshakes | Self::HalfOpen => {
                if long {
                    200_000
                } else {
                    2_000
                }
            }
            Self::Resets => {
                if long {
                    10_000
                } else {
                    2_000
                }
            }
            Self::Waits | Self::Frames | Self::Heads | Self::Bodies => {
                if long {
                    20_000
                } else {
                    2_000
                }
            }
        }
    }

    /// Whether it goes to the MCP endpoint.
    pub(crate) fn is_of_mcp(self) -> bool {
        matches!(self, Self::Heads | Self::Bodies)
    }

    fn step(self) -> u64 {
        if self == Self::Resets { STREAMS } else { 1 }
    }
}

/// A run whose token floods.
#[derive(Debug, Clone)]
pub(crate) struct Flooding {
    pub(crate) run: String,
    pub(crate) process: String,
    pub(crate) token: String,
}

/// Receiver of the floods.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) mcp: SocketAddr,
    pub(crate) tls: TlsConnector,
    pub(crate) token: String,
    pub(crate) run: Flooding,
    pub(crate) left: Arc<AtomicU64>,
    pub(crate) answered: Arc<AtomicU64>,
}

impl Target {
    /// Sends its part of a flood, from one address after the other.
    pub(crate) async fn flood(self, flood: Flood, first: u64) {
        let take = |left: u64| left.checked_sub(flood.step());
        for number in first.. {
            if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
                return;
            }
            let one = async {
                let address = if flood.is_of_mcp() { self.mcp } else { self.address };
                let stream = connect(address, number % ADDRESSES).await?;
                match flood {
                    Flood::Handshakes => self.shake_hands(stream).await.map(drop),
                    Flood::HalfOpen => half_open(stream).await,
                    Flood::Resets => self.reset(stream).await,
                    Flood::Waits => self.wait(stream).await,
                    Flood::Frames => self.frames(stream).await,
                    Flood::Heads => hold(stream, "POST /mcp HTTP/1.1\r\nHost: localhost\r\n").await,
                    Flood::Bodies => hold(stream, &self.half_body()).await,
                }
            };
            if let Ok(Some(())) = timeout(PATIENCE, one).await {
                self.answered.fetch_add(flood.step(), Ordering::Relaxed);
            }
        }
    }

    async fn shake_hands(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        self.tls.connect(ServerName::try_from("localhost").unwrap(), stream).await.ok()
    }

    /// Opens streams and resets them at once, until the daemon has enough of it.
    async fn reset(&self, stream: TcpStream) -> Option<()> {
        let block = request("/cofferdam.v1.RunService/WatchRuns", &self.token);
        let mut bytes = greeting();
        for number in 0..u32::try_from(STREAMS).unwrap_or(0) {
            bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &block));
            bytes.extend(frame(RESET, 0, 2 * number + 1, &8_u32.to_be_bytes()));
        }
        let mut stream = self.shake_hands(stream).await?;
        let _ = stream.write_all(&bytes).await;
        until_closed(stream).await;
        Some(())
    }

    /// Waits for a process that does not end, as often as a connection has streams.
    async fn wait(&self, stream: TcpStream) -> Option<()> {
        let message = v1::WaitProcessRequest {
            run_id: self.run.run.clone(),
            process_id: self.run.process.clone(),
            timeout: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
        };
        let message = message.encode_to_vec();
        let length = u32::try_from(message.len()).unwrap_or(0).to_be_bytes();
        let message = [&[0][..], &length, &message].concat();
        let block = request("/cofferdam.v1.ProcessService/WaitProcess", &self.run.token);
        let mut bytes = greeting();
        for number in 0..WAITING {
            bytes.extend(frame(HEADERS, END_HEADERS, 2 * number + 1, &block));
            bytes.extend(frame(DATA, END_STREAM, 2 * number + 1, &message));
        }
        let mut stream = self.shake_hands(stream).await?;
        stream.write_all(&bytes).await.ok()?;
        let _ = timeout(HELD, until_closed(stream)).await;
        Some(())
    }

    /// Sends frames that belong to no stream, until the connection is closed.
    async fn frames(&self, stream: TcpStream) -> Option<()> {
        let mut stream = self.shake_hands(stream).await?;
        let bytes = [greeting(), frame(PING, 1, 0, &[0; 8]).repeat(FRAMES)].concat();
        let _ = stream.write_all(&bytes).await;
        until_closed(stream).await;
        Some(())
    }

    fn half_body(&self) -> String {
        format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\
             Authorization: Bearer {}\r\n\r\n{{",
            self.run.token
        )
    }
}

async fn connect(to: SocketAddr, from: u64) -> Option<TcpStream> {
    let from = Ipv4Addr::new(127, 0, 1, u8::try_from(from).unwrap_or(0) + 1);
    let socket = TcpSocket::new_v4().ok()?;
    // Half a million connections in TIME_WAIT leave no ports.
    socket.set_zero_linger().ok()?;
    socket.bind((from, 0).into()).ok()?;
    socket.connect(to).await.ok()
}

fn greeting() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

async fn until_closed(mut stream: TlsStream<TcpStream>) {
    let mut answer = [0; 4_096];
    while stream.read(&mut answer).await.is_ok_and(|count| count > 0) {}
}

/// A ClientHello, the ServerHello, and no more.
async fn half_open(mut stream: TcpStream) -> Option<()> {
    stream.write_all(&client_hello()).await.ok()?;
    stream.read_exact(&mut [0; 64]).await.ok().map(drop)
}

/// The beginning of a request, and no more.
async fn hold(mut stream: TcpStream, beginning: &str) -> Option<()> {
    stream.write_all(beginning.as_bytes()).await.ok()?;
    sleep(HELD).await;
    Some(())
}
