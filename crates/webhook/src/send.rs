//! One delivery attempt: one POST, and the status of its answer. The body of the answer is not read.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, StatusCode};
#[cfg(test)]
use tokio_rustls::rustls::pki_types::CertificateDer;

use crate::endpoint::Endpoint;
use crate::exchange::exchange;
use crate::target::Target;
use crate::tls::Tls;

/// Client that posts webhooks. There is one for the daemon.
#[derive(Debug, Clone)]
pub struct Sender(Tls);

impl Sender {
    /// Makes a sender that trusts the certificates of this host.
    pub fn new() -> Result<Self, String> {
        Tls::new().map(Self)
    }

    #[cfg(test)]
    pub(crate) fn trusting(
        certificates: impl IntoIterator<Item = CertificateDer<'static>>,
    ) -> Result<Self, String> {
        Tls::trusting(certificates).map(Self)
    }

    /// Sends a body once. The error does not contain the URL's path.
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

    /// Posts a body with these headers within `patience`, and returns the status of the answer.
    pub async fn send(
        &self,
        target: &Target,
        headers: &[(&'static str, String)],
        body: &[u8],
        patience: Duration,
    ) -> Result<u16, String> {
        let sent = tokio::time::timeout(patience, self.request(target, headers, body)).await;
        sent.map_err(|_| "no answer in time".to_owned())?.map(|status| status.as_u16())
    }

    async fn request(
        &self,
        target: &Target,
        headers: &[(&'static str, String)],
        body: &[u8],
    ) -> Result<StatusCode, String> {
        let mut request = Request::post(&target.path)
            .header("host", &target.authority)
            .header("user-agent", concat!("cofferd/", env!("CARGO_PKG_VERSION")));
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request
            .header("connection", "close")
            .body(Full::new(Bytes::copy_from_slice(body)))
            .map_err(|_| "the request cannot be made")?;
        exchange(&self.0, target, request, async |answer| Ok(answer.status())).await
    }

    async fn attempt(
        &self,
        endpoint: &Endpoint,
        id: &str,
        timestamp: u64,
        body: &[u8],
    ) -> Result<(), Failed> {
        let mut headers = vec![("content-type", "application/json".to_owned())];
        if let Some(secret) = &endpoint.secret {
            headers.push(("webhook-id", id.to_owned()));
            headers.push(("webhook-timestamp", timestamp.to_string()));
            headers.push(("webhook-signature", secret.sign(id, timestamp, body)));
        }
        match self.request(&endpoint.target, &headers, body).await.map_err(Failed::retry)? {
            status if status.is_success() => Ok(()),
            // By the specification, this status means that no further messages are wanted.
            StatusCode::GONE => Err(Failed {
                message: "answered 410: the receiver wants no further messages".to_owned(),
                for_good: true,
            }),
            status => Err(Failed::retry(format!("answered {}", status.as_u16()))),
        }
    }
}

/// Error of a failed attempt.
#[derive(Debug, PartialEq, Eq)]
pub struct Failed {
    /// Reason, without the URL's path.
    pub message: String,
    /// True if another attempt would be useless.
    pub for_good: bool,
}

impl Failed {
    fn retry(message: impl Into<String>) -> Self {
        Self { message: message.into(), for_good: false }
    }
}

#[cfg(test)]
#[path = "send_tests.rs"]
mod tests;
