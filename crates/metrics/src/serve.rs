//! Serves the metrics: `GET /metrics`, and nothing else.
//!
//! A scraper is a client like any other, and may be hostile: connections are few, also for each address, each request has a deadline,
//! and a body is not read.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::{Addresses, ConnectionLimits, Slot};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE as TYPE, HOST, HeaderValue, WWW_AUTHENTICATE};
use hyper::http::uri::Authority;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::RwLock;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Type of the answer.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Most profiles of one question.
const PROFILES: usize = 16;
/// Most connections at the same time. A further one takes the place of the oldest without a credential, or is closed.
const CONNECTIONS: usize = 16;
/// Most connections of one address. New ones in a second are not limited: clients behind one proxy have one address.
const CONNECTIONS_PER_ADDRESS: usize = 12;
/// Time that a client has for the head of a request.
const HEAD: Duration = Duration::from_secs(10);
/// Longest life of a connection. A scraper connects again.
const LIFE: Duration = Duration::from_secs(300);
/// Time for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Wait after a failure to accept, such as too many open files.
const AGAIN: Duration = Duration::from_millis(100);

/// A stream to a client.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Handshake = Pin<Box<dyn Future<Output = io::Result<(Box<dyn Stream>, bool)>> + Send>>;
/// The metrics of one moment.
pub type Text = Pin<Box<dyn Future<Output = String> + Send>>;

/// What is served.
pub trait Pages: Send + Sync + 'static {
    /// Makes the metrics of the moment.
    fn metrics(&self) -> Text;

    /// Returns true if the server is ready, also for these profiles, and a line for each condition.
    fn readiness(&self, profiles: &[String]) -> (bool, String);
}

/// The token that a client has to send. Clones share it.
#[derive(Clone, Default)]
pub struct TokenInForce(Arc<RwLock<Option<[u8; 32]>>>);

impl TokenInForce {
    /// Replaces the token. `None` if none is needed.
    pub fn set(&self, token: Option<&str>) {
        *self.0.write() = token.map(|token| Sha256::digest(token).into());
    }
}

/// Access to the metrics.
pub struct Access {
    token: TokenInForce,
    /// Makes a connection confidential, and says if the client showed a certificate that is accepted. `None` for plain TCP.
    tls: Option<Box<dyn Fn(TcpStream) -> Handshake + Send + Sync>>,
}

impl Access {
    /// Lets everybody read who can connect.
    pub fn open() -> Self {
        Self { token: TokenInForce::default(), tls: None }
    }

    /// Lets clients read that send this bearer token.
    #[must_use]
    pub fn token(self, token: &str) -> Self {
        self.token.set(Some(token));
        self
    }

    /// Returns the token in force, for a caller that replaces it later.
    pub fn token_in_force(&self) -> TokenInForce {
        self.token.clone()
    }

