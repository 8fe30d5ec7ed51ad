//! Refuses client certificates whose keys everybody can sign with.
//!
//! rustls with ring verifies no signature of RSA with less than 2,048 bits, none with SHA-1, and takes points of the curves P-256 and P-384
//! alone, in the certificates of authorities and in the handshake. It verifies signatures of Ed25519 without a look at the order of the key's
//! point. With a key of a small order, everybody makes signatures that are valid for most messages, so this module refuses such keys.

use std::sync::Arc;

use ed25519_dalek::VerifyingKey;
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};

/// Bytes before the point in the public key of a certificate (RFC 8410, 4), without the header of the whole.
const ED25519: [u8; 10] = [0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// Header of a public key with such a point.
const WHOLE: [u8; 2] = [0x30, 0x2a];

/// A verifier of client certificates that also refuses weak keys.
#[derive(Debug)]
pub(super) struct StrongKeys(pub(super) Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for StrongKeys {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.0.verify_client_cert(end_entity, intermediates, now)?;
        if is_weak(end_entity) || intermediates.iter().any(is_weak) {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Returns true if an authority has a weak key.
pub(super) fn has_weak_authority(roots: &RootCertStore) -> bool {
    roots.roots.iter().any(|root| is_weak_key(&root.subject_public_key_info))
}

/// Returns true if a certificate has a weak key. One that cannot be parsed is used for nothing.
fn is_weak(certificate: &CertificateDer<'_>) -> bool {
    ParsedCertificate::try_from(certificate).is_ok_and(|parsed| {
        let key = parsed.subject_public_key_info();
        key.strip_prefix(&WHOLE).is_some_and(is_weak_key)
    })
}

/// Returns true for a point of Ed25519 with a small order, or for 32 bytes that are no point.
fn is_weak_key(key: &[u8]) -> bool {
    let Some(point) = key.strip_prefix(&ED25519) else { return false };
    let point = point.try_into().ok().and_then(|point| VerifyingKey::from_bytes(point).ok());
    point.is_none_or(|point| point.is_weak())
}

#[cfg(test)]
#[path = "strength_tests.rs"]
mod tests;
