//! Keys that tests make, and tokens signed with them.

use std::process::Command;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use identity::{Role, Roles};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RSA_PSS_SHA256, RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Value, json};
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use crate::{Grant, Issuer, Source};

pub(crate) fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) enum Signer {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

impl Signer {
    /// By the real openssl: ring makes none.
    pub(crate) fn rsa(bits: u32) -> Self {
        let bits = format!("rsa_keygen_bits:{bits}");
        let mut openssl = Command::new("openssl");
        openssl.args(["genpkey", "-algorithm", "RSA", "-pkeyopt", &bits]);
        let made = openssl.output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let key = PrivatePkcs8KeyDer::from_pem_slice(&made.stdout).unwrap();
        Self::Rsa(RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).unwrap())
    }

    pub(crate) fn ec() -> Self {
        let (with, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let made = EcdsaKeyPair::generate_pkcs8(with, &random).unwrap();
        Self::Ec(EcdsaKeyPair::from_pkcs8(with, made.as_ref(), &random).unwrap())
    }

    pub(crate) fn ed() -> Self {
        let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed(Ed25519KeyPair::from_pkcs8(made.as_ref()).unwrap())
    }

    /// Its public key.
    pub(crate) fn jwk(&self, id: &str) -> Value {
        match self {
            Self::Rsa(key) => {
                let RsaPublicKeyComponents { n, e } =
                    RsaPublicKeyComponents::<Vec<u8>>::from(key.public_key());
                json!({ "kty": "RSA", "kid": id, "use": "sig", "n": encoded(n), "e": encoded(e) })
            }
            Self::Ec(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                json!({ "kty": "EC", "crv": "P-256", "kid": id, "x": encoded(x), "y": encoded(y) })
            }
            Self::Ed(key) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "x": encoded(key.public_key()) })
            }
        }
    }

    pub(crate) fn sign(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                let pss = algorithm == "PS256";
                let with: &'static dyn ring::signature::RsaEncoding =
                    if pss { &RSA_PSS_SHA256 } else { &RSA_PKCS1_SHA256 };
                key.sign(with, &random, message, &mut signature).unwrap();
                signature
            }
            Self::Ec(key) => key.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Ed(key) => key.sign(message).as_ref().to_vec(),
        }
    }

    /// A token with this header and these claims; what its header says is not compared with what signs it.
    pub(crate) fn token_with(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
        let signature = self.sign(header["alg"].as_str().unwrap_or_default(), message.as_bytes());
        format!("{message}.{}", encoded(signature))
    }

    pub(crate) fn token(&self, algorithm: &str, id: &str, claims: &Value) -> String {
        self.token_with(&json!({ "alg": algorithm, "kid": id, "typ": "JWT" }), claims)
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

pub(crate) const ISSUER: &str = "https://login.example.org/";

/// Claims that count for an hour.
pub(crate) fn claims() -> Value {
    json!({
        "iss": ISSUER, "aud": "cofferdam", "sub": "alice", "groups": ["ml", "all"],
        "iat": now(), "nbf": now(), "exp": now() + 3_600,
    })
}

/// With these changes; `null` takes a claim away.
pub(crate) fn claims_with(changes: &Value) -> Value {
    let mut all = claims();
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            all.as_object_mut().unwrap().remove(name);
        } else {
            all[name] = value.clone();
        }
    }
    all
}

pub(crate) fn set(keys: &[Value]) -> String {
    json!({ "keys": keys }).to_string()
}

pub(crate) fn issuer(keys: Source) -> Issuer {
    Issuer {
        name: "corp".into(),
        issuer: ISSUER.into(),
        audiences: vec!["cofferdam".into(), "other".into()],
        keys,
        principal_claim: "sub".into(),
        groups_claim: vec!["groups".into()],
        leeway: Duration::from_secs(60),
        max_lifetime: Duration::from_secs(86_400),
        grants: vec![Grant {
            claim: vec!["groups".into()],
            value: "ml".into(),
            roles: Roles::none().with(Role::Orchestrator),
            profiles: vec!["open".into()],
            user: None,
        }],
    }
}
