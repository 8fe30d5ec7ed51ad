//! Sets up the daemon's TLS as a server: only TLS 1.3, with ring.
//!
//! Certificates are read again when their files change. A connection keeps those that it began with.
//!
//! No session is resumed: a client presents its certificate, and has it verified, with every connection.

#![expect(clippy::disallowed_methods, reason = "the certificates that the configuration names")]

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::RwLock;
use sha2::{Digest as _, Sha256};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::expiry::CertificateEnd;
use super::revoked::{self, Fingerprint, Shown};
use super::strength::{StrongKeys, has_weak_authority};
use super::subject::Subject;

/// Maximum size of a file of certificates, bytes.
const MAX_FILE: u64 = 1 << 20;
/// Interval between two checks of the files.
const LOOK: Duration = Duration::from_secs(5);
/// Interval between two warnings of certificates that expire.
const WARN: Duration = Duration::from_secs(86_400);

/// Paths of the certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The daemon's certificate, and the certificates between it and its authority.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Authorities that sign client certificates; `None` if clients are not asked for one.
    pub client_ca: Option<PathBuf>,
    /// List of revoked client certificates.
    pub revoked: Option<PathBuf>,
}

/// Problem with a file: its key in the configuration, and a message.
pub(crate) type Problem = (&'static str, String);

/// The certificates in force.
pub struct Certificates {
    files: RwLock<Files>,
    /// True if a client without a certificate may present a token.
    takes_tokens: bool,
    current: RwLock<Loaded>,
    /// Signals each change.
    changes: watch::Sender<()>,
}

/// Shows the paths, without the contents of the files.
impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("files", &self.files).finish_non_exhaustive()
    }
}

/// Certificates that were read and are not in force yet.
pub struct Replacement {
    files: Files,
    loaded: Loaded,
}

#[derive(Clone)]
struct Loaded {
    config: Arc<ServerConfig>,
    /// Digest of the contents of the files.
    digest: [u8; 32],
    revoked: Arc<HashSet<Fingerprint>>,
    /// Ends of the daemon's certificates, and of the authorities of clients.
    ends: Vec<CertificateEnd>,
}

impl Certificates {
    pub fn load(files: Files, takes_tokens: bool) -> Result<Self, Problem> {
        let current = Contents::read(&files)?.loaded(takes_tokens)?;
        let (files, current) = (RwLock::new(files), RwLock::new(current));
        Ok(Self { files, takes_tokens, current, changes: watch::Sender::new(()) })
    }

    /// Reads certificates that are to replace those in force.
    pub fn prepare(&self, files: Files) -> Result<Replacement, Problem> {
        let loaded = Contents::read(&files)?.loaded(self.takes_tokens)?;
        Ok(Replacement { files, loaded })
    }

    /// Replaces the certificates, and the files that are watched.
    pub fn replace(&self, Replacement { files, loaded }: Replacement) {
        let mut watched = self.files.write();
        *watched = files;
        self.put(loaded);
    }

    /// Returns true if a client's certificate is revoked.
    pub(super) fn is_revoked(&self, shown: &Shown) -> bool {
        shown.is_in(&self.current.read().revoked)
    }

    /// Completes when this certificate is revoked.
    pub(super) async fn revoked(&self, shown: &Shown) {
        let mut changes = self.changes.subscribe();
        while !self.is_revoked(shown) {
            // Cannot fail, because `self` has the sender.
            let _ = changes.changed().await;
        }
    }

    /// Returns the ends of the daemon's certificates and of the authorities of clients.
    pub fn ends(&self) -> Vec<CertificateEnd> {
        self.current.read().ends.clone()
    }

    /// Logs the certificates that expire soon or have expired.
    fn warn_of_ends(&self) {
        let now = SystemTime::now();
        for end in self.ends() {
            end.warn(now);
        }
    }

