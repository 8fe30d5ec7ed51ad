//! Identification of this daemon to push services (VAPID, RFC 8292).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::json;
use webhook::Target;

/// Row of the store that has the key, among the subscriptions.
pub(super) const ROW: &str = "vapid";
/// Begin of its record, which no subscription has.
const MARK: &str = "vapid ";
/// Life of an authorization, seconds. A push service accepts at most a day.
const LIFE: u64 = 12 * 3_600;

/// Key pair of the daemon.
pub(super) struct Vapid(EcdsaKeyPair);

impl Vapid {
    /// Makes a key, and the record of it.
    pub(super) fn generate() -> Option<(Self, String)> {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).ok()?;
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).ok()?;
        Some((Self(pair), format!("{MARK}{}", hex::encode(pkcs8.as_ref()))))
    }

    pub(super) fn is_record(record: &[u8]) -> bool {
        record.starts_with(MARK.as_bytes())
    }

    /// Reads the record of a key.
    pub(super) fn read(record: &[u8]) -> Option<Self> {
        let pkcs8 = hex::decode(record.strip_prefix(MARK.as_bytes())?).ok()?;
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pkcs8, &SystemRandom::new()).ok()?;
        Some(Self(pair))
    }

    pub(super) fn public_key(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    /// Returns the value of the header `authorization` for a push service. `now` is in seconds since 1970.
    pub(super) fn authorization(&self, target: &Target, contact: &str, now: u64) -> Option<String> {
        let encode = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let head = encode(json!({ "typ": "JWT", "alg": "ES256" }));
        let claims = encode(json!({ "aud": target.origin(), "exp": now + LIFE, "sub": contact }));
        let signed = format!("{head}.{claims}");
        let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes()).ok()?;
        let (signature, key) =
            (URL_SAFE_NO_PAD.encode(signature.as_ref()), URL_SAFE_NO_PAD.encode(self.public_key()));
        Some(format!("vapid t={signed}.{signature}, k={key}"))
    }
}
