//! Public keys of passkeys, and their signatures.

use ring::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::flaw::Flaw;

/// Begin of the COSE key of ES256 in canonical CBOR: `{1: 2, 3: -7, -1: 1, -2: bytes(32)`.
const ES256_X: [u8; 10] = [0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21, 0x58, 0x20];
/// Rest of it before the other coordinate: `-3: bytes(32)`.
const ES256_Y: [u8; 3] = [0x22, 0x58, 0x20];
/// Begin of the COSE key of EdDSA over Ed25519: `{1: 1, 3: -8, -1: 6, -2: bytes(32)`.
const ED25519_X: [u8; 10] = [0xa4, 0x01, 0x01, 0x03, 0x27, 0x20, 0x06, 0x21, 0x58, 0x20];
/// Length of a coordinate, and of a key of Ed25519, bytes.
const COORDINATE: usize = 32;
/// Tag of an uncompressed point (SEC 1, 2.3.3).
const UNCOMPRESSED: u8 = 4;

/// Public key of a passkey. Its form selects the algorithm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Named", into = "Named")]
pub enum PublicKey {
    /// Uncompressed point of P-256.
    Es256([u8; 1 + 2 * COORDINATE]),
    Ed25519([u8; COORDINATE]),
}

/// A key as it is recorded.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    algorithm: String,
    hex: String,
}

impl From<PublicKey> for Named {
    fn from(key: PublicKey) -> Self {
        Self { algorithm: key.algorithm().to_owned(), hex: hex::encode(key.bytes()) }
    }
}

impl TryFrom<Named> for PublicKey {
    type Error = Flaw;

    fn try_from(named: Named) -> Result<Self, Flaw> {
        let bytes = hex::decode(&named.hex).map_err(|_| Flaw::Encoding)?;
        match named.algorithm.as_str() {
            "ES256" => bytes.try_into().map(Self::Es256).map_err(|_| Flaw::Key),
            "EdDSA" => bytes.try_into().map(Self::Ed25519).map_err(|_| Flaw::Key),
            _ => Err(Flaw::Key),
        }
        .and_then(|key: Self| key.is_point().then_some(key).ok_or(Flaw::Key))
    }
}

impl PublicKey {
    /// Reads a COSE key at the beginning of `bytes`, and returns it with the bytes after it.
    pub(crate) fn read(bytes: &[u8]) -> Result<(Self, &[u8]), Flaw> {
        if let Some(rest) = bytes.strip_prefix(&ED25519_X) {
            let (key, rest) = rest.split_first_chunk().ok_or(Flaw::Key)?;
            return Ok((Self::Ed25519(*key), rest));
        }
        let rest = bytes.strip_prefix(&ES256_X).ok_or(Flaw::Key)?;
        let (x, rest) = rest.split_first_chunk::<COORDINATE>().ok_or(Flaw::Key)?;
        let rest = rest.strip_prefix(&ES256_Y).ok_or(Flaw::Key)?;
        let (y, rest) = rest.split_first_chunk::<COORDINATE>().ok_or(Flaw::Key)?;
        let mut point = [UNCOMPRESSED; 1 + 2 * COORDINATE];
        point[1..=COORDINATE].copy_from_slice(x);
        point[1 + COORDINATE..].copy_from_slice(y);
        Ok((Self::Es256(point), rest))
    }

    /// Reads a key as it is recorded.
    pub(crate) fn from_record(record: &serde_json::Value) -> Option<Self> {
        serde_json::from_value(record.clone()).ok()
    }

    /// Returns the name of the algorithm, as JOSE has it.
    pub fn algorithm(&self) -> &'static str {
        match self {
            Self::Es256(_) => "ES256",
            Self::Ed25519(_) => "EdDSA",
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Es256(point) => point,
            Self::Ed25519(key) => key,
        }
    }

    fn is_point(&self) -> bool {
        match self {
            Self::Es256(point) => point[0] == UNCOMPRESSED,
            Self::Ed25519(_) => true,
        }
    }

    /// Checks a signature. `ring` refuses points that are not on the curve.
    pub(crate) fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), Flaw> {
        let verified = match self {
            Self::Es256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).verify(message, signature)
            }
            Self::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key).verify(message, signature),
        };
        verified.map_err(|_| Flaw::Signature)
    }
}
