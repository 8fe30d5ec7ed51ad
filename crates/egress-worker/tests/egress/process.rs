//! The process: its end, its jail and its memory.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{DEADLINE, Egress, ID, Script, echo};

#[test]
fn the_process_ends_with_its_channel_or_a_bad_frame() {
    for bad in [false, true] {
        let mut egress = Egress::start(Script::new(4).tcp(22, echo()));
        let mut stream = egress.connect("11.0.0.9:22");
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        if bad {
            egress.channel.write_all(&[0, 0, 0, 2, 0xff, 0xff]).unwrap();
        } else {
            egress.channel.shutdown(Shutdown::Both).unwrap();
        }
        let status = egress.program.wait().unwrap();
        assert_eq!(status.success(), !bad);
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
        // The link was its own: connections are refused now, and none goes out.
        let to = "11.0.0.9:22".parse().unwrap();
        let refused = egress.inside(|| TcpStream::connect_timeout(&to, DEADLINE)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
}

#[test]
fn the_process_is_confined() {
    let egress = Egress::start(Script::new(4));
    for pid in [egress.program.id(), egress.worker()] {
        let read = || std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        // The parent goes on beside its child, which is the one that answers.
        let began = Instant::now();
        while !read().contains("Seccomp:\t2") && began.elapsed() < DEADLINE {
            thread::sleep(Duration::from_millis(10));
        }
        let status = read();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(field(set), "0000000000000000", "{set}");
        }
        for id in ["Uid", "Gid"] {
            assert_eq!(field(id), format!("{ID} {ID} {ID} {ID}"));
        }
        assert_eq!(
            [field("Groups"), field("NoNewPrivs"), field("Seccomp"), field("Threads")],
            ["", "1", "2", "1"]
        );
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        for limit in ["Max processes", "Max core file size", "Max file size"] {
            let line = limits.lines().find_map(|line| line.strip_prefix(limit)).unwrap();
            assert_eq!(line.split_whitespace().take(2).collect::<Vec<_>>(), ["0", "0"], "{limit}");
        }
        assert_eq!(std::fs::read_dir(format!("/proc/{pid}/root")).unwrap().count(), 0);
        let own = |namespace: &str| {
            let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/{namespace}")).unwrap();
            of(&pid.to_string()) != of("self")
        };
        assert_eq!(["mnt", "ipc", "uts", "cgroup", "net"].map(own), [true, true, true, true, false]);
        assert!(std::fs::read_link(format!("/proc/{pid}/exe")).is_ok());
    }
}

/// Resident memory of the worker that it shares with no other process, KiB.
pub(crate) fn private_memory(egress: &Egress) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", egress.worker())).unwrap();
    let field = |name: &str| -> u64 {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    field("Private_Clean:") + field("Private_Dirty:")
}

#[test]
fn a_thousand_idle_connections_take_little_memory() {
    const MANY: usize = 1_000;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut held = Vec::new();
        for mut stream in listener.incoming().flatten() {
            stream.write_all(b"x").unwrap();
            held.push(stream);
        }
    });
    let egress = Egress::start(Script::new(2_000).tcp(22, address));
    let before = private_memory(&egress);
    let to = "11.0.0.9:22".parse().unwrap();
    let held = egress.inside(|| {
        let connect = |_| {
            let mut stream = TcpStream::connect_timeout(&to, DEADLINE).unwrap();
            stream.read_exact(&mut [0]).unwrap();
            stream
        };
        (0..MANY).map(connect).collect::<Vec<_>>()
    });
    let after = private_memory(&egress);
    assert!(after < 30 * 1024, "{before} KiB before, {after} KiB with {} connections", held.len());
}
