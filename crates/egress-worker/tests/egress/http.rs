//! Requests over HTTP, also those of hostile programs.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::from_egress::Body as From;
use wire::worker::v1::inspect::Scheme;
use wire::worker::v1::{FromEgress, HttpRequest};

use crate::process::private_memory;
use crate::support::{DEADLINE, Egress, Script, assert_reset, echo, server, talk};

/// An HTTP server that answers each request with its head, as it came.
fn mirror() -> SocketAddr {
    server(|mut stream| {
        let mut bytes = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            bytes.extend_from_slice(&buffer[..read]);
            while let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                let head: Vec<u8> = bytes.drain(..end + 4).collect();
                let length = head.len();
                write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").unwrap();
                stream.write_all(&head).unwrap();
            }
        }
    })
}

/// Reads one response with a length.
pub(crate) fn response(stream: &mut TcpStream) -> (u16, String) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    (head[9..12].parse().unwrap(), String::from_utf8(body).unwrap())
}

pub(crate) fn http(server: Option<SocketAddr>) -> Script {
    let mut script = Script::new(16).rule(8080, Scheme::Http, "mirror.example.org", server);
    let rule = script.ports.get_mut(&8080).unwrap();
    rule.inspect.as_mut().unwrap().methods = vec!["GET".to_owned(), "HEAD".to_owned()];
    script
}

#[test]
fn http_requests_are_compared_with_the_rule_each() {
    let mut egress = Egress::start(http(Some(mirror())));
    let mut stream = egress.connect("11.0.0.8:8080");
    for head in [
        "GET /a?b HTTP/1.1\r\nHost: mirror.example.org:8080\r\nX-One: 1\r\n\r\n",
        "GET http://Mirror.example.org/c HTTP/1.1\r\nHost: mirror.example.org\r\n\r\n",
    ] {
        stream.write_all(head.as_bytes()).unwrap();
        let (status, body) = response(&mut stream);
        assert_eq!((status, body), (200, head.replace("http://Mirror.example.org", "")));
    }
    stream.write_all(b"GET / HTTP/1.1\r\nHost: other.example.org\r\n\r\n").unwrap();
    let (status, body) = response(&mut stream);
    assert_eq!(status, 403);
    assert!(body.contains("mirror.example.org"), "{body}");
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    assert_eq!(egress.cause(), Cause::WrongHost);
    let request = |path: &str, status, number| HttpRequest {
        method: "GET".to_owned(),
        path: path.to_owned(),
        status,
        number,
    };
    let seen: Vec<_> = egress
        .messages()
        .into_iter()
        .filter_map(|message| match message.body {
            Some(From::Connection(ready)) => ready.request,
            Some(From::Request(request)) => Some(request),
            _ => None,
        })
        .collect();
    let expected =
        [request("/a?b", 0, 1), request("/a?b", 200, 1), request("/c", 0, 2), request("/c", 200, 2)];
    assert_eq!(seen, expected);
}

#[test]
fn a_refused_request_is_told_why() {
    let mut egress = Egress::start(http(None));
    let mut stream = egress.connect("11.0.0.8:8080");
    stream.write_all(b"POST / HTTP/1.1\r\nHost: mirror.example.org\r\nContent-Length: 3\r\n\r\nabc").unwrap();
    let (status, body) = response(&mut stream);
    assert_eq!(status, 403);
    assert!(body.contains("GET, HEAD"), "{body}");
    drop(stream);
    assert_eq!(egress.cause(), Cause::WrongMethod);
    let mut stream = egress.connect("11.0.0.8:8080");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: mirror.example.org\r\n\r\n").unwrap();
    assert_eq!(response(&mut stream), (403, "no rule\n".to_owned()));
    drop(stream);
    assert_eq!(egress.ended(2)[1].cause(), Cause::Ended);
}

