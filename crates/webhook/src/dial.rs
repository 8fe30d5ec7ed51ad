//! Opens a connection to a target, over TLS if its URL says so.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::target::Target;
use crate::tls::Tls;

/// A stream to a target.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Connects to `target`. `protocol` is the one that TLS negotiates; `None` names none.
///
/// No proxy of the environment is used. Messages do not contain the URL's path.
pub async fn dial(tls: &Tls, target: &Target, protocol: Option<&[u8]>) -> Result<Box<dyn Stream>, String> {
    let Target { host, port, .. } = target;
    let stream = TcpStream::connect((host.as_str(), *port))
        .await
        .map_err(|error| format!("cannot connect: {}", error.kind()))?;
    if !target.tls {
        return Ok(Box::new(stream));
    }
    let mut config = tls.config();
    if let Some(protocol) = protocol {
        Arc::make_mut(&mut config).alpn_protocols = vec![protocol.to_vec()];
    }
    let name = ServerName::try_from(host.clone()).map_err(|_| "the host has no valid name")?;
    let connected = TlsConnector::from(config).connect(name, stream).await;
    Ok(Box::new(connected.map_err(|error| format!("TLS failed: {error}"))?))
}
