//! Opened connections over HTTP/1.

use std::io::{ErrorKind, Read as _, Write as _};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use parking_lot::Mutex;
use tokio_rustls::rustls::RootCertStore;
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::from_egress::Body as From;
use wire::worker::v1::request_answer::Decision;
use wire::worker::v1::{FromEgress, HttpRequest, PathList, RequestRefusal};

use super::*;
use crate::process::private_memory;
use crate::support::DEADLINE;

#[test]
fn requests_reach_the_real_server_and_each_is_reported() {
    let ca = Ca::new();
    let mut egress = Egress::start(opened(&ca, tls_server(ca.good(&["http/1.1"]), mirror)));
    let mut stream = connect(&mut egress);
    for path in ["/a?b", "/c"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {NAME}\r\nX-One: 1\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let (head, body) = response(&mut stream);
        assert!(head.starts_with("HTTP/1.1 200 OK") && body == request, "{head}{body}");
    }
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    drop(stream);
    assert_eq!(egress.cause(), Cause::Closed);
    let ready = egress.wait("ready", |message| matches!(message.body, Some(From::Connection(_))));
    let Some(From::Connection(ready)) = ready.body else { unreachable!() };
    assert_eq!((ready.server_name.as_str(), ready.request), (NAME, None));
    let request = |path: &str, status, number| HttpRequest {
        method: "GET".to_owned(),
        path: path.to_owned(),
        status,
        number,
    };
    let expected =
        [request("/a?b", 0, 1), request("/a?b", 200, 1), request("/c", 0, 2), request("/c", 200, 2)];
    assert_eq!(requests(&egress), expected);
    assert!(egress.ended(1)[0].bytes_out > 200);
}

#[test]
fn a_granted_header_replaces_those_of_the_program() {
    let ca = Ca::new();
    let script = granting(opened(&ca, tls_server(ca.good(&["http/1.1"]), mirror)), 443);
    let mut egress = Egress::start(script);
    let mut stream = connect(&mut egress);
    // The placeholder in the header that is replaced is no fault. The mirror's echo of the secret is hidden.
    write!(
        stream,
        "GET / HTTP/1.1\r\nHost: {NAME}\r\nAuthorization: Bearer {PLACEHOLDER}\r\nauthorization: Bearer own\r\n\
         Accept-Encoding: gzip\r\nTE: gzip\r\nExpect: 100-continue\r\n\r\n"
    )
    .unwrap();
    let (_, body) = response(&mut stream);
    let lower = body.to_ascii_lowercase();
    let hidden = format!("authorization: bearer {}\r\n", "*".repeat(SECRET.len()));
    assert_eq!(lower.matches("authorization").count(), 1, "{body}");
    assert!(lower.contains(&hidden) && lower.contains("accept-encoding: identity\r\n"), "{body}");
    assert!(!lower.contains("expect") && !lower.contains("own") && !lower.contains("gzip"), "{body}");
    let asked = egress.wait("a question", |message| matches!(message.body, Some(From::Asked(_))));
    let Some(From::Asked(asked)) = asked.body else { unreachable!() };
    assert_eq!(asked.request.unwrap().number, 1);
}

#[test]
fn the_server_receives_the_secret_itself_and_its_echo_is_hidden_across_pieces() {
    let ca = Ca::new();
    let arrived = Arc::new(Mutex::new(String::new()));
    let all = Arc::clone(&arrived);
    let address = tls_server(ca.good(&["http/1.1"]), move |stream| {
        all.lock().push_str(&read_head(stream).unwrap());
        let head = format!("HTTP/1.1 200 {SECRET}\r\nLocation: /?k={SECRET}\r\nContent-Length: 44\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        for piece in ["begin ", "s3cr", "et-01234", "56789", " s3cret-0123456 ends!"] {
            stream.write_all(piece.as_bytes()).unwrap();
            thread::sleep(PAUSE);
        }
    });
    let mut egress = Egress::start(granting(opened(&ca, address), 443));
    let mut stream = connect(&mut egress);
    write!(stream, "GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n").unwrap();
    let (head, body) = response(&mut stream);
    assert!(!head.contains("s3cret") && head.contains("/?k=*****************\r\n"), "{head}");
    assert_eq!(body, "begin ***************** s3cret-0123456 ends!");
    assert!(arrived.lock().contains(&format!("Bearer {SECRET}\r\n")));
}

