//! Signature verification for `jsonwebtoken` with ring. It supports four algorithms and cannot sign.

use std::sync::Once;

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256, RsaParameters,
    RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};

/// Algorithms with which a token may be signed.
pub(crate) const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::RS256, Algorithm::PS256, Algorithm::ES256, Algorithm::EdDSA];

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(unsupported()),
    verifier_factory: |algorithm, key| {
        let algorithm = *algorithm;
        // Unsupported algorithms are refused here, before any check of the token.
        if !ALGORITHMS.contains(&algorithm) || algorithm.family() != key.family() {
            return Err(unsupported());
        }
        Ok(Box::new(Signature { algorithm, key: key.clone() }))
    },
    // Only needed to make JWKs, which this crate does not do.
    key_utils: KeyUtils {
        rsa_pub_components_from_private_key: |_| Err(unsupported()),
        rsa_pub_components_from_public_key: |_| Err(unsupported()),
        ec_pub_components_from_private_key: |_, _| Err(unsupported()),
        ed_pub_components_from_private_key: |_, _| Err(unsupported()),
        compute_digest: |_, _| Err(unsupported()),
    },
};

/// Installs the provider in this process, once.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        if PROVIDER.install_default().is_err() {
            tracing::error!("another signature provider is installed: tokens of issuers are checked with it");
        }
    });
}

fn unsupported() -> Error {
    ErrorKind::UnsupportedAlgorithm.into()
}

struct Signature {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for Signature {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for Signature {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let holds = match (self.algorithm, self.key.kind()) {
            (Algorithm::RS256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
                rsa(&RSA_PKCS1_2048_8192_SHA256, n, e, message, signature)
            }
            (Algorithm::PS256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
                rsa(&RSA_PSS_2048_8192_SHA256, n, e, message, signature)
            }
            (Algorithm::ES256, DecodingKeyKind::SecretOrDer(point)) => {
                plain(&ECDSA_P256_SHA256_FIXED, point, message, signature)
            }
            (Algorithm::EdDSA, DecodingKeyKind::SecretOrDer(point)) => {
                plain(&ED25519, point, message, signature)
            }
            _ => false,
        };
        if holds { Ok(()) } else { Err(signature::Error::new()) }
    }
}

fn rsa(with: &'static RsaParameters, n: &[u8], e: &[u8], message: &[u8], signature: &[u8]) -> bool {
    RsaPublicKeyComponents { n, e }.verify(with, message, signature).is_ok()
}

fn plain(with: &'static dyn VerificationAlgorithm, key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(with, key).verify(message, signature).is_ok()
}
