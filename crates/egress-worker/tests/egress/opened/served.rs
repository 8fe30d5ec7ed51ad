//! Connections of the daemon, over plain HTTP on its side and over TLS to the server.

use std::io::Read as _;
use std::os::unix::net::UnixStream;

use ring::digest::{SHA256, digest};
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::{FromEgress, Upstream};

use super::*;

/// Returns a script with a rule for the host itself, over TLS.
fn served(server: SocketAddr) -> Script {
    let mut script = Script::new(2).rule(443, Scheme::Http, NAME, Some(server));
    let inspect = script.ports.get_mut(&443).unwrap().inspect.as_mut().unwrap();
    inspect.upstream = Some(Upstream { tls: true, host: NAME.to_owned(), port: 443, path: String::new() });
    granting(script, 443)
}

fn answered(stream: &mut UnixStream, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_request_over_plain_http_goes_over_tls_with_the_secret_of_the_rule() {
    let ca = Ca::new();
    let mut egress = Egress::start(served(tls_server(ca.good(&[]), mirror)));
    // The process was started without an authority, and gets one with the connection.
    let mut stream = egress.serve(4, 443, std::slice::from_ref(&ca.der));
    let answer = answered(&mut stream, "/org/app");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("GET /org/app HTTP/1.1\r\n"), "{answer}");
    let lower = answer.to_ascii_lowercase();
    assert!(lower.contains("\r\nhost: api.example.org\r\n"), "{answer}");
    assert!(lower.contains("bearer *****************\r\n"), "{answer}");
    let is_opened =
        |message: &FromEgress| matches!(&message.body, Some(From::Opened(opened)) if opened.handle == 4);
    egress.wait("the connection with its handle", is_opened);
    assert_eq!(egress.cause(), Cause::Closed);
}

#[test]
fn a_server_whose_certificate_is_not_valid_gets_no_request() {
    let (ca, other) = (Ca::new(), Ca::new());
    let server = tls_server(other.good(&[]), |stream| assert!(read_head(stream).is_none()));
    let mut egress = Egress::start(served(server));
    let mut stream = egress.serve(1, 443, std::slice::from_ref(&ca.der));
    let answer = answered(&mut stream, "/");
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("is not valid"), "{answer}");
    assert_eq!(egress.cause(), Cause::Unverified);
}

#[test]
fn a_revoked_certificate_counts_also_if_the_authority_comes_later() {
    let (ca, key) = (Ca::new(), KeyPair::generate().unwrap());
    let params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &ca.issuer).unwrap();
    let mut script = served(tls_server(serving(certificate.der(), &key, &[]), mirror));
    script.start.revoked = vec![digest(&SHA256, certificate.der()).as_ref().to_vec()];
    let mut egress = Egress::start(script);
    let mut stream = egress.serve(1, 443, std::slice::from_ref(&ca.der));
    let answer = answered(&mut stream, "/");
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("it is revoked"), "{answer}");
    assert_eq!(egress.cause(), Cause::Unverified);
}

#[test]
fn connections_of_the_daemon_count_among_all() {
    let ca = Ca::new();
    let mut egress = Egress::start(served(tls_server(ca.good(&[]), mirror)));
    let kept: Vec<UnixStream> = (1..=2).map(|handle| egress.serve(handle, 443, &[])).collect();
    let mut third = egress.serve(3, 443, &[]);
    assert!(matches!(third.read(&mut [0]), Ok(0) | Err(_)));
    drop(kept);
}
