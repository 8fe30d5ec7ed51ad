//! Clients over TCP: certificates that `coffer tls` makes, and connections that show them, or tokens, or nothing.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Error, Identity};
use wire::v1;
use wire::v1::token_service_client::TokenServiceClient;

use crate::daemon::{Daemon, binary};

/// An authority, the daemon's certificate, and one for each client.
pub struct Certificates(TempDir);

impl Certificates {
    /// Made by `coffer tls init` for `localhost` and these clients.
    pub fn make(clients: &[&str]) -> Self {
        let made = Self(tempfile::tempdir().unwrap());
        let clients: Vec<_> = clients.iter().flat_map(|client| ["--client", client]).collect();
        made.coffer("init", &clients);
        made
    }

    /// Made by `coffer tls init` for a server with this name.
    pub fn for_host(host: &str) -> Self {
        let made = Self(tempfile::tempdir().unwrap());
        made.coffer("init", &["--host", host]);
        made
    }

    /// Runs `coffer tls VERB` on them; its standard output.
    pub fn coffer(&self, verb: &str, arguments: &[&str]) -> String {
        let mut command = std::process::Command::new(binary("coffer"));
        command.args(["tls", verb]).arg(self.directory()).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn directory(&self) -> PathBuf {
        self.0.path().join("tls")
    }

    /// The directory of a client.
    pub fn client(&self, name: &str) -> PathBuf {
        self.directory().join("clients").join(name)
    }

    /// Who signed.
    pub fn authority(&self) -> PathBuf {
        self.directory().join("server/ca.pem")
    }

    /// Accepts connections with the server's certificate.
    pub fn acceptor(&self) -> TlsAcceptor {
        let at = self.directory().join("server");
        let chain = CertificateDer::pem_file_iter(at.join("cert.pem")).unwrap().map(Result::unwrap).collect();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::from_pem_file(at.join("key.pem")).unwrap())
            .unwrap();
        Arc::new(config).into()
    }

    /// `listen.tcp` of a daemon with these certificates, and further keys.
    pub fn listen(&self, keys: &str) -> String {
        let at = self.directory().join("server").display().to_string();
        format!(
            "address: '127.0.0.1:0', tls: {{ certificate: {at}/cert.pem, key: {at}/key.pem, client_ca: {at}/ca.pem }}, {keys}"
        )
    }

    /// A connection that shows the certificate of `client`, or none.
    pub async fn connect(&self, daemon: &Daemon, client: Option<&str>) -> Result<Channel, Error> {
        self.endpoint(daemon, client)?.connect().await
    }

    /// How such a connection is made.
    pub fn endpoint(&self, daemon: &Daemon, client: Option<&str>) -> Result<Endpoint, Error> {
        self.endpoint_at(&daemon.url("https"), client)
    }

    /// The same, at a URL. The certificate of the server is for `localhost`, whatever its address is.
    pub fn endpoint_at(&self, url: &str, client: Option<&str>) -> Result<Endpoint, Error> {
        let pem = |path: PathBuf| std::fs::read_to_string(path).unwrap();
        let authority = Certificate::from_pem(pem(self.authority()));
        let mut config = ClientTlsConfig::new().ca_certificate(authority).domain_name("localhost");
        if let Some(client) = client {
            let at = self.client(client);
            config = config.identity(Identity::from_pem(pem(at.join("cert.pem")), pem(at.join("key.pem"))));
        }
        let endpoint = Endpoint::from_shared(url.to_owned())?.tls_config(config)?;
        Ok(endpoint.connect_timeout(Duration::from_secs(20)))
    }
}

impl Daemon {
    /// Where it listens on TCP.
    pub fn address(&self) -> SocketAddr {
        self.told("listens on TCP, too address=").parse().unwrap()
    }

    /// The same as a URL, by the name in its certificate.
    pub fn url(&self, scheme: &str) -> String {
        format!("{scheme}://localhost:{}", self.address().port())
    }

    /// Makes a token by the Unix socket; its record and its secret.
    pub async fn token(&self, token: v1::Token, lifetime: Option<Duration>) -> (v1::Token, String) {
        let lifetime = lifetime.map(|lifetime| lifetime.try_into().unwrap());
        let request = v1::CreateTokenRequest { token: Some(token), lifetime };
        let mut tokens = TokenServiceClient::new(self.connect().await.channel);
        let made = tokens.create_token(request).await.unwrap().into_inner();
        (made.token.unwrap(), made.secret)
    }
}

/// Shows a token with each request.
#[derive(Clone)]
pub struct Bearer(MetadataValue<Ascii>);

impl Bearer {
    pub fn new(token: &str) -> Self {
        Self(format!("Bearer {token}").parse().unwrap())
    }

    /// A request that shows it.
    pub fn shows<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", self.0.clone());
        request
    }
}
