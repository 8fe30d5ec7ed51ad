use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::Sender;
use crate::{Endpoint, Secret, Target};

fn webhook(url: &str) -> Endpoint {
    Endpoint {
        name: "test".to_owned(),
        target: Target::parse(url, false).unwrap(),
        secret: Some(Secret::parse(&format!("whsec_{}", STANDARD.encode([7; 32]))).unwrap()),
        timeout: Duration::from_secs(20),
        attempts: 3,
        first_retry: Duration::from_secs(1),
    }
}

fn sender() -> Sender {
    Sender::trusting([]).unwrap()
}

/// A server that answers the first connection with `answer`, and gives what it was sent.
async fn server(answer: &'static [u8]) -> (u16, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let sent = request(&mut stream).await;
        let _ = stream.write_all(answer).await;
        sent
    });
    (port, served)
}

async fn request(stream: &mut TcpStream) -> String {
    let mut sent = Vec::new();
    while !String::from_utf8_lossy(&sent).ends_with("{\"a\":1}") {
        let mut piece = [0; 1024];
        let count = stream.read(&mut piece).await.unwrap();
        assert_ne!(count, 0);
        sent.extend_from_slice(&piece[..count]);
    }
    String::from_utf8(sent).unwrap()
}

#[tokio::test]
async fn posted_message_is_signed_and_complete() {
    let (port, served) = server(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    let webhook = webhook(&format!("http://127.0.0.1:{port}/hook?x=1"));
    sender().post(&webhook, "alert-1", 1_700_000_000, b"{\"a\":1}").await.unwrap();
    let sent = served.await.unwrap();
    let signature = webhook.secret.as_ref().unwrap().sign("alert-1", 1_700_000_000, b"{\"a\":1}");
    let expected = format!(
        "POST /hook?x=1 HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nuser-agent: cofferd/{}\r\n\
         content-type: application/json\r\nwebhook-id: alert-1\r\n\
         webhook-timestamp: 1700000000\r\nwebhook-signature: {signature}\r\nconnection: close\r\ncontent-length: 7\r\n\r\n{{\"a\":1}}",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn a_receiver_without_a_secret_gets_no_signature() {
    let (port, served) = server(b"HTTP/1.1 200 OK\r\n\r\n").await;
    let mut webhook = webhook(&format!("http://127.0.0.1:{port}/hook"));
    webhook.secret = None;
    sender().post(&webhook, "notice-1", 1_700_000_000, b"{\"a\":1}").await.unwrap();
    let sent = served.await.unwrap();
    assert!(!sent.contains("webhook-") && sent.contains("content-type: application/json\r\n"), "{sent}");
}

#[tokio::test]
async fn other_answers_are_failures_and_redirects_are_not_followed() {
    for (answer, message, for_good) in [
        (
            &b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"[..],
            "answered 302",
            false,
        ),
        (b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n", "answered 500", false),
        (
            b"HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n",
            "answered 410: the receiver wants no further messages",
            true,
        ),
        (b"SSH-2.0-x\r\n", "no answer: invalid HTTP version parsed", false),
        (b"", "no answer: connection closed before message completed", false),
    ] {
        let (port, served) = server(answer).await;
        let target = webhook(&format!("http://127.0.0.1:{port}/secret-path"));
        let failed = sender().post(&target, "a", 1, b"{\"a\":1}").await.unwrap_err();
        assert_eq!((failed.message.as_str(), failed.for_good), (message, for_good));
        served.await.unwrap();
    }
    // A socket has the port, and does not listen.
    let deaf = TcpSocket::new_v4().unwrap();
    deaf.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = deaf.local_addr().unwrap().port();
    let target = webhook(&format!("http://127.0.0.1:{port}/secret-path"));
    let failed = sender().post(&target, "a", 1, b"{\"a\":1}").await.unwrap_err();
    assert_eq!(failed.message, "cannot connect: connection refused");
}

/// A head without end is cut off, a body without end is not read.
#[tokio::test]
async fn an_answer_without_end_is_bounded() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        for begin in ["HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\n\r\n"] {
            let (mut stream, _) = listener.accept().await.unwrap();
            request(&mut stream).await;
            let _ = stream.write_all(begin.as_bytes()).await;
            while stream.write_all(b"x-more: and more\r\n").await.is_ok() {}
        }
    });
    let target = webhook(&format!("http://127.0.0.1:{port}/"));
    let endless = sender().post(&target, "a", 1, b"{\"a\":1}").await.unwrap_err();
    assert!(endless.message.starts_with("no answer: "), "{endless:?}");
    sender().post(&target, "a", 1, b"{\"a\":1}").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn silent_webhook_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = webhook(&format!("http://{}/", listener.local_addr().unwrap()));
    let failed = sender().post(&target, "a", 1, b"{\"a\":1}").await.unwrap_err();
    assert_eq!((failed.message.as_str(), failed.for_good), ("no answer in time", false));
}

/// `testdata/` has a certificate for `localhost` and its key, made for this test and used nowhere.
#[tokio::test]
async fn tls_is_checked() {
    let certificate = CertificateDer::from_pem_slice(include_bytes!("testdata/localhost.pem")).unwrap();
    let key = || PrivateKeyDer::from_pem_slice(include_bytes!("testdata/localhost.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut sent = [0; 4096];
            let _ = stream.read(&mut sent).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
            let _ = stream.shutdown().await;
        }
    });
    let target = webhook(&format!("https://localhost:{port}/"));
    let trusting = Sender::trusting([certificate]).unwrap();
    trusting.post(&target, "a", 1, b"{\"a\":1}").await.unwrap();
    let distrusting = sender().post(&target, "a", 1, b"{\"a\":1}").await.unwrap_err();
    assert!(distrusting.message.starts_with("TLS failed: invalid peer certificate"), "{distrusting:?}");
    let other_name = webhook(&format!("https://127.0.0.1:{port}/"));
    let misnamed = trusting.post(&other_name, "a", 1, b"{\"a\":1}").await.unwrap_err();
    assert!(misnamed.message.contains("not valid for name"), "{misnamed:?}");
}
