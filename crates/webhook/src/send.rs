//! One attempt: connect, TLS, one POST, the status. Nothing else: no redirect is followed, no proxy of the environment is
//! used, no body is read, and no connection is kept.

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
#[cfg(test)]
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::endpoint::Endpoint;
use crate::target::Target;
use crate::tls::Tls;

/// Bytes that the head of an answer may have.
const MAX_HEAD: usize = 16 * 1024;

/// Posts. One for the daemon.
#[derive(Debug, Clone)]
pub struct Sender(Tls);

impl Sender {
    /// Trusts what this host trusts.
    pub fn new() -> Result<Self, String> {
        Tls::new().map(Self)
    }

    #[cfg(test)]
    pub(crate) fn trusting(
        certificates: impl IntoIterator<Item = CertificateDer<'static>>,
    ) -> Result<Self, String> {
        Tls::trusting(certificates).map(Self)
    }

    /// Sends a body, once. Why it failed is said without a word of the URL's path.
    pub async fn post(
        &self,
        endpoint: &Endpoint,
        id: &str,
        timestamp: u64,
        body: &[u8],
    ) -> Result<(), Failed> {
        let attempt = self.attempt(endpoint, id, timestamp, body);
        tokio::time::timeout(endpoint.timeout, attempt)
            .await
            .map_err(|_| Failed::retry("no answer in time"))?
    }

    async fn attempt(
        &self,
        endpoint: &Endpoint,
        id: &str,
        timestamp: u64,
        body: &[u8],
    ) -> Result<(), Failed> {
        let Target { host, port, tls, .. } = &endpoint.target;
        let stream = TcpStream::connect((host.as_str(), *port))
            .await
            .map_err(|error| Failed::retry(format!("cannot connect: {}", error.kind())))?;
        let status = if *tls {
            let name = ServerName::try_from(host.clone())
                .map_err(|_| Failed::retry("the host has no valid name"))?;
            let connected = TlsConnector::from(self.0.config()).connect(name, stream).await;
            let stream = connected.map_err(|error| Failed::retry(format!("TLS failed: {error}")))?;
            exchange(stream, endpoint, id, timestamp, body).await?
        } else {
            exchange(stream, endpoint, id, timestamp, body).await?
        };
        match status {
            status if status.is_success() => Ok(()),
            // The specification's way of saying that nothing more is wanted.
            StatusCode::GONE => {
                Err(Failed { message: "answered 410: it is not wanted there".to_owned(), for_good: true })
            }
            status => Err(Failed::retry(format!("answered {}", status.as_u16()))),
        }
    }
}

/// Why an attempt failed.
#[derive(Debug, PartialEq, Eq)]
pub struct Failed {
    /// Why, without a word of the URL's path.
    pub message: String,
    /// Trying again is of no use.
    pub for_good: bool,
}

impl Failed {
    fn retry(message: impl Into<String>) -> Self {
        Self { message: message.into(), for_good: false }
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    endpoint: &Endpoint,
    id: &str,
    timestamp: u64,
    body: &[u8],
) -> Result<StatusCode, Failed> {
    let failed = |error: hyper::Error| Failed::retry(format!("no answer: {error}"));
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(MAX_HEAD).handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let request = Request::post(&endpoint.target.path)
        .header("host", &endpoint.target.authority)
        .header("user-agent", concat!("cofferd/", env!("CARGO_PKG_VERSION")))
        .header("content-type", "application/json")
        .header("connection", "close")
        .header("webhook-id", id)
        .header("webhook-timestamp", timestamp)
        .header("webhook-signature", endpoint.secret.sign(id, timestamp, body))
        .body(Full::new(Bytes::copy_from_slice(body)))
        .map_err(|_| Failed::retry("the request cannot be made"))?;
    // Both end with this function: neither is awaited longer than the answer's head takes.
    let mut connection = std::pin::pin!(connection);
    let mut answer = std::pin::pin!(sender.send_request(request));
    tokio::select! {
        biased;
        answer = &mut answer => Ok(answer.map_err(failed)?.status()),
        ended = &mut connection => match ended {
            Err(error) => Err(failed(error)),
            Ok(()) => Ok(answer.await.map_err(failed)?.status()),
        },
    }
}

#[cfg(test)]
#[path = "send_tests.rs"]
mod tests;