    /// Serves TLS. Clients whose certificate is accepted need no token.
    #[must_use]
    pub fn tls<F>(mut self, handshake: impl Fn(TcpStream) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<(Box<dyn Stream>, bool)>> + Send + 'static,
    {
        self.tls = Some(Box::new(move |stream| Box::pin(handshake(stream))));
        self
    }

    /// Returns true if some clients have no access.
    fn needs_credential(&self) -> bool {
        self.token.0.read().is_some() || self.tls.is_some()
    }

    fn admits(&self, request: &Request<Incoming>, is_certified: bool) -> bool {
        let Some(token) = *self.token.0.read() else { return self.tls.is_none() || is_certified };
        let sent = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
        let sent = sent.and_then(|sent| sent.split_at_checked(7));
        let sent = sent.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer ")).map(|(_, sent)| sent);
        is_certified || sent.is_some_and(|sent| Sha256::digest(sent)[..].ct_eq(&token).into())
    }
}

/// Serves until `stop`.
pub async fn serve(listener: TcpListener, access: Access, pages: impl Pages, stop: CancellationToken) {
    let (access, pages) = (Arc::new(access), Arc::new(pages));
    let addresses = Addresses::new(ConnectionLimits {
        connections: CONNECTIONS,
        per_address: CONNECTIONS_PER_ADDRESS,
        per_second: u32::MAX,
        spare: 0,
    });
    loop {
        let Some(accepted) = stop.run_until_cancelled(listener.accept()).await else { return };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection for metrics could not be accepted");
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        let Some(slot) = addresses.enter(from.ip().to_canonical(), Instant::now()) else {
            // Other work goes first: a flood is rejected with the processor time that is left.
            drop(stream);
            tokio::task::yield_now().await;
            continue;
        };
        let (access, pages, stop) = (Arc::clone(&access), Arc::clone(&pages), stop.clone());
        tokio::spawn(async move {
            let evicted = slot.evicted();
            tokio::select! {
                _ = timeout(LIFE, connection(stream, (from, &slot), &access, &*pages)) => {}
                () = evicted => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

async fn connection(
    stream: TcpStream,
    (from, slot): (SocketAddr, &Slot),
    access: &Access,
    pages: &impl Pages,
) {
    let (stream, is_certified): (Box<dyn Stream>, bool) = match &access.tls {
        None => (Box::new(stream), false),
        Some(tls) => {
            let Ok(Ok(opened)) = timeout(HANDSHAKE, tls(stream)).await else {
                tracing::debug!(%from, "a TLS handshake for metrics failed");
                return;
            };
            opened
        }
    };
    let service = service_fn(|request: Request<Incoming>| async move {
        // A browser that another site led here by its name has no credential.
        if !access.needs_credential() && !request.headers().get_all(HOST).iter().all(names_this_host) {
            let told =
                "the name is not localhost: set metrics.token_file to serve the metrics under each name\n";
            return Ok::<_, Infallible>(plain(StatusCode::MISDIRECTED_REQUEST, told));
        }
        let is_admitted = access.admits(&request, is_certified);
        if is_admitted && access.needs_credential() {
            slot.prove();
        }
        Ok::<_, Infallible>(answer(&request, is_admitted, pages).await)
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(16 * 1024).max_headers(64);
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: &Request<Incoming>, is_admitted: bool, pages: &impl Pages) -> Response<Full<Bytes>> {
    if !is_admitted {
        let mut answer =
            plain(StatusCode::UNAUTHORIZED, "send the token of metrics.token_file as a bearer token\n");
        answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        // A client without a credential keeps no connection of the few.
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        return answer;
    }
    let path = request.uri().path();
    if !["/metrics", "/readyz", "/livez"].contains(&path) {
        return plain(
            StatusCode::NOT_FOUND,
            "the metrics are at /metrics, the health at /readyz and /livez\n",
        );
    }
    if request.method() != Method::GET {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "the pages are read with GET\n");
    }
    match path {
        "/metrics" => {
            let mut answer = Response::new(Full::new(Bytes::from(pages.metrics().await)));
            answer.headers_mut().insert(TYPE, HeaderValue::from_static(CONTENT_TYPE));
            answer
        }
        "/readyz" => {
            let Some(profiles) = profiles(request.uri().query().unwrap_or_default()) else {
                return plain(StatusCode::BAD_REQUEST, "the query is profile=NAME, at most 16 times\n");
            };
            let (is_ready, told) = pages.readiness(&profiles);
            let mut answer =
                plain(if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, "");
            *answer.body_mut() = Full::new(Bytes::from(told));
            answer
        }
        // It answers, so it is alive.
        _ => plain(StatusCode::OK, "alive\n"),
    }
}

/// Returns true for a host that no other site can have: an address, or a name of the loopback interface.
fn names_this_host(host: &HeaderValue) -> bool {
    let Ok(host) = Authority::try_from(host.as_bytes()) else { return false };
    let name = host.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    name.parse::<IpAddr>().is_ok() || name == "localhost" || name.ends_with(".localhost")
}

/// Reads the names of profiles in the query of `/readyz`. `None` if it has anything else.
fn profiles(query: &str) -> Option<Vec<String>> {
    let is_name = |name: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
        (1..=64).contains(&name.len()) && name.chars().all(plain)
    };
    let names = query.split('&').filter(|part| !part.is_empty());
    let names: Option<Vec<String>> = names
        .map(|part| part.strip_prefix("profile=").filter(|name| is_name(name)).map(str::to_owned))
        .take(PROFILES + 1)
        .collect();
    names.filter(|names| names.len() <= PROFILES)
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *answer.status_mut() = status;
    answer
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpSocket;

    use super::*;

    async fn started(access: Access) -> (SocketAddr, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        tokio::spawn(serve(listener, access, Fixed, stop.clone()));
        (address, stop)
    }

    /// Is ready but for the profile `none`.
    struct Fixed;

    impl Pages for Fixed {
        fn metrics(&self) -> Text {
            Box::pin(async { "# EOF\n".to_owned() })
        }

        fn readiness(&self, profiles: &[String]) -> (bool, String) {
            (!profiles.contains(&"none".to_owned()), format!("asked for {}\n", profiles.join(" ")))
        }
    }

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    fn get(path: &str, more: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n")
    }

    #[tokio::test]
    async fn without_a_credential_no_name_of_another_site_leads_here() {
        let (open, _stop) = started(Access::open()).await;
        let (closed, _stop) = started(Access::open().token("secret")).await;
        let of = |host: &str| get("/metrics", "").replace("localhost", host);
        for host in ["127.0.0.1:9464", "[::1]:9464", "LOCALHOST", "metrics.localhost:80"] {
            assert!(ask(open, &of(host)).await.starts_with("HTTP/1.1 200 "), "{host}");
        }
        for host in [
            "evil.example.org",
            "evil.example.org:9464",
            "localhost.example.org",
            "127.0.0.1.example.org",
            "",
        ] {
            assert!(ask(open, &of(host)).await.starts_with("HTTP/1.1 421 "), "{host}");
            assert!(ask(closed, &of(host)).await.starts_with("HTTP/1.1 401 "), "{host}");
        }
        let with = of("metrics.example.org").replace("\r\n\r\n", "\r\nAuthorization: Bearer secret\r\n\r\n");
        assert!(ask(closed, &with).await.starts_with("HTTP/1.1 200 "));
    }

    #[tokio::test]
    async fn three_paths_are_served_and_only_for_get() {
        let (address, _stop) = started(Access::open()).await;
        let answer = ask(address, &get("/metrics", "")).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("# EOF\n"), "{answer}");
        assert!(answer.contains("application/openmetrics-text"), "{answer}");
        assert!(ask(address, &get("/", "")).await.starts_with("HTTP/1.1 404 "));
        let post = get("/metrics", "Content-Length: 0\r\n").replace("GET", "POST");
        assert!(ask(address, &post).await.starts_with("HTTP/1.1 405 "));
    }

    #[tokio::test]
    async fn readiness_is_asked_for_by_profile_and_life_by_itself() {
        let (address, _stop) = started(Access::open().token("secret")).await;
        let with = "Authorization: Bearer secret\r\n";
        let many = format!("/readyz?{}", "profile=a&".repeat(17));
        for (path, status, told) in [
            ("/livez", 200, "alive\n"),
            ("/readyz", 200, "asked for \n"),
            ("/readyz?profile=build&profile=open", 200, "asked for build open\n"),
            ("/readyz?profile=none", 503, "asked for none\n"),
            ("/readyz?profile=%0a", 400, "16 times\n"),
            ("/readyz?verbose", 400, "16 times\n"),
            (&many, 400, "16 times\n"),
        ] {
            let answer = ask(address, &get(path, with)).await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.ends_with(told),
                "{path}: {answer}"
            );
            assert!(ask(address, &get(path, "")).await.starts_with("HTTP/1.1 401 "), "{path}");
        }
    }

    #[tokio::test]
    async fn a_token_can_be_replaced_while_it_is_served() {
        let access = Access::open().token("secret");
        let token = access.token_in_force();
        let (address, _stop) = started(access).await;
        let status = async |with: &str| {
            let answer = ask(address, &get("/metrics", &format!("Authorization: Bearer {with}\r\n"))).await;
            answer[9..12].to_owned()
        };
        assert_eq!((status("secret").await, status("other").await), ("200".into(), "401".into()));
        token.set(Some("other"));
        assert_eq!((status("secret").await, status("other").await), ("401".into(), "200".into()));
        token.set(None);
        assert_eq!(status("").await, "200");
    }

    #[tokio::test]
    async fn a_token_is_asked_for_and_compared() {
        let (address, _stop) = started(Access::open().token("secret")).await;
        for (header, expected) in [
            ("", "401"),
            ("Authorization: Bearer other\r\n", "401"),
            ("Authorization: Basic secret\r\n", "401"),
            ("Authorization: Bearer secret\r\n", "200"),
            ("authorization: bearer secret\r\n", "200"),
        ] {
            let answer = ask(address, &get("/metrics", header)).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{header}: {answer}");
        }
        let kept_open = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let answer = timeout(Duration::from_secs(5), ask(address, kept_open)).await.expect("it stays open");
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    }

    #[tokio::test]
    async fn silent_connections_make_room_for_a_scraper() {
        let (address, _stop) = started(Access::open()).await;
        let mut silent = Vec::new();
        for _ in 0..2 * CONNECTIONS {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let asked = timeout(HEAD / 2, ask(address, &get("/metrics", ""))).await.expect("it waits");
        assert!(asked.starts_with("HTTP/1.1 200 "), "{asked}");
        assert_eq!(silent[0].read(&mut [0]).await.unwrap_or_default(), 0);
    }

    #[tokio::test]
    async fn one_address_leaves_places_for_others() {
        let (address, _stop) = started(Access::open().token("secret")).await;
        let request = "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n\r\n";
        let mut proven = Vec::new();
        for _ in 0..CONNECTIONS_PER_ADDRESS {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            assert!(stream.read(&mut [0; 512]).await.unwrap() > 0);
            proven.push(stream);
        }
        let mut further = TcpStream::connect(address).await.unwrap();
        assert_eq!(further.read(&mut [0]).await.unwrap_or_default(), 0);
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut other = socket.connect(address).await.unwrap();
        other.write_all(request.as_bytes()).await.unwrap();
        assert!(other.read(&mut [0; 512]).await.unwrap() > 0);
        drop(proven);
    }

    #[tokio::test]
    async fn garbage_and_large_heads_end_their_connection_alone() {
        let (address, stop) = started(Access::open()).await;
        let large = get("/metrics", &format!("X: {}\r\n", "x".repeat(64 * 1024)));
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The server may close before all of it is written.
        let _ = stream.write_all(large.as_bytes()).await;
        let mut garbage = TcpStream::connect(address).await.unwrap();
        garbage.write_all(b"\x00\xff\r\n\r\n").await.unwrap();
        assert!(ask(address, &get("/metrics", "")).await.starts_with("HTTP/1.1 200 "));
        stop.cancel();
    }
}
