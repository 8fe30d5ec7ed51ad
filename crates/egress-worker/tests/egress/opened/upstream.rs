//! Rules whose requests go to another server than the one that the program names.

use std::io::{Read as _, Write as _};

use wire::worker::v1::Upstream;
use wire::worker::v1::connection_ended::Cause;

use super::*;

/// Address of a program's connection to the door.
const DOOR: &str = "11.0.0.8:8080";

/// Returns a script with a door to a server, whose certificate is for `api.example.org`.
fn door(ca: &Ca, server: SocketAddr, tls: bool) -> Script {
    let mut script = Script::new(16).rule(8080, Scheme::Http, "model.internal", Some(server));
    let inspect = script.ports.get_mut(&8080).unwrap().inspect.as_mut().unwrap();
    let (host, path) = (NAME.to_owned(), "/base".to_owned());
    inspect.upstream = Some(Upstream { tls, host, port: 8443, path });
    script.start.roots = vec![ca.der.clone()];
    script.start.placeholders = vec![PLACEHOLDER.into()];
    granting(script, 8080)
}

#[test]
fn requests_go_to_the_upstream_with_its_host_and_its_path() {
    let ca = Ca::new();
    let mut egress = Egress::start(door(&ca, tls_server(ca.good(&[]), mirror), true));
    let mut stream = egress.connect(DOOR);
    for path in ["/v1/messages?a=b", "/"] {
        write!(stream, "GET {path} HTTP/1.1\r\nHost: model.internal\r\nAuthorization: own\r\n\r\n").unwrap();
        let (head, body) = response(&mut stream);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(body.starts_with(&format!("GET /base{path} HTTP/1.1\r\n")), "{body}");
        let lower = body.to_ascii_lowercase();
        assert!(lower.contains("\r\nhost: api.example.org:8443\r\n"), "{body}");
        assert!(lower.contains("bearer *****************\r\n") && !lower.contains("own"), "{body}");
    }
    drop(stream);
    assert_eq!(egress.cause(), Cause::Closed);
    let paths: Vec<_> = requests(&egress).into_iter().map(|request| (request.path, request.status)).collect();
    let expected = [("/v1/messages?a=b", 0), ("/v1/messages?a=b", 200), ("/", 0), ("/", 200)];
    assert_eq!(paths, expected.map(|(path, status)| (path.to_owned(), status)));
}

#[test]
fn an_upstream_without_tls_gets_the_same() {
    let ca = Ca::new();
    let address = server(|mut stream| {
        let head = read_head(&mut stream).unwrap();
        let status =
            if head.contains(SECRET) && head.starts_with("GET /base/x ") { "200 OK" } else { "500 No" };
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").unwrap();
    });
    let egress = Egress::start(door(&ca, address, false));
    let mut stream = egress.connect(DOOR);
    write!(stream, "GET /x HTTP/1.1\r\nHost: model.internal\r\n\r\n").unwrap();
    assert!(response(&mut stream).0.starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_placeholder_in_a_plain_request_is_refused() {
    let ca = Ca::new();
    let mut egress = Egress::start(door(&ca, tls_server(ca.good(&[]), mirror), true));
    let mut stream = egress.connect(DOOR);
    write!(stream, "GET / HTTP/1.1\r\nHost: model.internal\r\nX-Key: {PLACEHOLDER}\r\n\r\n").unwrap();
    assert!(response(&mut stream).0.starts_with("HTTP/1.1 403 "));
    drop(stream);
    assert_eq!((egress.cause(), placeholder(&mut egress).place.as_str()), (Cause::Placeholder, "header"));
}

#[test]
fn an_upstream_whose_certificate_is_not_valid_gets_no_request() {
    let ca = Ca::new();
    for config in [Ca::new().good(&[]), ca.server("other.example.org", 3000, &[]), ca.server(NAME, 2001, &[])]
    {
        let mut egress = Egress::start(door(&ca, tls_server(config, |stream| drop(read_head(stream))), true));
        let mut stream = egress.connect(DOOR);
        write!(stream, "GET / HTTP/1.1\r\nHost: model.internal\r\n\r\n").unwrap();
        let (head, body) = response(&mut stream);
        assert!(head.starts_with("HTTP/1.1 502 ") && body.contains("is not valid"), "{head}{body}");
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        drop(stream);
        assert_eq!(egress.cause(), Cause::Unverified);
    }
}

#[test]
fn a_target_without_a_path_is_refused() {
    let ca = Ca::new();
    let mut egress = Egress::start(door(&ca, tls_server(ca.good(&[]), mirror), true));
    let mut stream = egress.connect(DOOR);
    stream.write_all(b"OPTIONS * HTTP/1.1\r\nHost: model.internal\r\n\r\n").unwrap();
    assert!(response(&mut stream).0.starts_with("HTTP/1.1 403 "));
    drop(stream);
    assert_eq!(egress.cause(), Cause::WrongPath);
}
