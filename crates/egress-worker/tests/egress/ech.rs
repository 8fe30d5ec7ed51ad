//! ClientHellos with the extension `encrypted_client_hello` (RFC 9849), as a real client makes them.
//!
//! The provider of cryptography here has no HPKE. No server decrypts the content, so an imitation of HPKE is enough.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use egress_worker::client_hello::{Collector, Hello};
use tokio_rustls::rustls::client::{EchConfig, EchGreaseConfig, EchMode};
use tokio_rustls::rustls::crypto::hpke::{
    EncapsulatedSecret, Hpke, HpkeOpener, HpkePrivateKey, HpkePublicKey, HpkeSealer, HpkeSuite,
};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::internal::msgs::enums::HpkeKem;
use tokio_rustls::rustls::internal::msgs::handshake::HpkeSymmetricCipherSuite;
use tokio_rustls::rustls::pki_types::EchConfigListBytes;
use tokio_rustls::rustls::{ClientConfig, Error, RootCertStore};
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::from_egress::Body;
use wire::worker::v1::inspect::Scheme;

use crate::support::{Egress, Script, assert_reset, echo, first_bytes};

const NAME: &str = "files.example.org";

/// X25519 and AES-128-GCM in form, with the length of their keys and tags, and inverted bytes for a ciphertext.
#[derive(Debug)]
struct Imitation;

impl Hpke for Imitation {
    fn seal(
        &self,
        _info: &[u8],
        _aad: &[u8],
        _plaintext: &[u8],
        _pub_key: &HpkePublicKey,
    ) -> Result<(EncapsulatedSecret, Vec<u8>), Error> {
        Err(unused())
    }

    fn setup_sealer(
        &self,
        _info: &[u8],
        _pub_key: &HpkePublicKey,
    ) -> Result<(EncapsulatedSecret, Box<dyn HpkeSealer + 'static>), Error> {
        Ok((EncapsulatedSecret(vec![7; 32]), Box::new(Inverts)))
    }

    fn open(
        &self,
        _enc: &EncapsulatedSecret,
        _info: &[u8],
        _aad: &[u8],
        _ciphertext: &[u8],
        _secret_key: &HpkePrivateKey,
    ) -> Result<Vec<u8>, Error> {
        Err(unused())
    }

    fn setup_opener(
        &self,
        _enc: &EncapsulatedSecret,
        _info: &[u8],
        _secret_key: &HpkePrivateKey,
    ) -> Result<Box<dyn HpkeOpener + 'static>, Error> {
        Err(unused())
    }

    fn generate_key_pair(&self) -> Result<(HpkePublicKey, HpkePrivateKey), Error> {
        Err(unused())
    }

    fn suite(&self) -> HpkeSuite {
        HpkeSuite { kem: HpkeKem::DHKEM_X25519_HKDF_SHA256, sym: HpkeSymmetricCipherSuite::default() }
    }
}

fn unused() -> Error {
    Error::General("a client that sends a ClientHello needs no more".to_owned())
}

#[derive(Debug)]
struct Inverts;

impl HpkeSealer for Inverts {
    fn seal(&mut self, _aad: &[u8], plaintext: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(plaintext.iter().map(|byte| !byte).chain([9; 16]).collect())
    }
}

/// Returns the mode of a client that has no configuration of the server, as browsers without one.
fn grease() -> EchMode {
    EchMode::Grease(EchGreaseConfig::new(&Imitation, HpkePublicKey(vec![5; 32])))
}

/// Returns the mode of a client that has a configuration with this public name (RFC 9849, section 4).
fn real(public_name: &str) -> EchMode {
    let name = public_name.as_bytes();
    let contents = [
        // The number of the configuration, the KEM, the key, one suite, and no padding of names.
        &[3, 0, 0x20, 0, 32][..],
        &[5; 32],
        &[0, 4, 0, 1, 0, 1, 0],
        &[u8::try_from(name.len()).unwrap()],
        name,
        // No extensions.
        &[0, 0],
    ]
    .concat();
    let length = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap().to_be_bytes();
    let config = [&[0xfe, 0x0d][..], &length(&contents), &contents].concat();
    let list = [&length(&config)[..], &config].concat();
    EchMode::Enable(EchConfig::new(EchConfigListBytes::from(list), &[&Imitation]).unwrap())
}

/// Returns the first bytes of a client that wants to reach a name.
fn hello(name: &str, mode: EchMode) -> Vec<u8> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_ech(mode).unwrap();
    let config = builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    first_bytes(config, name)
}

#[test]
fn n110_the_name_in_the_clear_is_found_beside_an_encrypted_hello() {
    for (bytes, server_name) in [
        (hello(NAME, grease()), NAME),
        // A client that follows the RFC shows the public name of its configuration.
        (hello(NAME, real("public.example.org")), "public.example.org"),
        // One that does not may show any name. The inner one is seen by the server alone.
        (hello("inner.example.org", real(NAME)), NAME),
    ] {
        let mut collector = Collector::default();
        let expected = Hello { server_name: server_name.to_owned(), has_encrypted: true };
        assert_eq!(collector.push(&bytes), Ok(Some(expected)));
        assert_eq!(collector.into_bytes(), bytes);
    }
}

#[test]
fn n110_an_encrypted_hello_passes_unchanged_with_the_right_name_in_the_clear_alone() {
    let script = Script::new(16).rule(443, Scheme::Https, NAME, Some(echo()));
    let mut egress = Egress::start(script);
    let imitation = hello(NAME, grease());
    let mut stream = egress.connect("11.0.0.7:443");
    stream.write_all(&imitation).unwrap();
    let mut back = vec![0; imitation.len()];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, imitation);
    drop(stream);
    let ready = egress.wait("the look", |message| matches!(message.body, Some(Body::Connection(_))));
    let Some(Body::Connection(ready)) = ready.body else { panic!("{ready:?}") };
    assert_eq!((ready.server_name.as_str(), ready.encrypted_client_hello), (NAME, true));
    for bytes in [
        hello("other.example.org", grease()),
        hello("192.0.2.1", grease()),
        hello(NAME, real("public.example.org")),
    ] {
        let before = egress.ended(1).len();
        let mut stream = egress.connect("11.0.0.7:443");
        stream.write_all(&bytes).unwrap();
        assert_reset(stream);
        assert_eq!(egress.ended(before + 1)[before].cause(), Cause::WrongServerName);
    }
}
