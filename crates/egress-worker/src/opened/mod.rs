//! Connections whose TLS is ended here, so that each request can be looked at.
//!
//! ```text
//! program ── TLS, certificate of the process's authority ── requests ── TLS, verified ── server
//! ```
//!
//! The server comes first: the program gets the protocol that the server has chosen of its offer, so that both sides speak the same.

use std::rc::Rc;
use std::sync::Arc;

use hyper::StatusCode;
use rustix::net::sockopt::set_tcp_quickack;
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::server::Acceptor;
use wire::worker::v1::ConnectionReady;
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::from_egress::Body;

use crate::connection::{Connection, SLOW};
use crate::fault::Fault;
use crate::http::{Refused, Requests, serve_http1, serve_http2};
use crate::orders::Inspect;
use crate::stream::{Counted, ProgramStream, Raw, ServerStream, Stream};
use crate::tls::{self, HTTP1, HTTP2, Unconnected};

/// Both sides of a connection.
struct Begun {
    program: ProgramStream,
    /// The refusal of all requests, if the certificate of the server is not valid.
    server: Result<ServerStream, Refused>,
    /// The protocol of both sides, as ALPN names it; `None` if none was agreed on.
    protocol: Option<Vec<u8>>,
}

/// Serves a connection whose TLS is ended here, to its end.
pub(crate) async fn serve(connection: Rc<Connection>, inspect: Inspect) -> Result<(), Cause> {
    let fault = Rc::new(Fault::default());
    let begun = tokio::select! {
        end = connection.orders.ended() => return Err(end.into()),
        cause = fault.wait() => return Err(cause),
        begun = begin(&connection, &inspect.name, &fault) => begun?,
    };
    // The program may leave before.
    let Some(Begun { program, server, protocol }) = begun else { return Ok(()) };
    let mut requests = Requests::new(connection, fault, inspect);
    let server = match server {
        Ok(server) => Some(server),
        Err(refused) => {
            requests = requests.refused(refused);
            None
        }
    };
    if protocol.as_deref() == Some(HTTP2) {
        serve_http2(requests, program, server).await
    } else {
        serve_http1(requests, program, server).await
    }
}

/// Reads the ClientHello, asks the daemon, and begins TLS with the server and then with the program. `None` if the program leaves.
async fn begin(connection: &Rc<Connection>, name: &str, fault: &Rc<Fault>) -> Result<Option<Begun>, Cause> {
    let looked = timeout(SLOW, connection.client_hello(name)).await;
    let (hello, bytes) = looked.map_err(|_| Cause::Slow)??;
    connection
        .say(Body::Connection(ConnectionReady {
            server_name: hello.server_name,
            request: None,
            encrypted_client_hello: hello.has_encrypted,
        }))
        .await;
    // The bytes are there already.
    let raw = Raw::new(Rc::clone(connection), bytes);
    let accept = timeout(SLOW, LazyConfigAcceptor::new(Acceptor::default(), raw)).await;
    let start = accept.map_err(|_| Cause::Slow)?.map_err(|_| Cause::Tls)?;
    let offer = offer(start.client_hello().alpn())?;
    let certificate = connection.process.authority.as_ref().ok_or(Cause::Tls)?;
    let address = connection.destination.ip();
    let shown = if name.is_empty() { address.to_string() } else { name.to_owned() };
    let certificate = certificate.leaf(&shown).map_err(|_| Cause::Tls)?;

    let Some(server) = connection.connect_for_program().await? else { return Ok(None) };
    connection.meter.touch();
    let counted = Counted::new(server, Rc::clone(connection), Rc::clone(fault));
    let server_name = ServerName::try_from(shown.clone()).map_err(|_| Cause::Unverified)?;
    let connected = tls::connect(&connection.process.servers(), server_name, offer.clone(), counted).await;
    let (server, protocol) = match connected {
        Ok(stream) => {
            let protocol = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
            (Ok(Stream::Tls(Box::new(stream))), protocol)
        }
        Err(Unconnected::Unverified(why)) => {
            let words = format!("The certificate of {shown} is not valid: {why}.");
            let refused = Refused::new(StatusCode::BAD_GATEWAY, Cause::Unverified, &words);
            (Err(refused), simplest(offer))
        }
        Err(Unconnected::Failed) => return Err(fault.get().unwrap_or(Cause::Reset)),
    };

    let config = tls::program(certificate, protocol.clone()).map_err(|_| Cause::Tls)?;
    let accept = start.into_stream_with(Arc::new(config), |tls| tls.set_buffer_limit(Some(tls::BUFFER)));
    let program = timeout(SLOW, accept).await.map_err(|_| Cause::Slow)?;
    // A program that does not trust the authority says so, or just leaves.
    let program = program.map_err(|_| unaccepted(&server))?;
    // No ticket follows that would carry the acknowledgement, and a client that waits for one before its request (RFC 896) would lose the
    // 40 ms of a delayed one.
    let _ = set_tcp_quickack(&connection.program, true);
    Ok(Some(Begun { program: Stream::Tls(Box::new(program)), server, protocol }))
}

/// Returns the cause of a program's end in the handshake. That of its server goes before it.
fn unaccepted(server: &Result<ServerStream, Refused>) -> Cause {
    server.as_ref().map_or_else(|refused| refused.cause, |_| Cause::Tls)
}

/// Returns the protocols of a program's offer that are looked at, in its order. An offer of others alone leaves nothing.
fn offer<'a>(alpn: Option<impl Iterator<Item = &'a [u8]>>) -> Result<Vec<Vec<u8>>, Cause> {
    let Some(offered) = alpn else { return Ok(Vec::new()) };
    let mut offer: Vec<Vec<u8>> = Vec::new();
    for protocol in offered.filter(|protocol| [HTTP1, HTTP2].contains(protocol)) {
        if !offer.iter().any(|one| one == protocol) {
            offer.push(protocol.to_vec());
        }
    }
    if offer.is_empty() { Err(Cause::WrongScheme) } else { Ok(offer) }
}

/// Returns the protocol of an offer in which a program gets the reason why it has no server.
fn simplest(offer: Vec<Vec<u8>>) -> Option<Vec<u8>> {
    // `http/1.1` is after `h2`.
    offer.into_iter().max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_has_the_protocols_that_are_looked_at_in_their_order() {
        let of = |protocols: &[&'static str]| {
            offer(Some(protocols.iter().map(|protocol| protocol.as_bytes())))
                .map(|offer| offer.into_iter().map(|one| String::from_utf8(one).unwrap()).collect::<Vec<_>>())
        };
        assert_eq!(of(&["h2", "http/1.1"]).unwrap(), ["h2", "http/1.1"]);
        assert_eq!(of(&["http/1.1", "spdy/3", "h2", "h2"]).unwrap(), ["http/1.1", "h2"]);
        assert_eq!(of(&["http/1.0", "h3", "acme-tls/1"]), Err(Cause::WrongScheme));
        assert_eq!(offer(None::<std::iter::Empty<&[u8]>>), Ok(Vec::new()));
    }

    #[test]
    fn a_program_without_a_server_is_answered_in_the_older_protocol() {
        assert_eq!(simplest(vec![HTTP2.to_vec(), HTTP1.to_vec()]).as_deref(), Some(HTTP1));
        assert_eq!(simplest(vec![HTTP2.to_vec()]).as_deref(), Some(HTTP2));
        assert_eq!(simplest(Vec::new()), None);
    }
}
