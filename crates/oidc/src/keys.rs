//! An issuer's keys: a JWK Set (RFC 7517, 5). Only keys that can verify a supported signature are used.

use ed25519_dalek::VerifyingKey;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use serde::Deserialize;

/// Largest number of keys in a set.
const MAX_KEYS: usize = 64;
/// Length of an RSA modulus in bytes: 2,048 to 8,192 bits, the range that ring supports.
const MODULUS: std::ops::RangeInclusive<usize> = 256..=1_024;

/// The keys with which an issuer signs.
#[derive(Debug)]
pub(crate) struct Keys(Vec<Key>);

#[derive(Debug)]
pub(crate) struct Key {
    id: Option<String>,
    /// Algorithms for which the key may be used.
    algorithms: Vec<Algorithm>,
    material: DecodingKey,
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<serde_json::Value>,
}

impl Keys {
    /// Parses a set and keeps the usable keys.
    ///
    /// An unusable key is no error (RFC 7517, 5), but a set without a usable key is.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let Set { keys } = serde_json::from_slice(bytes)
            .map_err(|_| "holds no JWK Set: a JSON object with `keys`".to_owned())?;
        if keys.len() > MAX_KEYS {
            return Err(format!("has more than {MAX_KEYS} keys"));
        }
        let keys: Vec<_> = keys.into_iter().filter_map(Key::parse).collect();
        if keys.is_empty() {
            return Err("has no key for signatures by RS256, PS256, ES256 or EdDSA".to_owned());
        }
        Ok(Self(keys))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the key for a token with this header. A token without a key id is only accepted if the set has exactly one key.
    pub(crate) fn pick(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&DecodingKey> {
        let named = match (id, &self.0[..]) {
            (Some(id), keys) => keys
                .iter()
                .find(|key| key.id.as_deref() == Some(id) && key.algorithms.contains(&algorithm))?,
            (None, [only]) => only,
            (None, _) => return None,
        };
        named.algorithms.contains(&algorithm).then_some(&named.material)
    }
}

impl Key {
    fn parse(value: serde_json::Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        let is_for_signatures =
            jwk.common.public_key_use.is_none_or(|purpose| purpose == PublicKeyUse::Signature);
        let verifies = jwk.common.key_operations.is_none_or(|all| all.contains(&KeyOperations::Verify));
        if !is_for_signatures || !verifies {
            return None;
        }
        let key = Self::of(&jwk.algorithm)?;
        let algorithms = key.1.iter().copied();
        // A key that names its algorithm is used for no other.
        let algorithms: Vec<_> = match jwk.common.key_algorithm {
            Some(own) => algorithms.filter(|algorithm| KeyAlgorithm::from(*algorithm) == own).collect(),
            None => algorithms.collect(),
        };
        (!algorithms.is_empty()).then_some(Self { id: jwk.common.key_id, algorithms, material: key.0 })
    }

    /// Returns the key, and the algorithms of its type.
    fn of(parameters: &AlgorithmParameters) -> Option<(DecodingKey, &'static [Algorithm])> {
        let (key, algorithms): (_, &[Algorithm]) = match parameters {
            AlgorithmParameters::RSA(rsa) => {
                let key = DecodingKey::from_rsa_components(&rsa.n, &rsa.e).ok()?;
                (key, &[Algorithm::RS256, Algorithm::PS256])
            }
            AlgorithmParameters::EllipticCurve(point) if point.curve == EllipticCurve::P256 => {
                (DecodingKey::from_ec_components(&point.x, &point.y).ok()?, &[Algorithm::ES256])
            }
            AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
                (DecodingKey::from_ed_components(&pair.x).ok()?, &[Algorithm::EdDSA])
            }
            // In particular no `oct`, which is a secret shared by both sides.
            _ => return None,
        };
        let is_whole = match (parameters, key.kind()) {
            (_, DecodingKeyKind::RsaModulusExponent { n, .. }) => MODULUS.contains(&n.len()),
            (AlgorithmParameters::EllipticCurve(_), DecodingKeyKind::SecretOrDer(point)) => point.len() == 65,
            (_, DecodingKeyKind::SecretOrDer(point)) => is_strong(point),
        };
        is_whole.then_some((key, algorithms))
    }
}

/// Returns true if a key of Ed25519 is a point of a large order. With any other, everybody can sign tokens.
fn is_strong(key: &[u8]) -> bool {
    let key = key.try_into().ok().and_then(|key| VerifyingKey::from_bytes(key).ok());
    key.is_some_and(|key| !key.is_weak())
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::Algorithm::{ES256, EdDSA, PS256, RS256};
    use serde_json::{Value, json};

    use super::Keys;
    use crate::testing::{Signer, encoded, set};

    #[test]
    fn j2_keys_that_are_not_for_this_are_left_out() {
        let (rsa, ec, ed) = (Signer::rsa(2_048).jwk("r"), Signer::ec().jwk("e"), Signer::ed().jwk("d"));
        let with = |key: &Value, name: &str, value: Value| {
            let mut key = key.clone();
            key[name] = value;
            key
        };
        let fits = |key: &Value| {
            let keys = Keys::parse(set(std::slice::from_ref(key)).as_bytes()).ok()?;
            let algorithms = [RS256, PS256, ES256, EdDSA];
            Some(
                algorithms
                    .into_iter()
                    .filter(|algorithm| keys.pick(None, *algorithm).is_some())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(fits(&rsa), Some(vec![RS256, PS256]));
        assert_eq!(fits(&with(&rsa, "alg", json!("RS256"))), Some(vec![RS256]));
        assert_eq!(fits(&with(&rsa, "key_ops", json!(["verify"]))), Some(vec![RS256, PS256]));
        assert_eq!((fits(&ec), fits(&ed)), (Some(vec![ES256]), Some(vec![EdDSA])));
        let short = Signer::rsa(2_048).jwk("s")["n"].as_str().unwrap()[..170].to_owned();
        for bad in [
            with(&rsa, "use", json!("enc")),
            with(&rsa, "alg", json!("RS512")),
            with(&rsa, "alg", json!("HS256")),
            with(&rsa, "alg", json!("ES256")),
            with(&rsa, "key_ops", json!(["encrypt"])),
            with(&rsa, "n", json!(short)),
            with(&rsa, "n", json!(encoded([0xff; 2_000]))),
            with(&rsa, "n", json!("***")),
            with(&rsa, "kty", json!("EC")),
            with(&ec, "crv", json!("P-384")),
            with(&ec, "crv", json!("Ed25519")),
            with(&ec, "x", json!("AAAA")),
            with(&ed, "crv", json!("X25519")),
            with(&ed, "x", json!(encoded([1; 33]))),
            // With these, everybody can sign: the neutral element, and a point of order eight.
            with(&ed, "x", json!("AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")),
            with(&ed, "x", json!("JuiVj8KyJ7BFw_SJ8u-Y8NXfrAXTxjM5sTgCiG1T_AU")),
            json!({ "kty": "oct", "k": encoded([1; 32]), "alg": "HS256" }),
            json!({ "kty": "oct", "k": encoded([1; 32]), "alg": "RS256" }),
            json!({}),
            json!(null),
            json!([rsa]),
        ] {
            assert_eq!(fits(&bad), None, "{bad}");
        }
        // One of them takes no other with it.
        let keys = Keys::parse(set(&[json!({ "kty": "new" }), ed]).as_bytes()).unwrap();
        assert!(keys.pick(Some("d"), EdDSA).is_some());
    }
}
