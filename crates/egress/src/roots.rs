//! The authorities that servers of opened connections have to be signed by.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use pem::{EncodeConfig, LineEnding, Pem};
use rustls_native_certs::{load_certs_from_paths, load_native_certs};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use crate::fingerprint::Fingerprint;
use crate::java;

/// Longest file of certificates, bytes.
const LONGEST_FILE: u64 = 1 << 20;
/// Most bytes of all certificates together. They are one message to the process.
const MOST_BYTES: usize = 2 << 20;

/// Certificates of authorities: those that this host trusts, and those of the configuration, without the revoked ones.
#[derive(Debug, Clone, Default)]
pub struct Roots {
    der: Vec<Vec<u8>>,
    pem: String,
    revoked: Vec<Fingerprint>,
}

impl Roots {
    /// Reads the authorities of this host, or of `SSL_CERT_FILE`, and those of further files in PEM. `revoked` certificates are none,
    /// and no server may show one.
    ///
    /// # Errors
    /// For the operator, with the name of the file that is missing, too long, or has no certificate.
    pub fn load(extra: &[PathBuf], revoked: &[Fingerprint]) -> Result<Self, String> {
        let found = load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "a certificate of this host cannot be read");
        }
        let mut all: BTreeSet<Vec<u8>> = found.certs.iter().map(|certificate| certificate.to_vec()).collect();
        for path in extra {
            all.extend(read(path)?);
        }
        all.retain(|certificate| !revoked.contains(&Fingerprint::of(certificate)));
        let bytes: usize = all.iter().map(Vec::len).sum();
        if bytes > MOST_BYTES {
            return Err(format!(
                "the authorities have {bytes} bytes together; at most {MOST_BYTES} are possible"
            ));
        }
        Ok(Self::new(all.into_iter().collect(), revoked.to_vec()))
    }

    /// Checks a file in PEM, as [`Self::load`] does.
    ///
    /// # Errors
    /// Those of [`Self::load`] for the file.
    pub fn check(file: &Path) -> Result<(), String> {
        read(file).map(drop)
    }

    fn new(der: Vec<Vec<u8>>, revoked: Vec<Fingerprint>) -> Self {
        let pem = der.iter().map(|certificate| pem(certificate)).collect();
        Self { der, pem, revoked }
    }

    /// Returns the certificates that no server may show, as their SHA-256.
    pub(crate) fn revoked(&self) -> Vec<Vec<u8>> {
        self.revoked.iter().map(|fingerprint| fingerprint.bytes().to_vec()).collect()
    }

    /// Returns the certificates in DER.
    pub fn der(&self) -> &[Vec<u8>] {
        &self.der
    }

    /// Returns the certificates in the form that Java reads, for the store of a run, with that of an authority.
    pub fn java_store(&self, authority: Option<&[u8]>) -> Vec<u8> {
        java::store(self.der.iter().map(Vec::as_slice).chain(authority))
    }

    /// Returns the certificates in PEM, for the bundle of a run.
    pub fn pem(&self) -> &str {
        &self.pem
    }
}

/// Reads the certificates of a file of the configuration. The error names it.
fn read(path: &Path) -> Result<Vec<Vec<u8>>, String> {
    certificates(path).map_err(|why| format!("{}: {why}", path.display()))
}

fn certificates(path: &Path) -> Result<Vec<Vec<u8>>, String> {
    let file = File::open(path).and_then(|file| file.metadata());
    let file = file.map_err(|error| format!("cannot be read: {error}"))?;
    if !file.is_file() || file.len() > LONGEST_FILE {
        return Err(format!("must be a file of at most {LONGEST_FILE} bytes"));
    }
    let found = load_certs_from_paths(Some(path), None);
    if let Some(error) = found.errors.first() {
        return Err(format!("cannot be read: {error}"));
    }
    if found.certs.is_empty() {
        return Err("has no certificate in PEM (`-----BEGIN CERTIFICATE-----`)".to_owned());
    }
    let found: Vec<Vec<u8>> = found.certs.iter().map(|certificate| certificate.to_vec()).collect();
    match found.iter().position(|certificate| !is_certificate(certificate)) {
        Some(place) => Err(format!("certificate {} is not an X.509 certificate", place + 1)),
        None => Ok(found),
    }
}

/// Returns true for one X.509 certificate in DER.
pub(crate) fn is_certificate(der: &[u8]) -> bool {
    Certificate::from_der(der).is_ok()
}

/// Returns a certificate in PEM (RFC 7468).
pub(crate) fn pem(der: &[u8]) -> String {
    let form = EncodeConfig::new().set_line_ending(LineEnding::LF);
    pem::encode_config(&Pem::new("CERTIFICATE", der), form)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate of `host.example.org`, made for this test.
    const CERTIFICATE: &str = include_str!("testdata/authority.pem");

    #[test]
    fn certificates_of_a_file_are_added_to_those_of_the_host() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("own.pem");
        std::fs::write(&path, format!("A comment.\n{CERTIFICATE}{CERTIFICATE}")).unwrap();
        let (host, both) =
            (Roots::load(&[], &[]).unwrap(), Roots::load(std::slice::from_ref(&path), &[]).unwrap());
        assert_eq!(both.der().len(), host.der().len() + 1, "the same certificate counts once");
        let own = both.der().iter().find(|der| !host.der().contains(der)).unwrap();
        let revoked = Fingerprint::of(own);
        let without = Roots::load(&[path], &[revoked]).unwrap();
        assert_eq!((without.der(), without.pem()), (host.der(), host.pem()), "a revoked one is none");
        assert_eq!(without.revoked(), [revoked.bytes()]);
        assert!(both.pem().contains(CERTIFICATE), "PEM is written as OpenSSL writes it");
        assert_eq!(both.pem().matches("BEGIN").count(), both.der().len());
    }

    #[test]
    fn a_file_without_a_valid_certificate_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("own.pem");
        let load = || Roots::load(std::slice::from_ref(&path), &[]).unwrap_err();
        assert!(load().contains("own.pem: cannot be read"), "{}", load());
        std::fs::write(&path, "no certificate").unwrap();
        assert!(load().contains("own.pem: has no certificate"), "{}", load());
        std::fs::write(&path, pem(b"no DER")).unwrap();
        assert!(load().contains("own.pem: certificate 1 is not an X.509 certificate"), "{}", load());
        std::fs::write(&path, vec![b'a'; (1 << 20) + 1]).unwrap();
        assert!(load().contains("own.pem: must be a file of at most"), "{}", load());
    }
}