#[test]
fn a_refused_request_has_the_answer_of_the_daemon_and_reaches_no_server() {
    let ca = Ca::new();
    let address = tls_server(ca.good(&["http/1.1"]), |stream| assert_eq!(read_head(stream), None));
    let mut script = granting(opened(&ca, address), 443);
    let content_type = "application/json".to_owned();
    script.ports.get_mut(&443).unwrap().decision = Some(Decision::Refusal(RequestRefusal {
        status: 403,
        content_type,
        body: b"{\"e\":1}".to_vec(),
        retry_after_s: 7,
    }));
    let mut egress = Egress::start(script);
    let mut stream = connect(&mut egress);
    write!(stream, "POST / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 2\r\n\r\nab").unwrap();
    let (head, body) = response(&mut stream);
    assert!(head.starts_with("HTTP/1.1 403 ") && head.contains("application/json"), "{head}");
    assert!(head.to_ascii_lowercase().contains("\r\nretry-after: 7\r\n"), "{head}");
    assert_eq!(body, "{\"e\":1}");
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    drop(stream);
    assert_eq!(egress.cause(), Cause::RequestRefused);
}

#[test]
fn another_host_path_or_method_is_refused_within_the_connection() {
    let ca = Ca::new();
    let mut script = opened(&ca, tls_server(ca.good(&["http/1.1"]), mirror));
    let inspect = script.ports.get_mut(&443).unwrap().inspect.as_mut().unwrap();
    inspect.methods = vec!["GET".to_owned()];
    inspect.paths = vec![PathList { patterns: vec!["/v1/*".to_owned()] }];
    let mut egress = Egress::start(script);
    for (number, (request, cause, words)) in [
        ("GET /v1/a HTTP/1.1\r\nHost: other.example.org\r\n\r\n", Cause::WrongHost, NAME),
        ("POST /v1/a HTTP/1.1\r\nHost: api.example.org\r\n\r\n", Cause::WrongMethod, "allows GET"),
        ("GET /v2/a HTTP/1.1\r\nHost: api.example.org\r\n\r\n", Cause::WrongPath, "/v1/*"),
        ("GET /v1/../a HTTP/1.1\r\nHost: api.example.org\r\n\r\n", Cause::WrongPath, "different ways"),
        ("GET /v1/%2e%2e/a HTTP/1.1\r\nHost: api.example.org\r\n\r\n", Cause::WrongPath, "different ways"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut stream = connect(&mut egress);
        write!(stream, "GET /v1/a HTTP/1.1\r\nHost: {NAME}\r\n\r\n").unwrap();
        assert!(response(&mut stream).0.starts_with("HTTP/1.1 200 "));
        stream.write_all(request.as_bytes()).unwrap();
        let (head, body) = response(&mut stream);
        assert!(head.starts_with("HTTP/1.1 403 ") && body.contains(words), "{head}{body}");
        drop(stream);
        assert_eq!(egress.ended(number + 1)[number].cause(), cause, "{request}");
    }
}

#[test]
fn a_placeholder_elsewhere_is_refused_and_reported() {
    let ca = Ca::new();
    let arrived = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&arrived);
    let address = tls_server(ca.good(&["http/1.1"]), move |stream| {
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut bytes) {
            all.lock().extend_from_slice(&bytes[..read]);
        }
    });
    for (request, place) in [
        (format!("GET /?key={PLACEHOLDER} HTTP/1.1\r\nHost: {NAME}\r\n\r\n"), "path"),
        (format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nX-Key: a {PLACEHOLDER}\r\n\r\n"), "header"),
    ] {
        let mut egress = Egress::start(granting(opened(&ca, address), 443));
        let mut stream = connect(&mut egress);
        stream.write_all(request.as_bytes()).unwrap();
        let (head, body) = response(&mut stream);
        assert!(head.starts_with("HTTP/1.1 403 ") && body.contains("placeholder"), "{head}{body}");
        drop(stream);
        assert_eq!(egress.cause(), Cause::Placeholder);
        let seen = placeholder(&mut egress);
        assert_eq!((seen.index, seen.place.as_str()), (0, place));
    }
    assert!(arrived.lock().is_empty());
    let mut egress = Egress::start(granting(opened(&ca, address), 443));
    let mut stream = connect(&mut egress);
    write!(stream, "POST / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 100000\r\n\r\n").unwrap();
    for piece in [&PLACEHOLDER[..7], &PLACEHOLDER[7..20], &PLACEHOLDER[20..]] {
        stream.write_all(piece.as_bytes()).unwrap();
        thread::sleep(PAUSE);
    }
    assert_eq!(egress.cause(), Cause::Placeholder);
    assert_eq!(placeholder(&mut egress).place, "body");
    assert!(stream.read(&mut [0]).is_err());
    let arrived = String::from_utf8(arrived.lock().clone()).unwrap();
    assert!(!arrived.contains(PLACEHOLDER), "{arrived}");
}

