//! Kills host workers and operations at any moment. Each file is old or new, and nothing is left.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::time::Duration;

use host_launch::HostWorkerSpec;
use operations::Reason;
use support::{DEADLINE, Hand, Scratch, directory, launcher, write};

const DIGITS: &str = "00112233445566778899aabbccddeeff";

/// Everything in the workspace that is no result of a write.
fn temporaries(scratch: &Scratch) -> Vec<String> {
    let names =
        fs::read_dir(scratch.workspace()).unwrap().map(|entry| entry.unwrap().file_name().into_string());
    names.map(Result::unwrap).filter(|name| name.starts_with(".cofferdam-tmp-")).collect()
}

fn notes(scratch: &Scratch) -> usize {
    fs::read_dir(scratch.dir.path().join("private/temporaries")).map_or(0, Iterator::count)
}

/// What a writer leaves that is killed after it made its temporary file.
fn leave(scratch: &Scratch, job: u64, digits: &str) {
    let notes = scratch.dir.path().join("private/temporaries");
    fs::create_dir_all(&notes).unwrap();
    symlink("@project", notes.join(format!("{job}.{digits}"))).unwrap();
    fs::write(scratch.workspace().join(format!(".cofferdam-tmp-{digits}")), "half").unwrap();
    for path in [notes.clone(), scratch.workspace().join(format!(".cofferdam-tmp-{digits}"))] {
        chown(path, Some(scratch.uid), Some(scratch.uid)).unwrap();
    }
}

#[test]
fn the_next_host_worker_sweeps_before_the_first_call() {
    let scratch = Scratch::new();
    leave(&scratch, 3, DIGITS);
    let own = scratch.write(".cofferdam-tmp-ffffffffffffffffffffffffffffffff", "an agent's own");
    let mut host_worker = scratch.host_worker();
    host_worker.write("f", "x").unwrap();
    assert_eq!(temporaries(&scratch), [own.file_name().unwrap().to_str().unwrap()]);
    assert_eq!(notes(&scratch), 0);
}

#[test]
fn a_separate_recovery_reports_its_result() {
    let scratch = Scratch::new();
    let spec = || HostWorkerSpec {
        workspace: directory(&scratch.workspace()),
        state: None,
        pkg: None,
        private: Some(directory(&scratch.dir.path().join("private"))),
        linked: None,
        owner_uid: scratch.uid,
        owner_gid: scratch.uid,
    };
    assert_eq!(launcher().recover(&spec(), DEADLINE).unwrap(), "");
    leave(&scratch, 3, DIGITS);
    let words = launcher().recover(&spec(), DEADLINE).unwrap();
    assert_eq!(words, "1 temporary files removed, 0 things left");
    assert!(temporaries(&scratch).is_empty());
    let foreign = HostWorkerSpec { owner_uid: 4321, owner_gid: 4321, ..spec() };
    leave(&scratch, 3, DIGITS);
    assert!(launcher().recover(&foreign, DEADLINE).is_err(), "another user may not act on it");
}

/// Chance that is the same in each run of the test.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn version(&mut self) -> u8 {
        u8::try_from(self.roll(250)).unwrap()
    }
}

const SIZE: usize = 60_000;

fn content(version: u8) -> Vec<u8> {
    vec![version; SIZE]
}

