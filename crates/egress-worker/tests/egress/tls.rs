//! Beginnings of TLS connections, also those of hostile programs.

use std::io::{Read as _, Write as _};
use std::thread;
use std::time::Duration;

use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::inspect::Scheme;

use crate::process::private_memory;
use crate::support::{Egress, Script, assert_reset, echo, first_bytes, talk};

const NAME: &str = "files.example.org";

/// Returns the first bytes of a TLS client.
fn client_hello(name: &str) -> Vec<u8> {
    let config = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    first_bytes(config, name)
}

#[test]
fn tls_passes_with_the_name_that_was_connected_to_alone() {
    let script = Script::new(16).rule(443, Scheme::Https, "files.example.org", Some(echo()));
    let mut egress = Egress::start(script);
    let hello = client_hello("files.example.org");
    let mut stream = egress.connect("11.0.0.7:443");
    // Byte by byte, as a slow network brings it.
    for byte in &hello {
        stream.write_all(&[*byte]).unwrap();
    }
    let mut back = vec![0; hello.len()];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, hello);
    assert_eq!(talk(stream, b"more").unwrap(), b"more");
    assert_eq!(egress.cause(), Cause::Closed);
    for (bytes, cause) in [
        (client_hello("other.example.org"), Cause::WrongServerName),
        (client_hello("192.0.2.1"), Cause::WrongServerName),
        (b"GET / HTTP/1.1\r\nHost: files.example.org\r\n\r\n".to_vec(), Cause::WrongScheme),
    ] {
        let before = egress.ended(1).len();
        let mut stream = egress.connect("11.0.0.7:443");
        stream.write_all(&bytes).unwrap();
        assert_reset(stream);
        assert_eq!(egress.ended(before + 1)[before].cause(), cause);
    }
}

/// Sends bytes through to the echo, and returns as many.
fn round_trip(egress: &Egress, bytes: &[u8]) -> Vec<u8> {
    let mut stream = egress.connect("11.0.0.7:443");
    stream.write_all(bytes).unwrap();
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).unwrap();
    back
}

/// Divides the ClientHello of one record into records of `size` bytes.
fn fragment(record: &[u8], size: usize) -> Vec<u8> {
    let (header, message) = record.split_at(5);
    let record = |part: &[u8]| {
        let length = u16::try_from(part.len()).unwrap().to_be_bytes();
        [&header[..3], &length, part].concat()
    };
    message.chunks(size).flat_map(record).collect()
}

#[test]
fn many_records_and_another_case_hide_no_name_and_change_no_byte() {
    let script = Script::new(16).rule(443, Scheme::Https, NAME, Some(echo()));
    let mut egress = Egress::start(script);
    let hello = client_hello(NAME);
    let at = hello.windows(NAME.len()).position(|bytes| bytes == NAME.as_bytes()).unwrap();
    let mut upper = hello.clone();
    upper[at..at + NAME.len()].make_ascii_uppercase();
    for bytes in [upper, fragment(&hello, 1), fragment(&hello, 60)] {
        assert_eq!(round_trip(&egress, &bytes), bytes);
    }
    let other = client_hello("other.example.org");
    for bytes in [fragment(&other, 1), fragment(&other, 60)] {
        let before = egress.ended(3).len();
        let mut stream = egress.connect("11.0.0.7:443");
        stream.write_all(&bytes).unwrap();
        assert_reset(stream);
        assert_eq!(egress.ended(before + 1)[before].cause(), Cause::WrongServerName);
    }
}

#[test]
fn a_slow_beginning_ends_however_it_is_slow() {
    let script = Script::new(16).rule(443, Scheme::Https, NAME, Some(echo())).rule(
        8080,
        Scheme::Http,
        NAME,
        Some(echo()),
    );
    let mut egress = Egress::start(script);
    let hello = client_hello(NAME);
    thread::scope(|scope| {
        for (to, bytes) in [
            ("11.0.0.7:443", &hello[..hello.len() - 1]),
            (
                "11.0.0.7:8080",
                b"GET / HTTP/1.1\r\nHost: files.example.org\r\nX: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
            ),
            ("11.0.0.7:443", b""),
            ("11.0.0.7:8080", b""),
        ] {
            let mut stream = egress.connect(to);
            scope.spawn(move || {
                for byte in bytes {
                    if stream.write_all(&[*byte]).is_err() {
                        break;
                    }
                    thread::sleep(Duration::from_millis(250));
                }
                assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
            });
        }
    });
    for ended in egress.ended(4) {
        assert_eq!((ended.cause(), ended.bytes_out), (Cause::Slow, 0));
    }
}

#[test]
fn two_thousand_unfinished_beginnings_at_once_take_bounded_memory() {
    const MANY: usize = 2_000;
    let script = Script::new(u32::try_from(MANY).unwrap()).rule(443, Scheme::Https, NAME, Some(echo())).rule(
        8080,
        Scheme::Http,
        NAME,
        Some(echo()),
    );
    let mut egress = Egress::start(script);
    // A record of 16 KiB without its last byte, and a head that has no end.
    let record = [&[22, 3, 1, 0x3f, 0xf0, 1, 0, 0x3f, 0xec, 3, 3][..], &[0; 12_000]].concat();
    let head = [b"GET / HTTP/1.1\r\nHost: files.example.org\r\nX: ", &[b'y'; 12_000][..]].concat();
    let connections: Vec<_> = (0..MANY)
        .map(|number| {
            let (to, bytes) =
                if number % 2 == 0 { ("11.0.0.7:443", &record) } else { ("11.0.0.7:8080", &head) };
            let mut stream = egress.connect(to);
            stream.write_all(bytes).unwrap();
            stream
        })
        .collect();
    let memory = private_memory(&egress);
    assert!(memory < 160 * 1024, "{memory} KiB");
    drop(connections);
    egress.ended(MANY);
    let hello = client_hello(NAME);
    assert_eq!(round_trip(&egress, &hello), hello);
}
