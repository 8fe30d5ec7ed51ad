//! The daemon's TLS as a client: rustls with ring, and the certificates that this host trusts.

use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Configuration by which servers are authenticated. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Trusts the certificates of this host: its certificate store, or `SSL_CERT_FILE`.
    pub fn new() -> Result<Self, String> {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "a certificate of this host cannot be read");
        }
        Self::trusting(found.certs)
    }

    /// Trusts `certificates` instead of the system's.
    pub fn trusting(certificates: impl IntoIterator<Item = CertificateDer<'static>>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates);
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be set up: {error}"))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }

    pub fn config(&self) -> Arc<ClientConfig> {
        self.0.clone()
    }
}
