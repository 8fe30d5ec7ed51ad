//! Connections in which nothing is looked at, and bounds of all.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::net::TcpSocket;
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::from_egress::Body as From;
use wire::worker::v1::to_egress::Body as To;
use wire::worker::v1::{ConnectionEnded, EndConnection};

use crate::support::{DEADLINE, Egress, Script, assert_reset, echo, server, talk};

#[test]
fn anything_passes_on_a_tcp_rule_with_half_closed_sides() {
    let mut egress = Egress::start(Script::new(16).tcp(22, echo()));
    let sent: Vec<u8> = (0..5_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let mut writing = egress.connect("11.0.0.9:22");
    let mut reading = writing.try_clone().unwrap();
    let expected = sent.clone();
    let reader = thread::spawn(move || {
        // Both sides are full meanwhile.
        thread::sleep(Duration::from_millis(300));
        let mut received = Vec::new();
        reading.read_to_end(&mut received).unwrap();
        assert!(received == expected, "{} bytes", received.len());
    });
    writing.write_all(&sent).unwrap();
    writing.shutdown(Shutdown::Write).unwrap();
    reader.join().unwrap();
    let ended = egress.ended(1).remove(0);
    assert_eq!(ended.cause(), Cause::Closed);
    assert_eq!((ended.bytes_out, ended.bytes_in), (5_000_000, 5_000_000));
    assert_eq!((&ended.address[..], ended.errno), (&[127, 0, 0, 1][..], 0));
}

#[test]
fn bytes_are_reported_while_a_connection_is_open() {
    let mut egress = Egress::start(Script::new(16).tcp(22, echo()));
    let (mut one, other) = (egress.connect("11.0.0.9:22"), egress.connect("11.0.0.9:22"));
    for sum in [5_u64, 10] {
        let mut back = [0; 5];
        one.write_all(b"hello").unwrap();
        one.read_exact(&mut back).unwrap();
        let report = egress.wait("a report", |message| {
            let Some(From::Moved(report)) = &message.body else { return false };
            report.connections.iter().any(|one| (one.bytes_out, one.bytes_in) == (sum, sum))
        });
        let Some(From::Moved(report)) = report.body else { panic!("no report") };
        assert_eq!(report.connections.len(), 1, "nothing has moved on the other one");
    }
    drop((one, other));
    let ended = egress.ended(2);
    assert_eq!(ended.iter().map(|one| one.bytes_out).max(), Some(10));
}

#[test]
fn a_server_may_speak_first() {
    let greeting = server(|mut stream| stream.write_all(b"220 hello\r\n").unwrap());
    let mut egress = Egress::start(Script::new(16).tcp(25, greeting));
    let mut said = String::new();
    egress.connect("11.0.0.9:25").read_to_string(&mut said).unwrap();
    assert_eq!(said, "220 hello\r\n");
    assert_eq!(egress.cause(), Cause::Closed);
}

#[test]
fn a_program_that_sends_nothing_and_closes_its_side_gets_the_server_s_words() {
    let greeting = server(|mut stream| stream.write_all(b"220 hello\r\n").unwrap());
    let egress = Egress::start(Script::new(16).tcp(25, greeting));
    for _ in 0..50 {
        assert_eq!(talk(egress.connect("11.0.0.9:25"), b"").unwrap(), b"220 hello\r\n");
    }
}

#[test]
fn a_program_that_leaves_while_a_reviewer_decides_is_reported() {
    let mut egress = Egress::start(Script::new(16).review(22));
    drop(egress.connect("11.0.0.9:22"));
    assert_eq!(egress.cause(), Cause::Closed);
    // Its first bytes show that it waits for an answer.
    let mut stream = egress.connect("11.0.0.9:22");
    stream.write_all(b"x").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    thread::sleep(Duration::from_millis(100));
    assert_eq!(egress.ended(1).len(), 1);
}

#[test]
fn a_server_may_end_its_side_first() {
    let (heard, all) = mpsc::channel();
    let listening = server(move |mut stream| {
        stream.shutdown(Shutdown::Write).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        heard.send(bytes).unwrap();
    });
    let mut egress = Egress::start(Script::new(16).tcp(22, listening));
    let mut stream = egress.connect("11.0.0.9:22");
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    for _ in 0..2 {
        stream.write_all(b"more ").unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(all.recv_timeout(DEADLINE).unwrap(), b"more more ");
    assert_eq!(egress.cause(), Cause::Closed);
}

#[test]
fn literals_without_a_rule_are_reset_and_on_record() {
    let mut egress = Egress::start(Script::new(16));
    for to in ["10.1.2.3:22", "[2001:db8::1]:443"] {
        egress.assert_refused(to);
    }
    assert_eq!(egress.ended(2).iter().map(ConnectionEnded::cause).collect::<Vec<_>>(), [Cause::Ended; 2]);
    let opened = |message: &wire::worker::v1::FromEgress| match &message.body {
        Some(From::Opened(opened)) => Some((opened.address.len(), opened.port)),
        _ => None,
    };
    let opened: Vec<_> = egress.messages().iter().filter_map(opened).collect();
    assert_eq!(opened, [(4, 22), (16, 443)]);
}

#[test]
fn the_daemon_may_end_a_connection_at_any_time_and_strange_messages_change_nothing() {
    let mut egress = Egress::start(Script::new(16).tcp(22, echo()));
    let mut stream = egress.connect("11.0.0.9:22");
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    egress.send(999, To::End(EndConnection { http_body: String::new() }));
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    let id = egress.wait("a connection", |message| matches!(message.body, Some(From::Opened(_)))).id;
    egress.send(id, To::End(EndConnection { http_body: String::new() }));
    assert_reset(stream);
    assert_eq!(egress.cause(), Cause::Ended);
}

#[test]
fn more_connections_than_may_be_are_reset() {
    let mut egress = Egress::start(Script::new(2).tcp(22, echo()));
    let first = [egress.connect("11.0.0.9:22"), egress.connect("11.0.0.9:22")];
    for mut stream in &first {
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
    }
    egress.assert_refused("11.0.0.9:22");
    drop(first);
    egress.ended(2);
    assert_eq!(talk(egress.connect("11.0.0.9:22"), b"x").unwrap(), b"x");
}

#[test]
fn an_idle_connection_ends() {
    let mut script = Script::new(4).tcp(22, echo());
    script.start.idle_timeout_ms = 300;
    let mut egress = Egress::start(script);
    let began = Instant::now();
    egress.assert_refused("11.0.0.9:22");
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!(egress.cause(), Cause::Idle);
}

#[test]
fn a_bound_of_bytes_holds() {
    let mut script = Script::new(4).tcp(22, echo());
    script.start.max_bytes = 1000;
    let mut egress = Egress::start(script);
    let mut stream = egress.connect("11.0.0.9:22");
    stream.write_all(&[0; 1001]).unwrap();
    assert_reset(stream);
    assert_eq!(egress.cause(), Cause::Bytes);
}

#[test]
fn a_server_that_refuses_is_on_record() {
    // It keeps its port, and does not listen.
    let deaf = TcpSocket::new_v4().unwrap();
    deaf.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut egress = Egress::start(Script::new(4).tcp(22, deaf.local_addr().unwrap()));
    egress.assert_refused("11.0.0.9:22");
    let ended = egress.ended(1).remove(0);
    assert_eq!((ended.cause(), ended.errno), (Cause::Unreachable, libc::ECONNREFUSED.unsigned_abs()));
}

#[test]
fn a_server_that_vanishes_is_found_during_a_silence() {
    let silent = server(|mut stream| {
        let _ = stream.read(&mut [0]);
        thread::sleep(DEADLINE);
    });
    let egress = Egress::start(Script::new(4).tcp(22, silent));
    let mut stream = egress.connect("11.0.0.9:22");
    stream.write_all(b"x").unwrap();
    // The timer of the connection to the server is that of keepalive: kind 2, at most a minute (proc_net_tcp(5)).
    let to = format!(" 0100007F:{:04X} 01 ", silent.port());
    let began = Instant::now();
    let timer = loop {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let timer =
            table.lines().find(|line| line.contains(&to)).and_then(|line| line.split_whitespace().nth(5));
        if let Some(timer) = timer.filter(|timer| timer.starts_with("02:")) {
            break u64::from_str_radix(&timer[3..], 16).unwrap();
        }
        assert!(began.elapsed() < DEADLINE, "{timer:?}");
        thread::sleep(Duration::from_millis(5));
    };
    // Hundredths of a second, also where the kernel's own tick is shorter.
    assert!((1..=6_000).contains(&timer), "{timer}");
}
