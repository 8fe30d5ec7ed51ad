//! Kills a process that writes the log at any moment, repeatedly. Each acknowledged record exists once, and the chain holds.

#![allow(clippy::unwrap_used, clippy::expect_used)] // what cannot be set up fails its test

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use audit::{Event, Head, Kind, Limits, Reader, Writer};
use cofferdam_audit as audit;

/// Where the process that is killed has its log.
const DIRECTORY: &str = "COFFERDAM_CRASH_DIRECTORY";

/// No test by itself: the process that the other one starts and kills. It writes without end, in batches of every size,
/// and says what is on disk as soon as it is told so.
#[test]
fn writer_process() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let limits = Limits { segment_bytes: 100_000, ..Limits::default() };
    let (mut writer, opened) = Writer::open_with(Path::new(&directory), limits).unwrap();
    let mut out = std::io::stdout().lock();
    let mut id = opened.head.map_or(0, |head| head.sequence) * 1_000_000;
    let mut random = Random(std::process::id().into());
    loop {
        let size = if random.below(4) == 0 { 1 + random.below(300) } else { 1 + random.below(8) };
        let events: Vec<_> = (0..size)
            .map(|_| {
                id += 1;
                let text = "x".repeat(usize::try_from(random.below(400)).unwrap());
                Event::new(Kind::CallReceipt).call(id.to_string()).details(serde_json::Value::from(text))
            })
            .collect();
        let mut said = String::new();
        for record in writer.append_all(events).unwrap() {
            let call = record.event.call_id.unwrap();
            writeln!(said, "acknowledged {} {} {call}", record.sequence, record.hash).unwrap();
        }
        out.write_all(said.as_bytes()).unwrap();
        out.flush().unwrap();
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

struct Acknowledged {
    head: Head,
    call: String,
}

/// Starts the process and kills it a while after what it says first, or, if that is to be early, after its start: what it said.
fn write_and_kill(directory: &Path, early: bool, after: Duration) -> Vec<Acknowledged> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writer_process", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let (says, begun) = mpsc::channel();
    let reading = std::thread::spawn(move || {
        let mut said = Vec::new();
        for line in stdout.split(b'\n') {
            // The last line may be cut: then its writer did not get to say it.
            let line = String::from_utf8(line.unwrap()).unwrap();
            let words: Vec<_> = line.split(' ').collect();
            if let ["acknowledged", sequence, hash, call] = words[..]
                && let Ok(hash) = hash.parse()
            {
                let head = Head { sequence: sequence.parse().unwrap(), hash };
                said.push(Acknowledged { head, call: call.to_owned() });
                // Not waited for in the early ones.
                let _ = says.send(());
            }
        }
        said
    });
    if !early {
        begun.recv_timeout(Duration::from_secs(30)).expect("it acknowledges nothing");
    }
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    reading.join().unwrap()
}

#[test]
fn no_kill_costs_an_acknowledged_record() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = Random(20_261_121);
    let mut calls = HashSet::new();
    let (mut head, mut acknowledged, mut torn) = (0, 0, 0);
    let kills = effort::cases(50, 200);
    for kill in 0..kills {
        let after = Duration::from_micros(5_000 + random.below(60_000));
        // Some come while the log is opened and repaired.
        let said = write_and_kill(directory.path(), kill.is_multiple_of(4), after);
        // Opening repairs what was cut, on record.
        let (writer, opened) = Writer::open(directory.path()).unwrap();
        torn += usize::from(opened.repaired.is_some());
        drop(writer);

        // From a record before: its link to what follows is proved, too.
        let reader = Reader::from(directory.path(), head.max(1) - 1);
        let mut said = said.into_iter().peekable();
        for record in reader {
            let record = record.unwrap_or_else(|error| panic!("kill {kill}: {error}"));
            if record.sequence <= head {
                continue;
            }
            head = record.sequence;
            if record.event.kind == Kind::LogRepaired {
                continue;
            }
            let call = record.event.call_id.clone().unwrap();
            assert!(calls.insert(call.clone()), "kill {kill}: {call} is there twice");
            if let Some(next) = said.next_if(|next| next.head.sequence == record.sequence) {
                assert_eq!((next.head, next.call), (record.head(), call), "kill {kill}");
                acknowledged += 1;
            }
        }
        assert_eq!(said.count(), 0, "kill {kill}: acknowledged, and not in the log");
    }
    let report = audit::verify(directory.path(), &mut |_| {}).unwrap();
    assert!(report.is_intact(), "{report:?}");
    assert!(acknowledged > kills, "hardly anything was written: {acknowledged}");
    println!("{acknowledged} records acknowledged in {kills} lives, {torn} torn tails");
}
