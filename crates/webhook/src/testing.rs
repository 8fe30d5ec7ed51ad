//! A server with TLS that tests of other crates play. Only with the feature `testing`.

#![expect(clippy::unwrap_used, reason = "tests alone use it")]
#![allow(clippy::missing_panics_doc)] // as above

use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::Tls;

/// Serves `https://localhost`: answers the one request of each connection with the bytes that `answer` returns.
///
/// Returns the URL without a path, and the TLS of a client that trusts the server.
pub async fn serve(mut answer: impl FnMut(String) -> Vec<u8> + Send + 'static) -> (String, Tls) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".into()]).unwrap().self_signed(&key).unwrap();
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
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut request = Vec::new();
            while !is_whole(&request) && stream.read_buf(&mut request).await.unwrap_or(0) > 0 {}
            let answer = answer(String::from_utf8(request).unwrap());
            let _ = stream.write_all(&answer).await;
            let _ = stream.shutdown().await;
        }
    });
    (url, Tls::trusting([certificate]).unwrap())
}

/// Returns true if a request is there with its body.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}