#[test]
fn malformed_requests_end_the_connection_and_reach_no_server() {
    let mut egress = Egress::start(http(Some(mirror())));
    let host = "Host: mirror.example.org\r\n";
    let bad = [
        format!("GET / HTTP/1.1\r\n{host}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{host}Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc"),
        format!("GET / HTTP/1.1\n{host}\r\n"),
        format!("GET / HTTP/1.1\r\n{host} folded\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{host}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{host}{}\r\n", "X: y\r\n".repeat(200)),
        format!("GET / HTTP/1.1\r\n{host}X: {}\r\n\r\n", "y".repeat(17_000)),
    ];
    for (number, bad) in bad.iter().enumerate() {
        let answer = talk(egress.connect("11.0.0.8:8080"), bad.as_bytes()).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 400 "), "{bad}: {answer:?}");
        assert_eq!(egress.ended(number + 1)[number].cause(), Cause::Malformed, "{bad}");
    }
    assert!(!egress.messages().iter().any(|message| matches!(message.body, Some(From::Connection(_)))));
}

#[test]
fn bodies_stream_both_ways_and_upgrades_pass() {
    let upgrading = server(|mut stream| {
        let mut bytes = [0; 4096];
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let read = stream.read(&mut bytes).unwrap();
            head.extend_from_slice(&bytes[..read]);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        if head.contains("upgrade: websocket") {
            stream
                .write_all(
                    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello",
                )
                .unwrap();
            let mut reading = stream.try_clone().unwrap();
            std::io::copy(&mut reading, &mut stream).unwrap();
            return;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n").unwrap();
        for word in ["one ", "two ", "three"] {
            stream.write_all(word.as_bytes()).unwrap();
            // The client answers each word, so that no word waits for another.
            stream.read_exact(&mut bytes[..6]).unwrap();
        }
    });
    let mut script = http(Some(upgrading));
    script.ports.get_mut(&8080).unwrap().inspect.as_mut().unwrap().methods.clear();
    let mut egress = Egress::start(script);

    let mut stream = egress.connect("11.0.0.8:8080");
    stream
        .write_all(b"POST / HTTP/1.1\r\nHost: mirror.example.org\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    let mut received = Vec::new();
    let mut bytes = [0; 512];
    for word in ["one ", "two ", "three"] {
        while !String::from_utf8_lossy(&received).contains(word) {
            let read = stream.read(&mut bytes).unwrap();
            assert!(read > 0);
            received.extend_from_slice(&bytes[..read]);
        }
        // A chunk of one byte, with its line ends: six bytes.
        stream.write_all(b"1\r\nx\r\n").unwrap();
    }
    drop(stream);

    let mut stream = egress.connect("11.0.0.8:8080");
    stream
        .write_all(
            b"GET /ws HTTP/1.1\r\nHost: mirror.example.org\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        )
        .unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"hello") {
        let read = stream.read(&mut bytes).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&bytes[..read]);
    }
    assert_eq!(talk(stream, b"\0not\nHTTP").unwrap(), b"\0not\nHTTP");
    assert_eq!(egress.ended(2)[1].cause(), Cause::Closed);
}

/// A server that keeps all bytes that it hears, and answers each head.
fn recorder() -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&heard);
    let address = server(move |mut stream| {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            all.lock().extend_from_slice(&buffer[..read]);
            if buffer[..read].windows(4).any(|four| four == b"\r\n\r\n") {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            }
        }
    });
    (address, heard)
}