    /// Returns the TLS configuration for the next connection.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.current.read().config.clone()
    }

    /// Accepts TLS from a client that speaks HTTP/1.1. Returns true with the stream if the client has shown a certificate that is valid and
    /// not revoked. Fails for a revoked one.
    pub async fn accept_http(&self, stream: TcpStream) -> io::Result<(TlsStream<TcpStream>, bool)> {
        let (stream, shown) = self.accept_shown(stream).await?;
        Ok((stream, shown.is_some()))
    }

    /// Accepts TLS from a browser. Returns the subject of its certificate, if it has shown one that names a holder. Fails for a revoked one.
    pub async fn accept_browser(
        &self,
        stream: TcpStream,
    ) -> io::Result<(TlsStream<TcpStream>, Option<Subject>)> {
        let (stream, shown) = self.accept_shown(stream).await?;
        Ok((stream, shown.and_then(|shown| Subject::of(&shown))))
    }

    /// Accepts TLS from a client that speaks HTTP/1.1, and returns the certificate that it has shown.
    async fn accept_shown(
        &self,
        stream: TcpStream,
    ) -> io::Result<(TlsStream<TcpStream>, Option<CertificateDer<'static>>)> {
        let mut config = ServerConfig::clone(&self.config());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let shown = shown.map(|shown| shown.clone().into_owned());
        if shown.as_ref().is_some_and(|shown| self.is_revoked(&Shown::of(shown))) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok((stream, shown))
    }

    /// Reads the files again, and returns true if they have changed. A problem leaves the old certificates in force.
    pub fn reload(&self) -> Result<bool, Problem> {
        // Held until the end, so that a replacement is not undone by files that were read before it.
        let files = self.files.read();
        let contents = Contents::read(&files)?;
        if contents.digest() == self.current.read().digest {
            return Ok(false);
        }
        let loaded = contents.loaded(self.takes_tokens)?;
        Ok(self.put(loaded))
    }

    /// Puts certificates into force. Returns true if they differ from the previous ones.
    fn put(&self, loaded: Loaded) -> bool {
        let digest = loaded.digest;
        let before = std::mem::replace(&mut *self.current.write(), loaded);
        if before.digest == digest {
            return false;
        }
        self.changes.send_replace(());
        tracing::info!("new TLS certificates are in force; connections keep those that they began with");
        self.warn_of_ends();
        true
    }

    /// Reloads the certificates when their files change, until `stop`. Warns at once and every day of those that expire.
    ///
    /// If a new certificate is there and its key is not yet, the old ones stay in force.
    pub async fn watch(self: Arc<Self>, stop: CancellationToken) {
        self.warn_of_ends();
        let (mut said, mut warned) = (None, Instant::now());
        while stop.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_some() {
            let certificates = self.clone();
            let Ok(looked) = tokio::task::spawn_blocking(move || certificates.reload()).await else { return };
            let wrong = looked.err();
            if let Some((key, message)) = wrong.as_ref().filter(|_| wrong != said) {
                tracing::warn!(
                    "listen.tcp.tls.{key}: {message}; the previous TLS certificates stay in force"
                );
            }
            said = wrong;
            if warned.elapsed() >= WARN {
                self.warn_of_ends();
                warned = Instant::now();
            }
        }
    }
}

struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
    revoked: Option<Vec<u8>>,
}

impl Contents {
    fn read(files: &Files) -> Result<Self, Problem> {
        let certificate = read(&files.certificate, false).map_err(|error| ("certificate", error))?;
        let key = read(&files.key, true).map_err(|error| ("key", error))?;
        let client_ca = files.client_ca.as_ref().map(|file| read(file, false)).transpose();
        let client_ca = client_ca.map_err(|error| ("client_ca", error))?;
        let revoked = files.revoked.as_ref().map(|file| read(file, false)).transpose();
        Ok(Self { certificate, key, client_ca, revoked: revoked.map_err(|error| ("revoked", error))? })
    }

    fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        let parts =
            [Some(&self.certificate), Some(&self.key), self.client_ca.as_ref(), self.revoked.as_ref()];
        for part in parts.map(|part| part.map_or(&[][..], Vec::as_slice)) {
            digest.update(part.len().to_be_bytes());
            digest.update(part);
        }
        digest.finalize().into()
    }

    fn loaded(&self, takes_tokens: bool) -> Result<Loaded, Problem> {
        let provider = Arc::new(ring::default_provider());
        let chain = certificates(&self.certificate).map_err(|error| ("certificate", error))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|_| ("key", "holds no private key in PEM".to_owned()))?;
        let mut ends = CertificateEnd::all("certificate", &chain);
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| ("certificate", format!("TLS cannot be set up: {error}")))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(authorities) => {
                let wrong = |error: String| ("client_ca", error);
                let mut roots = RootCertStore::empty();
                let authorities = certificates(authorities).map_err(wrong)?;
                ends.extend(CertificateEnd::all("client_ca", &authorities));
                for authority in authorities {
                    roots.add(authority).map_err(|error| wrong(format!("cannot be used: {error}")))?;
                }
                if has_weak_authority(&roots) {
                    let weak =
                        "has an authority whose key of Ed25519 has a small order: everybody can sign with it";
                    return Err(wrong(weak.to_owned()));
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = if takes_tokens { verifier.allow_unauthenticated() } else { verifier };
                let verifier = verifier.build().map_err(|error| wrong(format!("cannot be used: {error}")))?;
                builder.with_client_cert_verifier(Arc::new(StrongKeys(verifier)))
            }
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| ("certificate", format!("does not match the key: {error}")))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let revoked = revoked::parse(self.revoked.as_deref().unwrap_or_default());
        let revoked = Arc::new(revoked.map_err(|error| ("revoked", error))?);
        Ok(Loaded { config: Arc::new(config), digest: self.digest(), revoked, ends })
    }
}

