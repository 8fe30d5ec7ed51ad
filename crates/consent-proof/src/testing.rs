//! An authenticator in software.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use sha2::{Digest as _, Sha256};

use crate::{Assertion, PublicKey, RelyingParty};

pub(crate) fn party() -> RelyingParty {
    RelyingParty { id: "console.example.org".into(), origin: "https://console.example.org".into() }
}

enum Pair {
    Es256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

pub(crate) struct Authenticator(Pair);

impl Authenticator {
    pub(crate) fn es256() -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random);
        Self(Pair::Es256(pair.unwrap()))
    }

    pub(crate) fn ed25519() -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self(Pair::Ed25519(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap()))
    }

    #[expect(clippy::unused_self, reason = "each has an id")]
    pub(crate) fn id(&self) -> &'static [u8] {
        b"the id of a passkey"
    }

    pub(crate) fn key(&self) -> PublicKey {
        match &self.0 {
            Pair::Es256(pair) => PublicKey::Es256(pair.public_key().as_ref().try_into().unwrap()),
            Pair::Ed25519(pair) => PublicKey::Ed25519(pair.public_key().as_ref().try_into().unwrap()),
        }
    }

    fn cose(&self) -> Vec<u8> {
        match &self.0 {
            Pair::Es256(pair) => {
                let point = pair.public_key().as_ref();
                let head: &[u8] = &[0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21, 0x58, 32];
                [head, &point[1..33], &[0x22, 0x58, 32], &point[33..]].concat()
            }
            Pair::Ed25519(pair) => {
                let head: &[u8] = &[0xa4, 1, 1, 3, 0x27, 0x20, 6, 0x21, 0x58, 32];
                [head, pair.public_key().as_ref()].concat()
            }
        }
    }

    pub(crate) fn data(flags: u8, count: u32, rp_id: &str) -> Vec<u8> {
        [&Sha256::digest(rp_id)[..], &[flags], &count.to_be_bytes()].concat()
    }

    pub(crate) fn attested(&self, rp_id: &str) -> Vec<u8> {
        let id = self.id();
        let length = u16::try_from(id.len()).unwrap().to_be_bytes();
        [&Self::data(0x45, 0, rp_id)[..], &[0; 16], &length, id, &self.cose()].concat()
    }

    #[expect(clippy::unused_self, reason = "reads as the act of one authenticator")]
    pub(crate) fn client_data(&self, ceremony: &str, challenge: &[u8], origin: &str) -> Vec<u8> {
        let challenge = URL_SAFE_NO_PAD.encode(challenge);
        format!(
            r#"{{"type":"{ceremony}","challenge":"{challenge}","origin":"{origin}","crossOrigin":false}}"#
        )
        .into_bytes()
    }

    pub(crate) fn sign(&self, authenticator_data: Vec<u8>, client_data_json: Vec<u8>) -> Assertion {
        let message = [&authenticator_data[..], &Sha256::digest(&client_data_json)].concat();
        let signature = match &self.0 {
            Pair::Es256(pair) => pair.sign(&SystemRandom::new(), &message).unwrap().as_ref().to_vec(),
            Pair::Ed25519(pair) => pair.sign(&message).as_ref().to_vec(),
        };
        Assertion { authenticator_data, client_data_json, signature }
    }
}
