//! Connections whose TLS is ended in the process: servers and clients for their tests.

mod certificates;
mod frames;
mod games;
mod git;
mod hostile;
mod http1;
mod http2;
mod secrets;
mod served;
mod upstream;

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use wire::worker::v1::from_egress::Body as From;
use wire::worker::v1::inspect::Scheme;
use wire::worker::v1::request_answer::Decision;
use wire::worker::v1::{HttpRequest, InjectedHeader, ModelUsage, PlaceholderSeen, RequestGrant};

use crate::support::{Egress, Script, server};

const NAME: &str = "api.example.org";
/// Address of a program's connection to it.
const TO: &str = "11.0.0.7:443";
const SECRET: &str = "s3cret-0123456789";
const PLACEHOLDER: &str = "key-abcdefghijklmnopqrst";

type Client = StreamOwned<ClientConnection, TcpStream>;
type Served = StreamOwned<ServerConnection, TcpStream>;

/// An authority that signs the certificates of servers.
struct Ca {
    issuer: Issuer<'static, KeyPair>,
    der: Vec<u8>,
}

impl Ca {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        let key = KeyPair::generate().unwrap();
        // Each has a name of its own, as real authorities do.
        let name = format!("Test authority {:?}", &key.public_key_raw()[1..9]);
        params.distinguished_name.push(DnType::CommonName, name);
        let der = params.self_signed(&key).unwrap().der().to_vec();
        Self { issuer: Issuer::new(params, key), der }
    }

    /// Returns the side of a server with a certificate for this name, until this year.
    fn server(&self, name: &str, until: i32, protocols: &[&str]) -> Arc<ServerConfig> {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        self.signed(&params, protocols)
    }

    /// Returns the side of a server with a certificate that is signed as it is described.
    fn signed(&self, params: &CertificateParams, protocols: &[&str]) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let certificate = params.clone().signed_by(&key, &self.issuer).unwrap();
        serving(certificate.der(), &key, protocols)
    }

    /// Returns the usual side of a server.
    fn good(&self, protocols: &[&str]) -> Arc<ServerConfig> {
        self.server(NAME, 3000, protocols)
    }
}

/// Returns the side of a server that shows a certificate.
fn serving(certificate: &CertificateDer<'static>, key: &KeyPair, protocols: &[&str]) -> Arc<ServerConfig> {
    serving_chain(vec![certificate.clone()], key, protocols)
}

/// The same with the certificates above it.
fn serving_chain(
    chain: Vec<CertificateDer<'static>>,
    key: &KeyPair,
    protocols: &[&str],
) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// A server with TLS that serves each connection in a thread.
fn tls_server(config: Arc<ServerConfig>, serve: impl Fn(&mut Served) + Send + Sync + 'static) -> SocketAddr {
    server(move |stream| {
        let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        serve(&mut stream);
        stream.conn.send_close_notify();
        let _ = stream.flush();
    })
}

/// Answers each request with its head, as it came.
fn mirror(stream: &mut Served) {
    while let Some(head) = read_head(stream) {
        let length = head.len();
        if write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{head}").is_err() {
            return;
        }
    }
}

/// Reads a head; `None` at the end.
fn read_head(stream: &mut impl std::io::Read) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

/// Reads a response with a length. Returns its head and its body.
fn response(stream: &mut impl std::io::Read) -> (String, String) {
    let head = read_head(stream).unwrap();
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

/// Returns a script with one opened port.
fn opened(ca: &Ca, server: SocketAddr) -> Script {
    let mut script = Script::new(64).rule(443, Scheme::Https, NAME, Some(server));
    script.ports.get_mut(&443).unwrap().inspect.as_mut().unwrap().open = true;
    script.start.make_authority = true;
    script.start.roots = vec![ca.der.clone()];
    script.start.placeholders = vec![PLACEHOLDER.into()];
    script
}

/// Makes the port ask about each request, and grants the header with the secret.
fn granting(mut script: Script, port: u16) -> Script {
    let rule = script.ports.get_mut(&port).unwrap();
    rule.inspect.as_mut().unwrap().ask = true;
    let value = format!("Bearer {SECRET}").into_bytes();
    let headers = vec![InjectedHeader { name: "authorization".to_owned(), value }];
    rule.decision = Some(Decision::Grant(RequestGrant { headers, hide: vec![SECRET.into()] }));
    script
}

/// Returns the side of a program that trusts the authority of the process alone.
fn client_config(egress: &mut Egress, protocols: &[&str]) -> Arc<ClientConfig> {
    let ready = egress.wait("the authority", |message| matches!(message.body, Some(From::Ready(_))));
    let Some(From::Ready(ready)) = ready.body else { unreachable!() };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(ready.authority)).unwrap();
    client_of(roots, protocols)
}

fn client_of(roots: RootCertStore, protocols: &[&str]) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// Connects as a program that speaks HTTP/1.
fn connect(egress: &mut Egress) -> Client {
    connect_with(egress, &["http/1.1"])
}

fn connect_with(egress: &mut Egress, protocols: &[&str]) -> Client {
    let config = client_config(egress, protocols);
    let name = ServerName::try_from(NAME).unwrap();
    StreamOwned::new(ClientConnection::new(config, name).unwrap(), egress.connect(TO))
}

/// Returns the records of requests, those that were asked about among them.
fn requests(egress: &Egress) -> Vec<HttpRequest> {
    let record = |body| match body {
        Some(From::Request(request)) => Some(request),
        Some(From::Asked(asked)) => asked.request,
        _ => None,
    };
    egress.messages().into_iter().filter_map(|message| record(message.body)).collect()
}

/// Waits for the tokens of a request.
fn usage(egress: &mut Egress, request: u64) -> ModelUsage {
    let is_it = |body: &Option<From>| matches!(body, Some(From::Usage(usage)) if usage.request == request);
    let message = egress.wait("the usage", |message| is_it(&message.body));
    let Some(From::Usage(usage)) = message.body else { unreachable!() };
    usage
}

/// Waits for the report of a placeholder.
fn placeholder(egress: &mut Egress) -> PlaceholderSeen {
    let message = egress.wait("the report", |message| matches!(message.body, Some(From::Placeholder(_))));
    let Some(From::Placeholder(seen)) = message.body else { unreachable!() };
    seen
}

/// Pause after which a piece is read alone.
const PAUSE: Duration = Duration::from_millis(60);
