use super::*;

const HOST: &str = "Host: files.example.org\r\n";

/// Feeds parts of `size` bytes.
fn feed(bytes: &[u8], size: usize) -> (Result<(), Cause>, Vec<u8>) {
    let (mut gate, mut through) = (Gate::default(), Vec::new());
    let fed = bytes.chunks(size).try_for_each(|part| gate.push(part, &mut through));
    (fed, through)
}

fn request(fields: &str, body: &str) -> String {
    format!("POST /path?query HTTP/1.1\r\n{HOST}{fields}\r\n{body}")
}

#[test]
fn good_requests_go_through_as_they_are_however_they_arrive() {
    let requests = [
        request("", ""),
        request("Content-Length: 0\r\n", ""),
        request("Content-Length: 5\r\n", "\n\r\n\0x"),
        request("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0A\r\n0123456789\r\n0\r\n\r\n"),
        request("Transfer-Encoding: Chunked\r\nConnection: keep-alive, Upgrade\r\n", "0\r\n\r\n"),
        format!("GET http://files.example.org/ HTTP/1.0\r\n{HOST}\r\n"),
        format!("OPTIONS * HTTP/1.1\r\n{HOST}\r\n"),
    ];
    for requests in requests.iter().cloned().chain([requests.concat()]) {
        for size in [1, 3, 64, requests.len()] {
            assert_eq!(
                feed(requests.as_bytes(), size),
                (Ok(()), requests.clone().into_bytes()),
                "{requests}"
            );
        }
    }
}

#[test]
fn ambiguous_framing_is_refused_before_a_byte_of_it_goes_through() {
    let fields = [
        // A length and an encoding, in both orders.
        "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n",
        // Two of one kind, even if they agree.
        "Content-Length: 6\r\nContent-Length: 5\r\n",
        "Content-Length: 6\r\nContent-Length: 6\r\n",
        "Content-Length: 6, 6\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-encoding: identity\r\n",
        // Lengths that are not digits alone.
        "Content-Length: +6\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x6\r\n",
        "Content-Length: 6 6\r\n",
        "Content-Length:\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Content-Length: 18446744073709551615\r\n",
        // Encodings that are not exactly one.
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding:\x0bchunked\r\n",
        "Transfer-Encoding: chunked\0\r\n",
        // Names of fields that are written in other ways.
        "Transfer-Encoding : chunked\r\n",
        " Transfer-Encoding: chunked\r\n",
        "X: y\r\n Transfer-Encoding: chunked\r\n",
        "X: y\r\n\tfolded\r\n",
        "Transfer\0Encoding: chunked\r\n",
        ": chunked\r\n",
        "no colon\r\n",
        // Line ends.
        "X: y\nTransfer-Encoding: chunked\r\n",
        "X: y\rTransfer-Encoding: chunked\r\n",
        "X: y\r\r\n",
        // Fields that the next server would drop.
        "Connection: close, Content-Length\r\nContent-Length: 6\r\n",
        "Connection: host\r\n",
        "Connection: TRANSFER-ENCODING\r\nTransfer-Encoding: chunked\r\n",
    ];
    for fields in fields {
        let request = request(fields, "0\r\n\r\nG");
        for size in [1, 5, 4096] {
            assert_eq!(feed(request.as_bytes(), size), (Err(Cause::Malformed), Vec::new()), "{fields:?}");
        }
    }
}

#[test]
fn malformed_request_lines_are_refused() {
    for line in [
        "GET  / HTTP/1.1\r\n",
        "GET / HTTP/1.1 \r\n",
        " GET / HTTP/1.1\r\n",
        "\r\nGET / HTTP/1.1\r\n",
        "GET / HTTP/1.1\n",
        "GET / HTTP/1.2\r\n",
        "GET / HTTP/0.9\r\n",
        "GET / HTTP/2.0\r\n",
        "GET /\r\n",
        "GET / http/1.1\r\n",
        "GET /\0 HTTP/1.1\r\n",
        "G\u{e9}T / HTTP/1.1\r\n",
        "GET\t/ HTTP/1.1\r\n",
        "AVERYLONGMETHODTHATISLONGERTHANALLOTHERS / HTTP/1.1\r\n",
    ] {
        let request = format!("{line}{HOST}\r\n");
        assert_eq!(feed(request.as_bytes(), 4096), (Err(Cause::Malformed), Vec::new()), "{line:?}");
    }
    let old = format!("POST / HTTP/1.0\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n");
    assert_eq!(feed(old.as_bytes(), 4096).0, Err(Cause::Malformed));
}

#[test]
fn malformed_chunks_are_refused() {
    for body in [
        "3;extension=1\r\nabc\r\n0\r\n\r\n",
        "3 \r\nabc\r\n0\r\n\r\n",
        "3\nabc\r\n0\r\n\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\r\nab\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "+3\r\nabc\r\n0\r\n\r\n",
        "\r\nabc\r\n0\r\n\r\n",
        "0000000000000003\r\nabc\r\n0\r\n\r\n",
        "ffffffffffffffff\r\nabc\r\n",
        "0\r\nX: trailer\r\n\r\n",
        "0\n\r\n",
        "0\r\n\n",
    ] {
        for size in [1, 4096] {
            let request = request("Transfer-Encoding: chunked\r\n", body);
            assert_eq!(feed(request.as_bytes(), size).0, Err(Cause::Malformed), "{body:?}");
        }
    }
}

#[test]
fn other_protocols_are_recognised() {
    for bytes in [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &[0x16, 3, 1, 0, 5]] {
        assert_eq!(feed(bytes, 4096), (Err(Cause::WrongScheme), Vec::new()));
    }
}

#[test]
fn a_head_has_a_bound_and_many_fields_are_refused() {
    let filled = |length: usize| {
        let empty = request("X: \r\n", "").len();
        request(&format!("X: {}\r\n", "x".repeat(length - empty)), "")
    };
    assert_eq!(feed(filled(HEAD).as_bytes(), 1000).0, Ok(()));
    assert_eq!(feed(filled(HEAD + 1).as_bytes(), 1000), (Err(Cause::Malformed), Vec::new()));
    assert_eq!(feed(request(&"X: y\r\n".repeat(FIELDS), "").as_bytes(), 1000).0, Err(Cause::Malformed));
    let endless = [b"GET / HTTP/1.1\r\n", &b"X: y\r\n".repeat(10_000)[..]].concat();
    assert_eq!(feed(&endless, 4096), (Err(Cause::Malformed), Vec::new()));
}

#[test]
fn the_second_request_of_a_connection_is_checked_as_the_first() {
    let second = request("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", "");
    let first = request("Content-Length: 3\r\n", "abc");
    for size in [1, 4096] {
        let both = format!("{first}{second}");
        assert_eq!(feed(both.as_bytes(), size), (Err(Cause::Malformed), first.clone().into_bytes()));
    }
}

proptest::proptest! {
    #[test]
    fn only_bytes_that_came_go_through_in_their_order(
        parts in proptest::collection::vec("[ -~\r\n]{0,40}", 0..20), size in 1_usize..64,
    ) {
        let bytes = [request("Transfer-Encoding: chunked\r\n", ""), parts.concat()].concat().into_bytes();
        let (fed, through) = feed(&bytes, size);
        proptest::prop_assert!(bytes.starts_with(&through));
        proptest::prop_assert_eq!((fed, through), feed(&bytes, bytes.len()));
    }
}
