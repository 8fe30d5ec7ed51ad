//! Programs and servers that abuse HTTP/2. Each costs its own connection, little memory, and no request of others.

use std::io::{Read as _, Write as _};

use super::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, INITIAL_WINDOW, PING, PUSH_PROMISE,
    RST_STREAM, WINDOW_UPDATE, accept, bomb, field, frame, get, preface, read_frame, read_until, setting,
};
use super::http2::{get as request, h2_server, with_client};
use super::*;
use crate::process::private_memory;

/// Most memory that an abuse may take, KiB.
const MORE: u64 = 16 * 1024;

fn assert_little(egress: &Egress, before: u64, what: &str) {
    let after = private_memory(egress);
    assert!(after < before + MORE, "{what}: {before} KiB before, {after} KiB");
}

/// Fails unless a new connection is served.
fn assert_serves(egress: &mut Egress) {
    let status =
        with_client(egress, async |mut sender| sender.send_request(request("/")).await.unwrap().status());
    assert_eq!(status, 200);
}

/// Sends a piece so often, or until the other side has ended the connection.
fn flood(stream: &mut Client, piece: &[u8], most: usize) {
    for _ in 0..most {
        if stream.write_all(piece).is_err() {
            return;
        }
    }
}

#[test]
fn a_flood_of_continuations_ends_the_connection_and_reaches_no_server() {
    let ca = Ca::new();
    let (address, _) = h2_server(ca.good(&["h2"]));
    let mut egress = Egress::start(opened(&ca, address));
    let before = private_memory(&egress);
    let mut held = Vec::new();
    for payload in [field("x-more", &"y".repeat(100)).repeat(100), Vec::new()] {
        let mut stream = connect_with(&mut egress, &["h2"]);
        stream.write_all(&preface()).unwrap();
        // The flag for the end of the fields never comes.
        stream.write_all(&frame(HEADERS, END_STREAM, 1, &get())).unwrap();
        flood(&mut stream, &frame(CONTINUATION, 0, 1, &payload), 5_000);
        held.push(stream);
        // The program has not left.
        egress.ended(held.len());
    }
    assert!(requests(&egress).is_empty());
    assert_little(&egress, before, "continuations");
    assert_serves(&mut egress);
}

#[test]
fn rapid_resets_end_the_connection_and_take_little_memory() {
    let ca = Ca::new();
    let (address, _) = h2_server(ca.good(&["h2"]));
    let mut egress = Egress::start(opened(&ca, address));
    let before = private_memory(&egress);
    let mut stream = connect_with(&mut egress, &["h2"]);
    stream.write_all(&preface()).unwrap();
    for round in 0..200 {
        let mut frames = Vec::new();
        for number in 0..100 {
            let id = (round * 100 + number) * 2 + 1;
            frames.extend(frame(HEADERS, END_STREAM | END_HEADERS, id, &get()));
            frames.extend(frame(RST_STREAM, 0, id, &8_u32.to_be_bytes()));
        }
        if stream.write_all(&frames).is_err() {
            break;
        }
    }
    // The program has not left.
    egress.ended(1);
    assert_little(&egress, before, "resets");
    drop(stream);
    assert_serves(&mut egress);
}

#[test]
fn a_head_that_expands_is_refused_and_takes_little_memory() {
    let ca = Ca::new();
    let (address, _) = h2_server(ca.good(&["h2"]));
    let mut egress = Egress::start(opened(&ca, address));
    let before = private_memory(&egress);
    let mut stream = connect_with(&mut egress, &["h2"]);
    stream.write_all(&preface()).unwrap();
    let fields = [get(), bomb()].concat();
    let (first, rest) = fields.split_at(16_000);
    stream.write_all(&frame(HEADERS, END_STREAM, 1, first)).unwrap();
    stream.write_all(&frame(CONTINUATION, END_HEADERS, 1, rest)).unwrap();
    // An answer with 431, a reset, or the end of the connection.
    if let Some((_, number)) = read_until(&mut stream, &[HEADERS, RST_STREAM, GOAWAY]) {
        assert!(number <= 1, "{number}");
    }
    assert_little(&egress, before, "a head");
    assert!(requests(&egress).is_empty());
    drop(stream);
    egress.ended(1);
    assert_serves(&mut egress);
}

