use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ED25519, PublicKeyData,
    SignatureAlgorithm,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::sign::{CertifiedKey, Signer, SigningKey, SingleCertAndKey};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;
use crate::tls::{Certificates, Files};

/// The neutral element, with which everybody can sign.
const NEUTRAL: [u8; 32] = {
    let mut point = [0; 32];
    point[0] = 1;
    point
};

/// A public key of Ed25519 with any bytes.
struct Point([u8; 32]);

impl PublicKeyData for Point {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}

/// A signature that holds for each message with the neutral element, and that no key was needed for.
#[derive(Debug)]
struct Everybody;

impl SigningKey for Everybody {
    fn choose_scheme(&self, _: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        Some(Box::new(Self))
    }

    fn algorithm(&self) -> tokio_rustls::rustls::SignatureAlgorithm {
        tokio_rustls::rustls::SignatureAlgorithm::ED25519
    }
}

impl Signer for Everybody {
    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, Error> {
        Ok([NEUTRAL, [0; 32]].concat())
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}

/// A daemon's certificates, with an authority of clients.
struct Scene {
    directory: tempfile::TempDir,
    authority: Issuer<'static, KeyPair>,
    server: CertificateDer<'static>,
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let server = params("localhost").self_signed(&key).unwrap();
        let of_clients = KeyPair::generate().unwrap();
        let mut params = params("ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&of_clients).unwrap();
        for (name, contents) in [
            ("cert.pem", server.pem()),
            ("key.pem", key.serialize_pem()),
            ("ca.pem", authority.pem()),
            ("ca.key", of_clients.serialize_pem()),
        ] {
            put(directory.path(), name, &contents);
        }
        Self { directory, authority: Issuer::new(params, of_clients), server: server.der().clone() }
    }

    fn load(&self) -> Result<Certificates, (&'static str, String)> {
        let at = |name| self.directory.path().join(name);
        let files = Files {
            certificate: at("cert.pem"),
            key: at("key.pem"),
            client_ca: Some(at("ca.pem")),
            revoked: None,
        };
        Certificates::load(files, false)
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        let file = self.directory.path().join("ca.pem");
        roots.add(CertificateDer::from_pem_file(file).unwrap()).unwrap();
        roots
    }

    /// Returns a client that shows this chain, and signs with this key.
    fn client(&self, chain: Vec<CertificateDer<'static>>, key: Arc<dyn SigningKey>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.server.clone()).unwrap();
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key))))
    }

    /// Executes `openssl` in the directory.
    fn openssl(&self, args: &str) {
        let mut openssl = Command::new("openssl");
        let made = openssl.args(args.split(' ')).current_dir(self.directory.path()).output().unwrap();
        assert!(made.status.success(), "{args}: {}", String::from_utf8_lossy(&made.stderr));
    }

    /// Has `openssl` make a client's key of RSA, and a certificate for it.
    fn make(&self, name: &str, bits: u32, digest: &str) {
        put(self.directory.path(), "ext", "basicConstraints=CA:FALSE\n");
        self.openssl(&format!("req -new -newkey rsa:{bits} -nodes -keyout {name}.key -subj /CN=ci -out csr"));
        self.openssl(&format!(
            "x509 -req -in csr -CA ca.pem -CAkey ca.key -set_serial 2 -days 2 -{digest} -extfile ext -out {name}.pem"
        ));
    }

    /// Returns a client with the files that `openssl` has made.
    fn client_with(&self, name: &str) -> ClientConfig {
        let at = |end: &str| self.directory.path().join(format!("{name}.{end}"));
        let key = PrivateKeyDer::from_pem_file(at("key")).unwrap();
        let key = ring::sign::any_supported_type(&key).unwrap();
        self.client(vec![CertificateDer::from_pem_file(at("pem")).unwrap()], key)
    }
}

fn put(directory: &Path, name: &str, contents: &str) {
    std::fs::write(directory.join(name), contents).unwrap();
    std::fs::set_permissions(directory.join(name), Permissions::from_mode(0o600)).unwrap();
}

/// Makes a connection of a client. Returns the end that the server has.
async fn connected(client: ClientConfig) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let stream = TcpStream::connect(at).await.unwrap();
        let connector = TlsConnector::from(Arc::new(client));
        let connected = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await;
        // The server decides after the client has finished.
        tokio::time::sleep(Duration::from_secs(60)).await;
        drop(connected);
    });
    listener.accept().await.unwrap().0
}

