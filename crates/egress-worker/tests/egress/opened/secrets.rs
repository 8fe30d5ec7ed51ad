//! Ways to get at a secret through the answers of its server, and past the search for its placeholder.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use wire::worker::v1::connection_ended::Cause;

use super::*;
use crate::process::private_memory;

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_challenge_passes_without_the_secret_and_its_answer_is_replaced() {
    let ca = Ca::new();
    let kept = Arc::<Mutex<Vec<String>>>::default();
    let all = Arc::clone(&kept);
    let address = tls_server(ca.good(&["http/1.1"]), move |stream| {
        while let Some(head) = read_head(stream) {
            all.lock().push(head);
            let answer = format!(
                "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Digest realm=\"{SECRET}\", nonce=\"1\"\r\n\
                 Proxy-Authenticate: Basic realm=\"{SECRET}\"\r\nSet-Cookie: k={SECRET}\r\nContent-Length: 0\r\n\r\n"
            );
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let mut egress = Egress::start(granting(opened(&ca, address), 443));
    let mut stream = connect(&mut egress);
    for own in
        ["", "Authorization: Digest username=\"a\", response=\"0\"\r\n", "authorization: Basic YTpi\r\n"]
    {
        write!(stream, "GET / HTTP/1.1\r\nHost: {NAME}\r\n{own}\r\n").unwrap();
        let (head, _) = response(&mut stream);
        assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
        assert!(!head.contains(SECRET) && head.to_ascii_lowercase().contains("realm=\"****"), "{head}");
    }
    drop(stream);
    assert_eq!(egress.cause(), Cause::Closed);
    let kept = kept.lock();
    assert_eq!(kept.len(), 3);
    for head in kept.iter() {
        let lower = head.to_ascii_lowercase();
        assert_eq!(lower.matches("authorization:").count(), 1, "{head}");
        assert!(head.contains(&format!("Bearer {SECRET}\r\n")), "{head}");
    }
}

#[test]
fn a_compressed_placeholder_passes_as_it_is_and_is_replaced_by_nothing() {
    let ca = Ca::new();
    let kept = Arc::<Mutex<Vec<u8>>>::default();
    let all = Arc::clone(&kept);
    let body = compressed(format!("{{\"key\": \"{PLACEHOLDER}\"}}").as_bytes());
    let length = body.len();
    assert!(!body.windows(8).any(|part| part == &PLACEHOLDER.as_bytes()[..8]));
    let address = tls_server(ca.good(&["http/1.1"]), move |stream| {
        read_head(stream).unwrap();
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).unwrap();
        all.lock().extend(bytes);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    });
    let mut egress = Egress::start(granting(opened(&ca, address), 443));
    let mut stream = connect(&mut egress);
    write!(
        stream,
        "POST / HTTP/1.1\r\nHost: {NAME}\r\nContent-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n"
    )
    .unwrap();
    stream.write_all(&body).unwrap();
    assert!(response(&mut stream).0.starts_with("HTTP/1.1 200 "));
    assert!(*kept.lock() == body);
}

#[test]
fn a_compressed_answer_is_not_expanded_and_its_tokens_are_unknown() {
    let ca = Ca::new();
    // A thousand times as much as it takes.
    let bomb = compressed(&vec![b'0'; 64 << 20]);
    let length = bomb.len();
    assert!(length < 128 << 10, "{length}");
    let sent = bomb.clone();
    let address = tls_server(ca.good(&["http/1.1"]), move |stream| {
        let head = read_head(stream).unwrap().to_ascii_lowercase();
        assert!(head.contains("accept-encoding: identity\r\n"), "{head}");
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n"
        )
        .unwrap();
        stream.write_all(&sent).unwrap();
    });
    let mut script = granting(opened(&ca, address), 443);
    script.ports.get_mut(&443).unwrap().inspect.as_mut().unwrap().meter = true;
    let mut egress = Egress::start(script);
    let before = private_memory(&egress);
    let mut stream = connect(&mut egress);
    write!(stream, "GET / HTTP/1.1\r\nHost: {NAME}\r\nAccept-Encoding: gzip\r\n\r\n").unwrap();
    read_head(&mut stream).unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    assert!(body == bomb);
    assert!(!usage(&mut egress, 1).is_reported);
    let after = private_memory(&egress);
    assert!(after < before + 8 * 1024, "{before} KiB before, {after} KiB");
}