#[test]
fn a_stream_of_events_passes_at_once_and_its_tokens_are_reported() {
    let ca = Ca::new();
    let address = tls_server(ca.good(&["http/1.1"]), |stream| {
        read_head(stream).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n").unwrap();
        for event in [
            r#"{"type":"message_start","message":{"model":"big-1","usage":{"input_tokens":7,"output_tokens":1}}}"#,
            r#"{"type":"message_delta","usage":{"output_tokens":42}}"#,
        ] {
            write!(stream, "data: {event}\n\n").unwrap();
            // The client answers each event, so that none waits for another.
            stream.read_exact(&mut [0; 6]).unwrap();
        }
    });
    let mut script = granting(opened(&ca, address), 443);
    script.ports.get_mut(&443).unwrap().inspect.as_mut().unwrap().meter = true;
    let mut egress = Egress::start(script);
    let mut stream = connect(&mut egress);
    write!(stream, "POST / HTTP/1.1\r\nHost: {NAME}\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    let mut received = Vec::new();
    for word in ["message_start", "message_delta"] {
        while !String::from_utf8_lossy(&received).contains(word) {
            let mut bytes = [0; 512];
            let read = stream.read(&mut bytes).unwrap();
            received.extend_from_slice(&bytes[..read]);
        }
        stream.write_all(b"1\r\nx\r\n").unwrap();
    }
    let usage = usage(&mut egress, 1);
    assert_eq!((usage.model.as_str(), usage.input_tokens, usage.output_tokens), ("big-1", 7, 42));
    assert!(usage.is_reported);
}

#[test]
fn a_metered_request_without_an_answer_is_reported_as_unknown() {
    let ca = Ca::new();
    let address = tls_server(ca.good(&["http/1.1"]), |stream| drop(read_head(stream)));
    let mut script = granting(opened(&ca, address), 443);
    script.ports.get_mut(&443).unwrap().inspect.as_mut().unwrap().meter = true;
    let mut egress = Egress::start(script);
    let mut stream = connect(&mut egress);
    write!(stream, "GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n").unwrap();
    assert!(stream.read(&mut [0]).is_err());
    assert!(!usage(&mut egress, 1).is_reported);
    assert_eq!(egress.cause(), Cause::Reset);
}

#[test]
fn a_hundred_mebibytes_stream_both_ways() {
    const PIECE: usize = 64 * 1024;
    const ALL: usize = 100 * 1024 * 1024;
    let ca = Ca::new();
    let address = tls_server(ca.good(&["http/1.1"]), |stream| {
        read_head(stream).unwrap();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {ALL}\r\n\r\n").unwrap();
        let mut bytes = vec![0; PIECE];
        for _ in 0..ALL / PIECE {
            stream.read_exact(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
        }
    });
    let mut egress = Egress::start(granting(opened(&ca, address), 443));
    let before = private_memory(&egress);
    let mut stream = connect(&mut egress);
    write!(stream, "PUT / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: {ALL}\r\n\r\n").unwrap();
    // Visible bytes at the end of a piece would wait for the next one.
    let (mut bytes, mut back) = (vec![b'\n'; PIECE], vec![0; PIECE]);
    let mut head = None;
    for number in 0..ALL / PIECE {
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        stream.write_all(&bytes).unwrap();
        head.get_or_insert_with(|| read_head(&mut stream).unwrap());
        stream.read_exact(&mut back).unwrap();
        assert!(back == bytes, "piece {number} has changed");
    }
    let after = private_memory(&egress);
    assert!(after < before + 8 * 1024, "{before} KiB before, {after} KiB");
    drop(stream);
    assert_eq!(egress.cause(), Cause::Closed);
}

#[test]
fn five_hundred_streams_of_events_take_little_memory() {
    const MANY: usize = 500;
    let ca = Ca::new();
    let address = tls_server(ca.good(&["http/1.1"]), |stream| {
        read_head(stream).unwrap();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\n\n";
        stream.write_all(head.as_bytes()).unwrap();
        // Until the client leaves.
        let _ = stream.read(&mut [0]);
    });
    let mut script = granting(opened(&ca, address), 443);
    script.start.max_connections = u32::try_from(MANY).unwrap() + 1;
    script.ports.get_mut(&443).unwrap().inspect.as_mut().unwrap().meter = true;
    let mut egress = Egress::start(script);
    let before = private_memory(&egress);
    let streams: Vec<_> = (0..MANY)
        .map(|_| {
            let mut stream = connect(&mut egress);
            write!(stream, "GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n").unwrap();
            read_head(&mut stream).unwrap();
            stream.read_exact(&mut [0; 4]).unwrap();
            stream
        })
        .collect();
    let after = private_memory(&egress);
    assert!(after < 60 * 1024, "{before} KiB before, {after} KiB with {MANY} streams");
    drop(streams);
    egress.ended(MANY);
}

#[test]
fn a_websocket_passes_within_tls() {
    let ca = Ca::new();
    let address = tls_server(ca.good(&["http/1.1"]), |stream| {
        let head = read_head(stream).unwrap();
        assert!(head.contains(SECRET) && head.to_ascii_lowercase().contains("upgrade: websocket"), "{head}");
        let answer =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello";
        stream.write_all(answer.as_bytes()).unwrap();
        let mut bytes = [0; 5];
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
    });
    let mut egress = Egress::start(granting(opened(&ca, address), 443));
    let mut stream = connect(&mut egress);
    write!(stream, "GET /ws HTTP/1.1\r\nHost: {NAME}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .unwrap();
    assert!(read_head(&mut stream).unwrap().starts_with("HTTP/1.1 101 "));
    let mut bytes = [0; 5];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
    stream.write_all(b"\0not\n").unwrap();
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"\0not\n");
    // The end of the server arrives. A program that left before would reset the connection.
    assert_eq!(stream.read(&mut bytes).unwrap(), 0);
    drop(stream);
    assert_eq!(egress.cause(), Cause::Closed);
}

#[test]
fn a_program_that_does_not_trust_the_authority_ends_the_connection() {
    let ca = Ca::new();
    let mut egress = Egress::start(opened(&ca, tls_server(ca.good(&["http/1.1"]), mirror)));
    let name = ServerName::try_from(NAME).unwrap();
    let config = client_of(RootCertStore::empty(), &["http/1.1"]);
    let mut stream = StreamOwned::new(ClientConnection::new(config, name).unwrap(), egress.connect(TO));
    let error = stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    drop(stream);
    assert_eq!(egress.cause(), Cause::Tls);
    let began = Instant::now();
    let was_asked = |message: &FromEgress| matches!(message.body, Some(From::Request(_) | From::Asked(_)));
    assert!(!egress.messages().iter().any(was_asked) && began.elapsed() < DEADLINE);
}