#[test]
fn windows_of_a_program_hold_bodies_back_and_their_overflow_ends_the_connection() {
    let ca = Ca::new();
    let address = tls_server(ca.good(&["h2"]), |stream| {
        let Some(id) = accept(stream) else { return };
        let head = frame(HEADERS, END_HEADERS, id, &[0x88]);
        if stream.write_all(&head).is_err() {
            return;
        }
        // As much as the first window of a server has.
        for _ in 0..4 {
            if stream.write_all(&frame(DATA, 0, id, &[b'x'; 16_000])).is_err() {
                return;
            }
        }
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let mut egress = Egress::start(opened(&ca, address));
    let before = private_memory(&egress);
    let mut stream = connect_with(&mut egress, &["h2"]);
    stream.write_all(&preface()).unwrap();
    stream.write_all(&setting(INITIAL_WINDOW, 0)).unwrap();
    stream.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &get())).unwrap();
    assert_eq!(read_until(&mut stream, &[HEADERS, DATA, GOAWAY]), Some((HEADERS, 1)));
    std::thread::sleep(PAUSE);
    assert_little(&egress, before, "a closed window");
    // One byte is let through.
    stream.write_all(&frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes())).unwrap();
    let mut data = std::iter::from_fn(|| read_frame(&mut stream)).filter(|(kind, ..)| *kind == DATA);
    assert_eq!(data.find(|(_, _, bytes)| !bytes.is_empty()).unwrap().2, b"x");
    stream.write_all(&frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes())).unwrap();
    // The program has not left.
    egress.ended(1);
}

#[test]
fn pings_and_settings_whose_answers_are_not_read_fill_no_memory() {
    let ca = Ca::new();
    let (address, _) = h2_server(ca.good(&["h2"]));
    let mut egress = Egress::start(opened(&ca, address));
    let before = private_memory(&egress);
    for piece in [frame(PING, 0, 0, &[7; 8]).repeat(1_000), setting(INITIAL_WINDOW, 70_000).repeat(1_000)] {
        let mut stream = connect_with(&mut egress, &["h2"]);
        stream.sock.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        stream.write_all(&preface()).unwrap();
        // An error says that the process reads no more, or has ended the connection.
        flood(&mut stream, &piece, 1_000);
        assert_little(&egress, before, "answers that wait");
    }
    egress.ended(2);
    assert_serves(&mut egress);
}

/// Ways in which a server breaks the rules in its answer to a request on a stream.
fn attacks(id: u32) -> Vec<(&'static str, Vec<u8>)> {
    let many = |more: Vec<u8>| [frame(HEADERS, 0, id, &[0x88]), more].concat();
    let fields = [vec![0x88], bomb()].concat();
    let (first, rest) = fields.split_at(16_000);
    let open = frame(HEADERS, END_HEADERS, id, &[0x88]);
    let most = frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes());
    vec![
        (
            "continuations",
            many(frame(CONTINUATION, 0, id, &field("x-more", &"y".repeat(100)).repeat(100)).repeat(2_000)),
        ),
        ("empty continuations", many(frame(CONTINUATION, 0, id, &[]).repeat(100_000))),
        (
            "a head that expands",
            [frame(HEADERS, 0, id, first), frame(CONTINUATION, END_HEADERS, id, rest)].concat(),
        ),
        ("a promise", frame(PUSH_PROMISE, END_HEADERS, id, &[&[0, 0, 0, 2], &get()[..]].concat())),
        ("a reset", frame(RST_STREAM, 0, id, &8_u32.to_be_bytes())),
        ("a reset of a stream that never was", frame(RST_STREAM, 0, 99, &8_u32.to_be_bytes())),
        ("a window beyond its bound", most),
        ("an update by nothing", frame(WINDOW_UPDATE, 0, 0, &[0; 4])),
        ("a first window beyond its bound", setting(INITIAL_WINDOW, 0x8000_0000)),
        ("a second head that is none", [open.clone(), open].concat()),
        ("a frame beyond the bound", frame(DATA, 0, id, &[0; 70_000])),
        ("data before a head", frame(DATA, END_STREAM, id, b"x")),
        ("an end at once", frame(GOAWAY, 0, 0, &[0; 8])),
    ]
}

#[test]
fn a_server_that_breaks_the_rules_answers_nothing_and_takes_little_memory() {
    for number in 0..attacks(1).len() {
        let what = attacks(1)[number].0;
        let ca = Ca::new();
        let address = tls_server(ca.good(&["h2"]), move |stream| {
            let Some(id) = accept(stream) else { return };
            let _ = stream.write_all(&attacks(id)[number].1);
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let mut egress = Egress::start(granting(opened(&ca, address), 443));
        let before = private_memory(&egress);
        let is_whole = with_client(&mut egress, async |mut sender| {
            let exchange = async {
                use http_body_util::BodyExt as _;
                let response = sender.send_request(request("/")).await?;
                let status = response.status();
                response.into_body().collect().await.map(|_| status.is_success())
            };
            tokio::time::timeout(crate::support::DEADLINE, exchange).await.expect(what).unwrap_or(false)
        });
        assert!(!is_whole, "{what}");
        egress.ended(1);
        assert_little(&egress, before, what);
    }
}