#[test]
fn no_request_is_smuggled_in_a_body() {
    let (address, heard) = recorder();
    let mut script = http(Some(address));
    script.ports.get_mut(&8080).unwrap().inspect.as_mut().unwrap().methods.clear();
    let mut egress = Egress::start(script);
    let hidden = "GET /hidden HTTP/1.1\r\nHost: other.example.org\r\n\r\n";
    let bodies = [
        format!("3;a=b\r\nabc\r\n0\r\n\r\n{hidden}"),
        format!("3;{hidden}"),
        format!("3\nabc\n0\n\n{hidden}"),
        format!("3\r\nabcX\r\n0\r\n\r\n{hidden}"),
        format!("0\r\n{hidden}"),
        format!("-0\r\n\r\n{hidden}"),
    ];
    for (number, body) in bodies.iter().enumerate() {
        let request = format!(
            "POST / HTTP/1.1\r\nHost: mirror.example.org\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
        );
        // The head may have been answered already, before the body ends the connection.
        let _ = talk(egress.connect("11.0.0.8:8080"), request.as_bytes());
        assert_eq!(egress.ended(number + 1)[number].cause(), Cause::Malformed, "{body}");
    }
    // After a complete body the next request is one, and is compared with the rule.
    let request =
        format!("POST / HTTP/1.1\r\nHost: mirror.example.org\r\nContent-Length: 2\r\n\r\nab{hidden}");
    let mut stream = egress.connect("11.0.0.8:8080");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("HTTP/1.1 403 "), "{answer}");
    assert_eq!(egress.ended(bodies.len() + 1)[bodies.len()].cause(), Cause::WrongHost);
    let heard = String::from_utf8(heard.lock().clone()).unwrap();
    assert!(heard.contains("POST / ") && !heard.contains("hidden"), "{heard}");
}

#[test]
fn other_protocols_are_no_http() {
    let (address, heard) = recorder();
    let mut egress = Egress::start(http(Some(address)));
    let other =
        [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"[..], &[22, 3, 1, 0, 5, 1, 0, 0, 1, 0]];
    for (number, bytes) in other.into_iter().enumerate() {
        let mut stream = egress.connect("11.0.0.8:8080");
        stream.write_all(bytes).unwrap();
        assert_reset(stream);
        assert_eq!(egress.ended(number + 1)[number].cause(), Cause::WrongScheme);
    }
    assert!(heard.lock().is_empty());
}

#[test]
fn no_request_changes_to_another_protocol() {
    let mut egress = Egress::start(http(Some(mirror())));
    let mut stream = egress.connect("11.0.0.8:8080");
    let asked = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n";
    write!(stream, "GET / HTTP/1.1\r\nHost: mirror.example.org\r\n{asked}\r\n").unwrap();
    let (status, head) = response(&mut stream);
    assert_eq!((status, &head[..]), (200, "GET / HTTP/1.1\r\nHost: mirror.example.org\r\n\r\n"));
    let asked = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    write!(stream, "GET / HTTP/1.1\r\nHost: mirror.example.org\r\n{asked}\r\n").unwrap();
    let (status, body) = response(&mut stream);
    assert!(status == 403 && body.contains("GET, HEAD"), "{body}");
    drop(stream);
    assert_eq!(egress.cause(), Cause::WrongMethod);
}

#[test]
fn a_bound_of_bytes_holds_for_bodies() {
    let (address, heard) = recorder();
    let mut script = http(Some(address));
    script.ports.get_mut(&8080).unwrap().inspect.as_mut().unwrap().methods.clear();
    script.start.max_bytes = 100_000;
    let mut egress = Egress::start(script);
    let mut stream = egress.connect("11.0.0.8:8080");
    stream
        .write_all(b"PUT / HTTP/1.1\r\nHost: mirror.example.org\r\nContent-Length: 900000\r\n\r\n")
        .unwrap();
    // The connection may be reset in the middle.
    let _ = stream.write_all(&vec![b'x'; 900_000]);
    let ended = egress.ended(1).remove(0);
    assert_eq!(ended.cause(), Cause::Bytes);
    // The server may lose what it has not read when its connection is reset.
    let heard = heard.lock().len() as u64;
    assert!((1..=100_000).contains(&ended.bytes_out) && heard <= 100_000, "{heard}, {}", ended.bytes_out);
}

/// A server that keeps all bytes that it hears, and answers a head with eight bytes after it.
fn patient() -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&heard);
    let address = server(move |mut stream| {
        let (mut mine, mut buffer) = (Vec::new(), [0; 4096]);
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            mine.extend_from_slice(&buffer[..read]);
            all.lock().extend_from_slice(&buffer[..read]);
            if mine.windows(4).position(|four| four == b"\r\n\r\n").is_some_and(|end| mine.len() == end + 12)
            {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            }
        }
    });
    (address, heard)
}