fn read(path: &Path, is_secret: bool) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| format!("{shown} cannot be read: {error}"))?;
    let found = file.metadata().map_err(|error| format!("{shown} cannot be read: {error}"))?;
    if !found.is_file() || found.len() > MAX_FILE {
        return Err(format!("{shown} is not a file of at most {MAX_FILE} bytes"));
    }
    if is_secret && found.permissions().mode() & 0o077 != 0 {
        return Err(format!("others can read or change {shown}: chmod 600 {shown}"));
    }
    let mut contents = Vec::new();
    file.take(MAX_FILE)
        .read_to_end(&mut contents)
        .map_err(|error| format!("{shown} cannot be read: {error}"))?;
    Ok(contents)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| format!("is not PEM: {error}"))?;
    if found.is_empty() { Err("holds no certificate in PEM".to_owned()) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::sync::Arc;

    use rcgen::{CertificateParams, KeyPair};

    use super::{Certificates, Files};

    fn put(directory: &Path, name: &str, contents: &str) {
        std::fs::write(directory.join(name), contents).unwrap();
        std::fs::set_permissions(directory.join(name), Permissions::from_mode(0o600)).unwrap();
    }

    fn made() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec!["localhost".into()]).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn files(directory: &Path) -> Files {
        let at = |name| directory.join(name);
        Files {
            certificate: at("cert.pem"),
            key: at("key.pem"),
            client_ca: Some(at("ca.pem")),
            revoked: None,
        }
    }

    #[test]
    fn tls_file_problems_are_reported_by_key() {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = made();
        let wrong = || Certificates::load(files(directory.path()), false).err().unwrap_or_default();
        assert_eq!(wrong().0, "certificate");
        put(directory.path(), "cert.pem", &certificate);
        assert_eq!(wrong().0, "key");
        put(directory.path(), "key.pem", &key);
        assert_eq!(wrong().0, "client_ca");
        put(directory.path(), "ca.pem", "nothing");
        assert_eq!(wrong(), ("client_ca", "holds no certificate in PEM".to_owned()));
        put(directory.path(), "ca.pem", &certificate);
        assert_eq!(wrong(), ("", String::new()));
        std::fs::set_permissions(directory.path().join("key.pem"), Permissions::from_mode(0o640)).unwrap();
        assert!(wrong().1.contains("chmod 600"));
        put(directory.path(), "key.pem", &made().1);
        let (key, message) = wrong();
        assert!(key == "certificate" && message.contains("does not match the key"), "{message}");
    }

    #[test]
    fn new_certificates_come_into_force_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = made();
        for (name, contents) in [("cert.pem", &certificate), ("key.pem", &key), ("ca.pem", &certificate)] {
            put(directory.path(), name, contents);
        }
        let loaded = Certificates::load(files(directory.path()), true).unwrap();
        let first = loaded.config();
        let ends: Vec<_> = loaded.ends().iter().map(|end| (end.key, end.place)).collect();
        assert_eq!(ends, [("certificate", 1), ("client_ca", 1)]);
        assert_eq!(loaded.reload(), Ok(false));
        let (certificate, key) = made();
        put(directory.path(), "cert.pem", &certificate);
        assert!(loaded.reload().is_err(), "the key is the old one");
        assert!(Arc::ptr_eq(&loaded.config(), &first));
        put(directory.path(), "key.pem", &key);
        assert_eq!(loaded.reload(), Ok(true));
        assert!(!Arc::ptr_eq(&loaded.config(), &first));
        assert_eq!(loaded.reload(), Ok(false));
    }

    #[test]
    fn other_files_are_prepared_without_effect_and_watched_once_they_are_in_force() {
        let (before, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let fill = |directory: &Path| {
            let (certificate, key) = made();
            for (name, contents) in [("cert.pem", &certificate), ("key.pem", &key), ("ca.pem", &certificate)]
            {
                put(directory, name, contents);
            }
        };
        fill(before.path());
        let loaded = Certificates::load(files(before.path()), true).unwrap();
        let first = loaded.config();
        assert_eq!(loaded.prepare(files(after.path())).err().unwrap().0, "certificate");
        fill(after.path());
        let replacement = loaded.prepare(files(after.path())).unwrap();
        assert!(Arc::ptr_eq(&loaded.config(), &first));
        loaded.replace(replacement);
        let second = loaded.config();
        assert!(!Arc::ptr_eq(&second, &first));
        assert_eq!(loaded.reload(), Ok(false), "the files that are watched are the new ones");
        fill(before.path());
        assert_eq!(loaded.reload(), Ok(false));
        fill(after.path());
        assert_eq!(loaded.reload(), Ok(true));
        assert!(!Arc::ptr_eq(&loaded.config(), &second));
    }
}
