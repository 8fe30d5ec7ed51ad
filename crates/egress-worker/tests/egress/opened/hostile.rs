//! Servers and programs that break the rules of opened connections.

use std::io::{Read as _, Write as _};

use wire::worker::v1::connection_ended::Cause;

use super::*;
use crate::support::{assert_reset, talk};

#[test]
fn a_server_whose_certificate_is_not_valid_gets_no_request_and_the_program_is_told() {
    let ca = Ca::new();
    for (config, words) in [
        (Ca::new().good(&["http/1.1", "h2"]), "no authority that this machine trusts has signed it"),
        (ca.server("other.example.org", 3000, &["http/1.1"]), "it is for another name"),
        (ca.server(NAME, 2001, &[]), "it has expired"),
    ] {
        let address = tls_server(config, |stream| assert_eq!(read_head(stream), None));
        let mut egress = Egress::start(granting(opened(&ca, address), 443));
        let mut stream = connect_with(&mut egress, &["h2", "http/1.1"]);
        write!(stream, "GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n").unwrap();
        let (head, body) = response(&mut stream);
        assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
        assert_eq!(body, format!("The certificate of {NAME} is not valid: {words}.\n"));
        drop(stream);
        assert_eq!(egress.cause(), Cause::Unverified);
        assert!(requests(&egress).is_empty());
    }
}

#[test]
fn the_protocol_of_both_sides_is_the_one_that_the_server_has_chosen() {
    let ca = Ca::new();
    for (offer, supported, chosen) in [
        (&["h2", "http/1.1"][..], &["http/1.1"][..], Some("http/1.1")),
        (&["h2", "http/1.1"], &[], None),
        (&[], &["h2", "http/1.1"], None),
        (&["http/1.1", "other/1"], &["h2", "http/1.1"], Some("http/1.1")),
    ] {
        let mut egress = Egress::start(opened(&ca, tls_server(ca.good(supported), mirror)));
        let mut stream = connect_with(&mut egress, offer);
        write!(stream, "GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n").unwrap();
        assert!(response(&mut stream).0.starts_with("HTTP/1.1 200 "));
        assert_eq!(stream.conn.alpn_protocol(), chosen.map(str::as_bytes));
    }
}

#[test]
fn an_offer_of_other_protocols_alone_is_refused() {
    let ca = Ca::new();
    let mut egress = Egress::start(opened(&ca, tls_server(ca.good(&["other/1"]), mirror)));
    let mut stream = connect_with(&mut egress, &["other/1"]);
    assert!(stream.write_all(b"x").is_err());
    assert_eq!(egress.cause(), Cause::WrongScheme);
}

#[test]
fn a_server_without_tls_gets_no_request() {
    let ca = Ca::new();
    let address = server(|mut stream| {
        let mut bytes = Vec::new();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        let _ = stream.read_to_end(&mut bytes);
        assert!(!String::from_utf8_lossy(&bytes).contains("GET"));
    });
    let mut egress = Egress::start(opened(&ca, address));
    let mut stream = connect(&mut egress);
    assert!(write!(stream, "GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n").is_err());
    assert_eq!(egress.cause(), Cause::Reset);
}

#[test]
fn another_name_and_plain_bytes_are_refused_before_the_daemon_is_asked() {
    let ca = Ca::new();
    let mut egress = Egress::start(opened(&ca, tls_server(ca.good(&[]), mirror)));
    let config = client_config(&mut egress, &[]);
    let name = ServerName::try_from("other.example.org").unwrap();
    let mut stream = StreamOwned::new(ClientConnection::new(config, name).unwrap(), egress.connect(TO));
    assert!(stream.write_all(b"x").is_err());
    assert_eq!(egress.cause(), Cause::WrongServerName);
    let mut stream = egress.connect(TO);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: api.example.org\r\n\r\n").unwrap();
    assert_reset(stream);
    assert_eq!(egress.ended(2)[1].cause(), Cause::WrongScheme);
    assert!(!egress.messages().iter().any(|message| matches!(message.body, Some(From::Connection(_)))));
}

/// A transport that divides its first record into records of a few bytes, and each into several packets.
struct Fragmenting {
    stream: TcpStream,
    is_first: bool,
}

impl std::io::Write for Fragmenting {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if !std::mem::take(&mut self.is_first) {
            return self.stream.write(bytes);
        }
        let (header, message) = bytes.split_at(5);
        for part in message.chunks(7) {
            let length = u16::try_from(part.len()).unwrap().to_be_bytes();
            self.stream.write_all(&[&header[..3], &length].concat())?;
            self.stream.write_all(part)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

impl std::io::Read for Fragmenting {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.stream.read(bytes)
    }
}

#[test]
fn a_client_hello_in_many_records_is_opened_too() {
    let ca = Ca::new();
    let mut egress = Egress::start(opened(&ca, tls_server(ca.good(&[]), mirror)));
    let config = client_config(&mut egress, &["http/1.1"]);
    let transport = Fragmenting { stream: egress.connect(TO), is_first: true };
    let connection = ClientConnection::new(config, ServerName::try_from(NAME).unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, transport);
    write!(stream, "GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n").unwrap();
    assert!(response(&mut stream).0.starts_with("HTTP/1.1 200 "));
}

#[test]
fn smuggled_requests_are_refused_within_tls() {
    let ca = Ca::new();
    let mut egress = Egress::start(opened(&ca, tls_server(ca.good(&[]), mirror)));
    let both = "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let mut stream = connect(&mut egress);
    write!(stream, "POST / HTTP/1.1\r\nHost: {NAME}\r\n{both}").unwrap();
    assert!(read_head(&mut stream).unwrap().starts_with("HTTP/1.1 400 "));
    drop(stream);
    assert_eq!(egress.cause(), Cause::Malformed);
}

#[test]
fn the_bound_of_bytes_holds_for_opened_connections() {
    let ca = Ca::new();
    let mut script =
        opened(&ca, tls_server(ca.good(&[]), |stream| drop(stream.read_to_end(&mut Vec::new()))));
    script.start.max_bytes = 100_000;
    let mut egress = Egress::start(script);
    let mut stream = connect(&mut egress);
    write!(stream, "PUT / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 900000\r\n\r\n").unwrap();
    // The connection may be reset in the middle.
    let _ = stream.write_all(&vec![b'x'; 900_000]);
    let ended = egress.ended(1).remove(0);
    assert_eq!(ended.cause(), Cause::Bytes);
    assert!((1..=100_000).contains(&(ended.bytes_out + ended.bytes_in)));
}

#[test]
fn an_opened_port_without_an_authority_is_refused() {
    let ca = Ca::new();
    let mut script = opened(&ca, tls_server(ca.good(&[]), mirror));
    script.start.make_authority = false;
    let mut egress = Egress::start(script);
    let hello = crate::support::first_bytes((*client_of(RootCertStore::empty(), &[])).clone(), NAME);
    assert!(talk(egress.connect(TO), &hello).is_err());
    assert_eq!(egress.cause(), Cause::Tls);
}
