//! The connection to the server, over HTTP/1.

use std::future::poll_fn;
use std::rc::Rc;

use hyper::StatusCode;
use hyper::client::conn::http1::{Builder as Client, Parts, SendRequest};
use tokio::task::{JoinHandle, spawn_local};
use tokio_rustls::rustls::pki_types::ServerName;
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::from_egress::Body as Message;
use wire::worker::v1::{ConnectionReady, HttpRequest};

use super::body::Outgoing;
use super::rule::Refused;
use super::{BUFFER, Exchange};
use crate::stream::{Counted, Hyper, ServerStream, Stream};
use crate::tls::{HTTP1, Unconnected, connect};

/// The task that drives the connection to the server. It ends with its parts, if there was no error.
pub(super) struct Link(pub(super) JoinHandle<Option<Parts<Hyper<ServerStream>>>>);

impl Drop for Link {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Exchange {
    /// Asks the daemon with the first request, and connects.
    pub(super) async fn connect(
        self: &Rc<Self>,
        record: &HttpRequest,
    ) -> Result<SendRequest<Outgoing>, Option<Refused>> {
        let connection = &self.requests.connection;
        let request = Some(record.clone());
        let ready = ConnectionReady { request, ..ConnectionReady::default() };
        connection.say(Message::Connection(ready)).await;
        let addresses = connection.orders.addresses().await.map_err(|end| self.ended(&end))?;
        let stream = connection.dial(&addresses).await.map_err(|cause| {
            let words = "No address of the server could be connected to.";
            Some(Refused::new(StatusCode::BAD_GATEWAY, cause, words))
        })?;
        connection.meter.touch();
        let stream = Counted::new(stream, Rc::clone(connection), Rc::clone(&self.requests.fault));
        self.link(self.secure(stream).await?).await
    }

    /// Begins TLS to an upstream that needs it.
    async fn secure(&self, stream: Counted) -> Result<ServerStream, Option<Refused>> {
        let Some(upstream) = self.requests.rule.upstream.as_ref().filter(|upstream| upstream.tls) else {
            return Ok(Stream::Plain(stream));
        };
        let bad_gateway = |cause, words: &str| Some(Refused::new(StatusCode::BAD_GATEWAY, cause, words));
        let name = ServerName::try_from(upstream.host.clone())
            .map_err(|_| bad_gateway(Cause::Unverified, "The server of the rule has no name for TLS."))?;
        let servers = self.requests.connection.process.servers();
        match connect(&servers, name, vec![HTTP1.to_vec()], stream).await {
            Ok(stream) => Ok(Stream::Tls(Box::new(stream))),
            Err(Unconnected::Unverified(why)) => {
                let words = format!("The certificate of the server of this rule is not valid: {why}.");
                Err(bad_gateway(Cause::Unverified, &words))
            }
            Err(Unconnected::Failed) => {
                // The bound of bytes, perhaps.
                self.requests.fault.get().map_or_else(
                    || Err(bad_gateway(Cause::Reset, "TLS to the server of this rule failed.")),
                    |_| Err(None),
                )
            }
        }
    }

    /// Begins HTTP with the server.
    pub(super) async fn link(
        self: &Rc<Self>,
        stream: ServerStream,
    ) -> Result<SendRequest<Outgoing>, Option<Refused>> {
        let mut builder = Client::new();
        builder.preserve_header_case(true).max_buf_size(2 * BUFFER);
        let handshake = builder.handshake(Hyper::server(stream)).await;
        let (sender, mut driver) = handshake.map_err(|_| self.failed(Cause::Reset))?;
        let exchange = Rc::clone(self);
        let driver = spawn_local(async move {
            let result = poll_fn(|cx| driver.poll_without_shutdown(cx)).await;
            exchange.has_ended.set(true);
            exchange.server_ended.notify_one();
            result.is_ok().then(|| driver.into_parts())
        });
        self.server.replace(Some(Link(driver)));
        Ok(sender)
    }
}