/// Whether the file is one of the versions, whole.
fn is_whole(path: &Path) -> bool {
    match fs::read(path) {
        Ok(found) => found.len() == SIZE && found.iter().all(|byte| *byte == found[0]),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

fn all_whole(scratch: &Scratch, files: usize) -> bool {
    (0..files).all(|n| is_whole(&scratch.workspace().join(format!("f{n}"))))
}

#[test]
fn a_host_worker_killed_at_any_moment_leaves_files_old_or_new_and_nothing_else() {
    const FILES: usize = 8;
    let (scratch, mut dice) = (Scratch::new(), Dice(1));
    let (mut writes, mut kills, mut swept) = (0, 0, 0);
    while writes < 1_000 {
        let mut host_worker = scratch.host_worker();
        for _ in 0..2 {
            for n in 0..FILES {
                host_worker.begin(&write(&format!("f{n}"), content(dice.version())), DEADLINE, false);
                writes += 1;
            }
        }
        // The moment is what is tested, so there is nothing to wait for.
        std::thread::sleep(Duration::from_micros(dice.roll(12_000)));
        host_worker.process.end().unwrap();
        kills += 1;
        assert!(all_whole(&scratch, FILES), "after {kills} kills");
        swept += temporaries(&scratch).len();
        if dice.roll(2) == 0 {
            let mut host_worker = scratch.host_worker();
            host_worker.write("probe", "x").unwrap();
            assert_eq!((temporaries(&scratch), notes(&scratch)), (Vec::new(), 0), "after {kills} kills");
        }
    }
    scratch.host_worker().write("probe", "x").unwrap();
    assert_eq!((temporaries(&scratch), notes(&scratch)), (Vec::new(), 0));
    assert!(swept > 0, "not one of {kills} kills hit a write in the middle");
}

/// Kills whatever operation is at work in a host worker.
fn kill_operations(host_worker: &Hand) -> usize {
    let operations = host_worker.operations();
    for pid in &operations {
        if let Some(pid) = rustix::process::Pid::from_raw(pid.parse().unwrap()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    operations.len()
}

#[test]
fn an_operation_killed_at_any_moment_is_answered_when_nothing_of_it_is_left() {
    let (scratch, mut dice) = (Scratch::new(), Dice(7));
    let mut host_worker = scratch.host_worker();
    let (mut failed, mut succeeded) = (0, 0);
    for round in 0..400 {
        let id = host_worker.begin(&write("f0", content(dice.version())), DEADLINE, false);
        // Some come to their end on a slow machine, too.
        let awaited = (round % 10 == 0).then(|| host_worker.outcome(id));
        if awaited.is_none() {
            std::thread::sleep(Duration::from_micros(dice.roll(9_000)));
        }
        kill_operations(&host_worker);
        match awaited.unwrap_or_else(|| host_worker.outcome(id)) {
            Ok(_) => succeeded += 1,
            Err(failure) => {
                failed += 1;
                assert_eq!(failure.reason, Reason::Internal, "{failure:?}");
            }
        }
        assert!(all_whole(&scratch, 1), "in round {round}");
        // A recovery that was killed itself is done again by the next host worker.
        if notes(&scratch) == 0 {
            assert_eq!(temporaries(&scratch), Vec::<String>::new(), "in round {round}");
        }
    }
    drop(host_worker);
    scratch.host_worker().write("probe", "x").unwrap();
    assert_eq!((temporaries(&scratch), notes(&scratch)), (Vec::new(), 0));
    assert!(failed > 0 && succeeded > 0, "{failed} failed, {succeeded} succeeded: no kill was well timed");
}

#[test]
fn a_channel_that_ends_leaves_nothing() {
    let (scratch, mut dice) = (Scratch::new(), Dice(3));
    for _ in 0..40 {
        let mut host_worker = scratch.host_worker();
        for n in 0..6 {
            host_worker.begin(&write(&format!("f{n}"), content(dice.version())), DEADLINE, false);
        }
        std::thread::sleep(Duration::from_micros(dice.roll(8_000)));
        // The daemon is gone: nobody is there to sweep but the host worker itself.
        assert_eq!(host_worker.process.wait(Duration::from_secs(10)).unwrap(), "");
        assert!(all_whole(&scratch, 6));
        assert_eq!((temporaries(&scratch), notes(&scratch)), (Vec::new(), 0));
    }
}

#[test]
fn a_host_worker_begins_only_when_the_last_process_of_another_is_gone() {
    let scratch = Scratch::new();
    let private = directory(&scratch.dir.path().join("private"));
    rustix::fs::flock(&private, rustix::fs::FlockOperation::LockExclusive).unwrap();
    std::thread::scope(|scope| {
        let started = scope.spawn(|| scratch.host_worker().write("f", "x").unwrap());
        // Nothing tells of a wait: it has its chance to do wrong.
        std::thread::sleep(Duration::from_millis(300));
        assert!(!started.is_finished() && !scratch.workspace().join("f").exists());
        drop(private);
        started.join().unwrap();
    });
}
