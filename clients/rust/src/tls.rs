//! Certificate files that authenticate the daemon and its client, for https.

use std::path::{Path, PathBuf};

use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::error::ConnectError;

/// Name that `coffer tls` gives the certificate of the authority that signed the daemon's certificate.
pub const CA: &str = "ca.pem";
/// Name that `coffer tls` gives the client's certificate.
pub const CERTIFICATE: &str = "cert.pem";
/// Name that `coffer tls` gives the client's key.
pub const KEY: &str = "key.pem";

/// The authority to trust, and the certificate to present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Authority that must have signed the daemon's certificate. `None`: one that this host trusts.
    pub ca: Option<PathBuf>,
    /// The client's certificate and its key.
    pub pair: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// Reads a directory that `coffer tls init` made for a client. A client that has a token needs the authority alone.
    pub fn directory(directory: &Path) -> Self {
        let within = |name: &str| directory.join(name);
        let pair = Some((within(CERTIFICATE), within(KEY))).filter(|(certificate, _)| certificate.exists());
        Self { ca: Some(within(CA)), pair }
    }

    pub(crate) fn config(&self) -> Result<ClientTlsConfig, ConnectError> {
        let config = match &self.ca {
            Some(ca) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)?)),
            None => ClientTlsConfig::new().with_native_roots(),
        };
        Ok(match &self.pair {
            Some((certificate, key)) => config.identity(Identity::from_pem(read(certificate)?, read(key)?)),
            None => config,
        })
    }
}

fn read(file: &Path) -> Result<Vec<u8>, ConnectError> {
    std::fs::read(file).map_err(|cause| ConnectError::File { file: file.to_owned(), cause })
}

#[cfg(test)]
mod tests {
    use super::Tls;

    #[test]
    fn a_directory_has_an_authority_and_perhaps_a_pair() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let alone = Tls::directory(directory.path());
        assert_eq!(alone, Tls { ca: Some(at("ca.pem")), pair: None });
        assert!(alone.config().unwrap_err().to_string().contains("ca.pem cannot be read"));
        std::fs::write(at("cert.pem"), "").unwrap();
        let both = Tls { ca: Some(at("ca.pem")), pair: Some((at("cert.pem"), at("key.pem"))) };
        assert_eq!(Tls::directory(directory.path()), both);
        assert!(Tls::default().config().is_ok());
    }
}