/// Returns the error with which the daemon refuses a client; `None` if it accepts the certificate.
async fn refused(scene: &Scene, client: ClientConfig) -> Option<String> {
    let stream = connected(client).await;
    match scene.load().unwrap().accept_http(stream).await {
        Ok((_, true)) => None,
        Ok((_, false)) => panic!("no certificate was shown"),
        Err(error) => Some(error.to_string()),
    }
}

#[tokio::test]
async fn a_client_whose_key_everybody_has_is_refused() {
    let scene = Scene::new();
    let certificate = params("ci").signed_by(&Point(NEUTRAL), &scene.authority).unwrap();
    let client = scene.client(vec![certificate.der().clone()], Arc::new(Everybody));
    // Without this module, everybody is this client.
    let verifier = WebPkiClientVerifier::builder_with_provider(
        Arc::new(scene.roots()),
        Arc::new(ring::default_provider()),
    );
    let key = PrivateKeyDer::from_pem_file(scene.directory.path().join("key.pem")).unwrap();
    let plain = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![scene.server.clone()], key)
        .unwrap();
    let accepted = TlsAcceptor::from(Arc::new(plain)).accept(connected(client.clone()).await).await.unwrap();
    assert!(accepted.get_ref().1.peer_certificates().is_some());
    let error = refused(&scene, client).await.expect("everybody is this client");
    assert!(error.contains("ApplicationVerificationFailure"), "{error}");
}

#[tokio::test]
async fn a_client_with_a_key_of_its_own_is_accepted() {
    let scene = Scene::new();
    for with in [&PKCS_ED25519, &rcgen::PKCS_ECDSA_P256_SHA256] {
        let key = KeyPair::generate_for(with).unwrap();
        let certificate = params("ci").signed_by(&key, &scene.authority).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let key = ring::sign::any_supported_type(&key).unwrap();
        assert_eq!(refused(&scene, scene.client(vec![certificate.der().clone()], key)).await, None);
    }
}

#[tokio::test]
async fn short_keys_of_rsa_and_sha_1_are_refused() {
    let scene = Scene::new();
    scene.make("good", 2_048, "sha256");
    assert_eq!(refused(&scene, scene.client_with("good")).await, None);
    scene.make("old", 2_048, "sha1");
    let error = refused(&scene, scene.client_with("old")).await.expect("SHA-1 is accepted");
    assert!(error.contains("invalid peer certificate"), "{error}");

    // The client of rustls has no such keys.
    scene.make("short", 1_024, "sha256");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let mut client = Command::new("openssl")
        .args(["s_client", "-connect", &at, "-tls1_3", "-cipher", "DEFAULT@SECLEVEL=0"])
        .args(["-cert", "short.pem", "-key", "short.key"])
        .current_dir(scene.directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (stream, _) = timeout(Duration::from_secs(30), listener.accept()).await.unwrap().unwrap();
    let error = scene.load().unwrap().accept_http(stream).await.expect_err("1,024 bits are accepted");
    assert!(error.to_string().contains("invalid peer certificate"), "{error}");
    client.kill().unwrap();
    client.wait().unwrap();
}

#[test]
fn weak_authorities_are_problems_of_the_configuration() {
    let scene = Scene::new();
    assert!(scene.load().is_ok());
    let mut params = params("ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let weak = params.signed_by(&Point(NEUTRAL), &scene.authority).unwrap();
    put(scene.directory.path(), "ca.pem", &weak.pem());
    let (key, message) = scene.load().err().unwrap();
    assert!(key == "client_ca" && message.contains("everybody can sign"), "{message}");
}

#[test]
fn only_points_of_a_small_order_are_weak() {
    let key = |point: [u8; 32]| [&ED25519[..], &point].concat();
    // A point of order eight, and the neutral element with another encoding.
    let eight = "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05";
    let eight: Vec<u8> =
        (0..64).step_by(2).map(|at| u8::from_str_radix(&eight[at..at + 2], 16).unwrap()).collect();
    let mut other = [0xff; 32];
    (other[0], other[31]) = (0xee, 0x7f);
    for weak in [NEUTRAL, eight.try_into().unwrap(), other, [0; 32]] {
        assert!(is_weak_key(&key(weak)), "{weak:02x?}");
    }
    assert!(is_weak_key(&ED25519), "no point");
    let strong = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let strong: [u8; 32] = strong.der_bytes().try_into().unwrap();
    assert!(!is_weak_key(&key(strong)) && !is_weak_key(&[0x30; 42]) && !is_weak_key(b""));
}
