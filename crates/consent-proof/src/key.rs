//! Public keys of passkeys, and their signatures.

use ed25519_dalek::{Signature, VerifyingKey};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
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
            let key = Self::Ed25519(*key);
            return if key.is_point() { Ok((key, rest)) } else { Err(Flaw::Key) };
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

    /// Returns true if a signature by this key can prove something.
    ///
    /// A key of Ed25519 with a small order has signatures that hold for nearly every message, and everybody can make them.
    fn is_point(&self) -> bool {
        match self {
            Self::Es256(point) => point[0] == UNCOMPRESSED,
            Self::Ed25519(key) => VerifyingKey::from_bytes(key).is_ok_and(|key| !key.is_weak()),
        }
    }

    /// Checks a signature. Points that are not on the curve are refused, and so are those of a small order, in a key and in a signature.
    pub(crate) fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), Flaw> {
        let verified = match self {
            Self::Es256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).verify(message, signature).is_ok()
            }
            Self::Ed25519(key) => VerifyingKey::from_bytes(key)
                .and_then(|key| key.verify_strict(message, &Signature::from_slice(signature)?))
                .is_ok(),
        };
        if verified { Ok(()) } else { Err(Flaw::Signature) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodings of points whose order divides eight, each as a key: those with y of 0, 1 and -1, and two of order eight.
    fn weak() -> Vec<[u8; COORDINATE]> {
        let number = |low: u8, middle: u8, high: u8| {
            let mut key = [middle; COORDINATE];
            (key[0], key[COORDINATE - 1]) = (low, high);
            key
        };
        let zero_one_and_minus_one =
            [(0, 0, 0), (0, 0, 0x80), (1, 0, 0), (1, 0, 0x80), (0xec, 0xff, 0x7f), (0xec, 0xff, 0xff)];
        // The same again, with the prime added to y.
        let not_canonical = [(0xed, 0xff, 0x7f), (0xed, 0xff, 0xff), (0xee, 0xff, 0x7f), (0xee, 0xff, 0xff)];
        let of_order_eight = [
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        ];
        let of_order_eight = of_order_eight.map(|key| hex::decode(key).unwrap().try_into().unwrap());
        let small = zero_one_and_minus_one.into_iter().chain(not_canonical);
        small.map(|(low, middle, high)| number(low, middle, high)).chain(of_order_eight).collect()
    }

    #[test]
    fn keys_with_which_everybody_can_sign_are_not_read() {
        let keys = weak();
        assert_eq!(keys.len(), 12);
        for key in keys {
            let cose = [&ED25519_X[..], &key].concat();
            assert_eq!(PublicKey::read(&cose).unwrap_err(), Flaw::Key, "{}", hex::encode(key));
            let named = serde_json::json!({ "algorithm": "EdDSA", "hex": hex::encode(key) });
            assert!(PublicKey::from_record(&named).is_none(), "{}", hex::encode(key));
        }
    }

    #[test]
    fn a_signature_that_holds_for_every_message_holds_for_none() {
        // With the neutral element as key and as R, and 0 as s, the equation of a signature holds whatever was signed.
        let mut neutral = [0; COORDINATE];
        neutral[0] = 1;
        let signature = [&neutral[..], &[0; COORDINATE]].concat();
        for message in [&b"consent to this"[..], b"and to that"] {
            let lax = UnparsedPublicKey::new(&ring::signature::ED25519, &neutral);
            assert!(lax.verify(message, &signature).is_ok(), "the danger is real");
            assert_eq!(PublicKey::Ed25519(neutral).verify(message, &signature), Err(Flaw::Signature));
        }
    }
}
