//! Hostile servers.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc;

use wire::worker::v1::EndConnection;
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::from_egress::Body as From;
use wire::worker::v1::to_egress::Body as To;

use crate::http::http;
use crate::process::private_memory;
use crate::support::{DEADLINE, Egress, Script, assert_reset, server};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: mirror.example.org\r\n\r\n";

/// Reads a request, which fits into one packet.
fn read_request(stream: &mut TcpStream) {
    let read = stream.read(&mut [0; 4096]).unwrap();
    assert!(read > 0);
}

/// Sends bytes again and again until the other side has left. Returns how many it took.
fn flood(stream: &mut TcpStream, bytes: &[u8]) -> usize {
    let mut sent = 0;
    while let Ok(written) = stream.write(bytes) {
        sent += written;
        assert!(sent < 1 << 30, "it took 1 GiB");
    }
    sent
}

#[test]
fn an_endless_head_ends_the_connection() {
    for (begin, more) in [
        (&b"HTTP/1.1 200 OK\r\n"[..], &b"X: y\r\n"[..]),
        (b"HTTP/1.1 200 OK\r\nX: ", &[b'y'; 4096]),
        (b"HTTP/1.1 200 ", &[b'O'; 4096]),
    ] {
        let endless = server(move |mut stream| {
            read_request(&mut stream);
            let _ = stream.write_all(begin);
            flood(&mut stream, more);
        });
        let mut egress = Egress::start(http(Some(endless)));
        let before = private_memory(&egress);
        let mut stream = egress.connect("11.0.0.8:8080");
        stream.write_all(REQUEST).unwrap();
        assert_reset(stream);
        assert_eq!(egress.cause(), Cause::Reset);
        let after = private_memory(&egress);
        assert!(after < before + 4 * 1024, "{before} KiB before, {after} KiB");
    }
}

#[test]
fn an_early_close_is_no_whole_response() {
    for begin in [
        &b""[..],
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"no HTTP at all\r\n\r\n",
    ] {
        let early = server(move |mut stream| {
            read_request(&mut stream);
            stream.write_all(begin).unwrap();
        });
        let mut egress = Egress::start(http(Some(early)));
        let mut stream = egress.connect("11.0.0.8:8080");
        stream.write_all(REQUEST).unwrap();
        assert_reset(stream);
        assert_eq!(egress.cause(), Cause::Reset, "{}", String::from_utf8_lossy(begin));
    }
}

#[test]
fn a_protocol_that_was_not_asked_for_ends_the_connection() {
    let switching = server(|mut stream| {
        read_request(&mut stream);
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n")
            .unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty());
    });
    let mut egress = Egress::start(http(Some(switching)));
    let mut stream = egress.connect("11.0.0.8:8080");
    stream.write_all(REQUEST).unwrap();
    assert_reset(stream);
    assert_eq!(egress.cause(), Cause::WrongScheme);
}

#[test]
fn a_side_that_does_not_read_fills_no_memory_and_can_be_ended() {
    let (heard, all) = mpsc::channel();
    let flooding = server(move |mut stream| {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        heard.send(flood(&mut stream, &[0; 16 * 1024])).unwrap();
    });
    let mut egress = Egress::start(Script::new(4).tcp(22, flooding));
    let before = private_memory(&egress);
    let mut stream = egress.connect("11.0.0.9:22");
    stream.write_all(b"x").unwrap();
    // Some of it has arrived, and nothing more is read.
    stream.read_exact(&mut [0]).unwrap();
    let opened = egress.wait("a connection", |message| matches!(message.body, Some(From::Opened(_))));
    assert!(all.recv_timeout(std::time::Duration::from_secs(1)).is_err());
    let after = private_memory(&egress);
    assert!(after < before + 4 * 1024, "{before} KiB before, {after} KiB");
    egress.send(opened.id, To::End(EndConnection { http_body: String::new() }));
    assert_eq!(egress.cause(), Cause::Ended);
    let sent = all.recv_timeout(DEADLINE).unwrap();
    assert!(sent < 256 * 1024 * 1024, "{sent}");
}