#[test]
fn a_slow_body_passes_byte_by_byte_and_a_silent_one_ends_by_the_idle_timeout_alone() {
    let (address, heard) = patient();
    let mut script = http(Some(address));
    script.ports.get_mut(&8080).unwrap().inspect.as_mut().unwrap().methods.clear();
    let beginning = "PUT / HTTP/1.1\r\nHost: mirror.example.org\r\nContent-Length: 8\r\n\r\n";
    // Without a timeout, a body may take longer than a beginning.
    let mut egress = Egress::start(script.clone());
    let mut stream = egress.connect("11.0.0.8:8080");
    stream.write_all(beginning.as_bytes()).unwrap();
    for _ in 0..7 {
        let before = heard.lock().len();
        stream.write_all(b"x").unwrap();
        let began = Instant::now();
        while heard.lock().len() == before {
            assert!(began.elapsed() < DEADLINE, "a byte is held back");
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(1_500));
    }
    stream.write_all(b"x").unwrap();
    assert_eq!(response(&mut stream), (200, "ok".to_owned()));
    drop(stream);
    assert_eq!(egress.cause(), Cause::Closed);
    // With one, a body of either side may not be silent for longer.
    let silent = server(|mut stream| {
        let mut bytes = [0; 4096];
        let _ = stream.read(&mut bytes);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nx");
        while let Ok(1..) = stream.read(&mut bytes) {}
    });
    script.start.idle_timeout_ms = 400;
    script.ports.get_mut(&8080).unwrap().server = Some(silent);
    let mut egress = Egress::start(script);
    let whole = "GET / HTTP/1.1\r\nHost: mirror.example.org\r\n\r\n";
    for (number, request) in [format!("{beginning}x"), whole.to_owned()].iter().enumerate() {
        let mut stream = egress.connect("11.0.0.8:8080");
        stream.write_all(request.as_bytes()).unwrap();
        assert_reset(stream);
        assert_eq!(egress.ended(number + 1)[number].cause(), Cause::Idle, "{request}");
    }
}

#[test]
fn a_thousand_slow_bodies_take_little_memory_and_their_slots_alone() {
    const MANY: usize = 1_000;
    let (address, _) = patient();
    let mut script = http(Some(address)).tcp(22, echo());
    script.start.max_connections = u32::try_from(MANY).unwrap() + 1;
    script.ports.get_mut(&8080).unwrap().inspect.as_mut().unwrap().methods.clear();
    let mut egress = Egress::start(script);
    let before = private_memory(&egress);
    let head = "PUT / HTTP/1.1\r\nHost: mirror.example.org\r\nContent-Length: 1000000\r\n\r\nx";
    let slow: Vec<_> = (0..MANY)
        .map(|_| {
            let mut stream = egress.connect("11.0.0.8:8080");
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    let began = Instant::now();
    let gone_out = |egress: &Egress| {
        let ready = |message: &FromEgress| matches!(message.body, Some(From::Connection(_)));
        egress.messages().iter().filter(|message| ready(message)).count()
    };
    while gone_out(&egress) < MANY {
        assert!(began.elapsed() < DEADLINE);
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(talk(egress.connect("11.0.0.9:22"), b"x").unwrap(), b"x");
    let after = private_memory(&egress);
    assert!(after < before + 96 * 1024, "{before} KiB before, {after} KiB with {MANY} slow bodies");
    drop(slow);
    egress.ended(MANY + 1);
}
