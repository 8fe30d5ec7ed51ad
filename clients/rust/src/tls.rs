//! Files that prove who the daemon and its client are, for https.

use std::path::{Path, PathBuf};

use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::error::ConnectError;

/// What `coffer tls` calls the file of the authority that signed the daemon's certificate,
pub const CA: &str = "ca.pem";
/// the client's certificate,
pub const CERTIFICATE: &str = "cert.pem";
/// and its key.
pub const KEY: &str = "key.pem";

/// Whom to trust, and what to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Who must have signed the daemon's certificate. `None`: an authority that this host trusts.
    pub ca: Option<PathBuf>,
    /// The client's certificate and its key.
    pub pair: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// A directory as `coffer tls init` makes one for each client. With an authority alone it is for a client that has a token.
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
