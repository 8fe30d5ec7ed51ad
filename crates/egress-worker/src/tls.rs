//! TLS on both sides of an opened connection.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ring::digest::{SHA256, digest};
use signature_twins::twins;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error, RootCertStore, ServerConfig};

/// Time for the beginning of TLS with a server.
const SLOW: Duration = Duration::from_secs(10);
/// The protocols that are looked at, as ALPN names them.
pub(crate) const HTTP1: &[u8] = b"http/1.1";
pub(crate) const HTTP2: &[u8] = b"h2";
/// Most bytes that TLS keeps of each direction.
pub(crate) const BUFFER: usize = 16 * 1024;

/// The reason why there is no TLS with a server.
#[derive(Debug)]
pub(crate) enum Unconnected {
    /// Its certificate is not valid, for this reason.
    Unverified(&'static str),
    Failed,
}

/// The side of TLS towards servers.
pub(crate) struct Servers {
    config: Arc<ClientConfig>,
    /// SHA-256 of certificates that no server may show.
    revoked: Arc<HashSet<Vec<u8>>>,
}

/// Makes the side of TLS towards servers, which these roots have signed, and which show no revoked certificate.
pub(crate) fn servers(roots: Vec<Vec<u8>>, revoked: Vec<Vec<u8>>) -> Result<Servers, Error> {
    Ok(Servers { config: Arc::new(trusting(roots)?), revoked: Arc::new(revoked.into_iter().collect()) })
}

impl Servers {
    /// Returns the same with other roots.
    pub(crate) fn with_roots(&self, roots: Vec<Vec<u8>>) -> Result<Self, Error> {
        Ok(Self { config: Arc::new(trusting(roots)?), revoked: Arc::clone(&self.revoked) })
    }
}

fn trusting(roots: Vec<Vec<u8>>) -> Result<ClientConfig, Error> {
    let mut store = RootCertStore::empty();
    // A root that this version cannot read signs nothing.
    store.add_parsable_certificates(roots.into_iter().map(CertificateDer::from));
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions()?;
    let mut config = builder.with_root_certificates(store).with_no_client_auth();
    // Each connection verifies the certificate.
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Begins TLS with a server, which chooses one of the protocols, or none.
pub(crate) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    servers: &Servers,
    name: ServerName<'static>,
    protocols: Vec<Vec<u8>>,
    stream: S,
) -> Result<TlsStream<S>, Unconnected> {
    let connector = TlsConnector::from(Arc::clone(&servers.config));
    let connector = connector.with_alpn(protocols);
    let connect = connector.connect_with(name, stream, |tls| tls.set_buffer_limit(Some(BUFFER)));
    let connected = timeout(SLOW, connect).await.map_err(|_| Unconnected::Failed)?;
    let connected = connected.map_err(|error| match tls_error(&error) {
        Some(Error::InvalidCertificate(error)) => Unconnected::Unverified(reason(error)),
        Some(Error::NoCertificatesPresented) => Unconnected::Unverified("it has none"),
        _ => Unconnected::Failed,
    })?;
    // Before a byte of a request. Any certificate of the chain counts, because it could have signed the one below it.
    let shown = connected.get_ref().1.peer_certificates().unwrap_or_default();
    let is_listed = |der: &[u8]| servers.revoked.contains(digest(&SHA256, der).as_ref());
    // A server can show a revoked certificate with the other signature that is valid.
    let is_revoked = |der: &CertificateDer<'_>| is_listed(der) || twins(der).any(|twin| is_listed(&twin));
    if !servers.revoked.is_empty() && shown.iter().any(is_revoked) {
        return Err(Unconnected::Unverified(reason(&CertificateError::Revoked)));
    }
    Ok(connected)
}

fn tls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// Returns the words for a certificate that is not valid.
fn reason(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "it is not valid yet",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name"
        }
        CertificateError::UnknownIssuer => "no authority that this machine trusts has signed it",
        CertificateError::BadSignature => "its signature is wrong",
        CertificateError::Revoked => "it is revoked",
        _ => "it is malformed, or not made for servers",
    }
}

/// Makes the side of TLS towards a program that has been shown this certificate, with the protocol of the server.
pub(crate) fn program(key: Arc<CertifiedKey>, protocol: Option<Vec<u8>>) -> Result<ServerConfig, Error> {
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions()?.with_no_client_auth();
    let mut config = builder.with_cert_resolver(Arc::new(Only(key)));
    config.alpn_protocols = protocol.into_iter().collect();
    // A session would outlive what was decided about its connection.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// The certificate of one connection.
#[derive(Debug)]
struct Only(Arc<CertifiedKey>);

impl ResolvesServerCert for Only {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}
