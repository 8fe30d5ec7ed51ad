//! An issuer that tests play, and tokens of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use webhook::Tls;

/// Returns a token with these claims and no valid signature.
pub(crate) fn token(claims: &Value) -> String {
    format!("{}.{}.c2ln", URL_SAFE_NO_PAD.encode("{}"), URL_SAFE_NO_PAD.encode(claims.to_string()))
}

/// Answers of a server: status and body, by path.
pub(crate) type Answers = BTreeMap<&'static str, (u16, String)>;

/// A server with TLS.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) tls: Tls,
    pub(crate) answers: watch::Sender<Answers>,
    /// Requests that it got, each as a whole.
    pub(crate) asked: watch::Receiver<Vec<String>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec!["localhost".into()]).unwrap().self_signed(&key).unwrap();
        let (certificate, key) =
            (CertificateDer::from(certificate), PrivateKeyDer::try_from(key.serialize_der()).unwrap());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let (answers, said) = watch::channel(Answers::new());
        let (count, asked) = watch::channel(Vec::new());
        tokio::spawn(async move {
            let acceptor = TlsAcceptor::from(Arc::new(config));
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut request = Vec::new();
                while !is_whole(&request) && stream.read_buf(&mut request).await.unwrap_or(0) > 0 {}
                let request = String::from_utf8(request).unwrap();
                let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                count.send_modify(|all: &mut Vec<String>| all.push(request));
                let (status, body) =
                    said.borrow().get(path.as_str()).cloned().unwrap_or((404, String::new()));
                let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n\r\n", body.len());
                let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        Self { url, tls: Tls::trusting([certificate]).unwrap(), answers, asked }
    }

    pub(crate) fn say(&self, path: &'static str, status: u16, body: &Value) {
        self.answers.send_modify(|answers| drop(answers.insert(path, (status, body.to_string()))));
    }
}

/// Returns true if a request is there with its body.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}
