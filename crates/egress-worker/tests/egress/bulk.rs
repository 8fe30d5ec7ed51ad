//! Large transfers.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::sync::mpsc;
use std::thread;

use wire::worker::v1::connection_ended::Cause;

use crate::process::private_memory;
use crate::support::{DEADLINE, Egress, Script, echo, server};

#[test]
fn a_large_transfer_passes_both_ways_in_bounded_memory() {
    let mut egress = Egress::start(Script::new(16).tcp(22, echo()));
    let sent: Vec<u8> = (0..251).cycle().take(32 * 1024 * 1024).collect();
    let before = private_memory(&egress);
    let mut writing = egress.connect("11.0.0.9:22");
    let mut reading = writing.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            writing.write_all(&sent).unwrap();
            writing.shutdown(Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        reading.read_to_end(&mut received).unwrap();
        assert!(received == sent, "{} bytes", received.len());
    });
    let ended = egress.ended(1).remove(0);
    let all = u64::try_from(sent.len()).unwrap();
    assert_eq!((ended.cause(), ended.bytes_out, ended.bytes_in), (Cause::Closed, all, all));
    let after = private_memory(&egress);
    assert!(after < before + 8 * 1024, "{before} KiB before, {after} KiB");
}

#[test]
fn a_bound_of_bytes_holds_in_the_middle_of_a_large_transfer() {
    const BOUND: u64 = 20_000_001;
    let (heard, all) = mpsc::channel();
    let sink = server(move |mut stream| {
        let mut buffer = vec![0; 64 * 1024];
        let mut bytes = 0;
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            bytes += u64::try_from(read).unwrap();
        }
        heard.send(bytes).unwrap();
    });
    let mut script = Script::new(16).tcp(22, sink);
    script.start.max_bytes = BOUND;
    let mut egress = Egress::start(script);
    let mut stream = egress.connect("11.0.0.9:22");
    let part = vec![0; 1024 * 1024];
    assert!((0..200).any(|_| stream.write_all(&part).is_err()), "it took 200 MiB");
    let ended = egress.ended(1).remove(0);
    assert_eq!(ended.cause(), Cause::Bytes);
    assert!((BOUND / 2..=BOUND).contains(&ended.bytes_out), "{}", ended.bytes_out);
    assert_eq!(all.recv_timeout(DEADLINE).unwrap(), ended.bytes_out);
}
