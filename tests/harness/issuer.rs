//! An OpenID Connect issuer: its key, and tokens that it signs.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The claim `iss` of its tokens.
const NAME: &str = "https://login.example.org/";

/// Its key changes with [`Self::rotate`].
pub struct Issuer {
    directory: TempDir,
    key: EcdsaKeyPair,
    id: u32,
}

fn key() -> EcdsaKeyPair {
    let (with, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
    let made = EcdsaKeyPair::generate_pkcs8(with, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(with, made.as_ref(), &random).unwrap()
}

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Default for Issuer {
    fn default() -> Self {
        let issuer = Self { directory: tempfile::tempdir().unwrap(), key: key(), id: 1 };
        issuer.publish();
        issuer
    }
}

impl Issuer {
    /// Signs with another key from now on, and publishes it alone.
    pub fn rotate(&mut self) {
        (self.key, self.id) = (key(), self.id + 1);
        self.publish();
    }

    fn publish(&self) {
        std::fs::write(self.file(), self.keys()).unwrap();
    }

    /// Its keys, a JWK Set.
    pub fn keys(&self) -> String {
        let (x, y) = self.key.public_key().as_ref()[1..].split_at(32);
        let key = json!({ "kty": "EC", "crv": "P-256", "kid": self.id.to_string(), "x": encoded(x), "y": encoded(y) });
        json!({ "keys": [key] }).to_string()
    }

    /// The file with its keys.
    pub fn file(&self) -> PathBuf {
        self.directory.path().join("jwks.json")
    }

    /// A daemon's configuration with these keys (`file: …` or `url: …`) and these grants.
    pub fn config(&self, keys: &str, grants: &str) -> String {
        format!(
            "oidc: [{{ name: corp, issuer: '{NAME}', audience: cofferdam, jwks: {{ {keys} }}, grants: [{grants}] }}]\n"
        )
    }

    /// The same, with its file.
    pub fn config_with_file(&self, grants: &str) -> String {
        self.config(&format!("file: {}", self.file().display()), grants)
    }

    /// A token of a subject in these groups.
    pub fn token(&self, subject: &str, groups: &[&str], lifetime: Duration) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let claims = json!({
            "iss": NAME, "aud": "cofferdam", "sub": subject, "groups": groups,
            "iat": now, "exp": now + lifetime.as_secs(),
        });
        self.sign(&claims)
    }

    /// A token with these claims.
    pub fn sign(&self, claims: &Value) -> String {
        let header = json!({ "alg": "ES256", "kid": self.id.to_string(), "typ": "JWT" });
        let message = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
        let signature = self.key.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", encoded(signature))
    }
}
