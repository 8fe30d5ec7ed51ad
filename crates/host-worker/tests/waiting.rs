//! Tests waiting processes for the next operations, and operations that wait for `Go`.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::fs;
use std::path::Path;
use std::time::Duration;

use operations::{
    Delete, Edit, EditChange, Git, OpResult, Operation, Outcome, Patch, PatchChange, Reason, WriteResult,
};
use rustix::process::{Pid, Signal, kill_process};
use support::{Hand, Scratch, WAITING, paths, write};

const NEW: &[u8] = &[b'n'; 4096];
const LARGE: usize = 100_000;

fn temporaries(directory: &Path) -> Vec<u64> {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let temporary =
        entries.filter(|entry| entry.file_name().to_str().unwrap().starts_with(".cofferdam-tmp-"));
    temporary.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.len()).collect()
}

/// Waits for a write that has its content ready in `directory`.
fn prepared(directory: &Path) {
    while temporaries(directory) != [4096] {
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn nothing_left(scratch: &Scratch) -> bool {
    let notes = fs::read_dir(scratch.dir.path().join("private/temporaries")).map_or(0, Iterator::count);
    temporaries(&scratch.workspace()).is_empty() && notes == 0
}

fn written(outcome: Outcome) -> WriteResult {
    match outcome.unwrap() {
        OpResult::Write(result) => result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_write_is_prepared_and_takes_effect_only_after_go() {
    let scratch = Scratch::new();
    let file = scratch.write("f", "old");
    let mut host_worker = scratch.host_worker();
    for _ in 0..20 {
        fs::write(&file, "old").unwrap();
        let id = host_worker.begin_awaiting(&write("f", NEW));
        prepared(&scratch.workspace());
        host_worker.write("other", "x").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"old");
        host_worker.go(id);
        written(host_worker.outcome(id));
        assert_eq!(fs::read(&file).unwrap(), NEW);
        assert!(nothing_left(&scratch));
        // The word may come before the process has begun.
        let id = host_worker.begin_awaiting(&write("f", "at once"));
        host_worker.go(id);
        written(host_worker.outcome(id));
        assert_eq!(fs::read(&file).unwrap(), b"at once");
    }
}

#[test]
fn operations_wait_for_the_go_ahead() {
    let scratch = Scratch::new();
    scratch.init();
    for name in ["deleted", "patched", "edited", "added"] {
        scratch.write(name, "old\n");
    }
    let mut host_worker = scratch.host_worker();
    let path = |name: &str| paths(&[name]).remove(0);
    let change = EditChange::StrReplace { old: "old".into(), new: "new".into(), replace_all: false };
    let diff = "--- a/patched\n+++ b/patched\n@@ -1 +1 @@\n-old\n+new\n";
    let operations = [
        Operation::Delete(Delete { path: path("deleted"), if_match_sha256: None }),
        Operation::Patch(Patch::new(PatchChange::Unified(diff.to_owned())).unwrap()),
        Operation::Edit(Edit { path: path("edited"), change, if_match_sha256: None }),
        Operation::Git(Git::Add { paths: paths(&["added"]) }),
        // Its directory is an effect as well.
        write("made/f", NEW),
        // More than the pipe of the process that waits takes at once.
        write("large", vec![b'l'; LARGE]),
    ];
    let ids: Vec<_> = operations.iter().map(|operation| host_worker.begin_awaiting(operation)).collect();
    for n in 0..20 {
        host_worker.write(&format!("other{n}"), "x").unwrap();
    }
    let read = |name: &str| fs::read(scratch.workspace().join(name));
    for name in ["deleted", "patched", "edited"] {
        assert_eq!(read(name).unwrap(), b"old\n", "{name}");
    }
    assert!(!scratch.workspace().join("made").exists() && !scratch.workspace().join(".git/index").exists());
    assert!(!scratch.workspace().join("large").exists());
    for id in ids {
        host_worker.go(id);
        host_worker.outcome(id).unwrap();
    }
    assert!(read("deleted").is_err() && scratch.workspace().join(".git/index").exists());
    assert_eq!((read("patched").unwrap(), read("edited").unwrap()), (b"new\n".to_vec(), b"new\n".to_vec()));
    assert_eq!((read("made/f").unwrap(), read("large").unwrap().len()), (NEW.to_vec(), LARGE));
    assert!(nothing_left(&scratch));
}

#[test]
fn a_write_that_never_gets_go_leaves_nothing() {
    let scratch = Scratch::new();
    let file = scratch.write("f", "old");
    let unchanged = || fs::read(&file).unwrap() == b"old" && nothing_left(&scratch);
    let mut host_worker = scratch.host_worker();
    let id = host_worker.begin_awaiting(&write("f", NEW));
    prepared(&scratch.workspace());
    host_worker.cancel(id);
    assert_eq!(host_worker.outcome(id).unwrap_err().reason, Reason::Cancelled);
    assert!(unchanged());

    // The daemon is gone.
    host_worker.begin_awaiting(&write("f", NEW));
    prepared(&scratch.workspace());
    assert_eq!(host_worker.process.wait(Duration::from_secs(10)).unwrap(), "");
    assert!(unchanged());

    // And so is the host worker.
    let mut host_worker = scratch.host_worker();
    host_worker.begin_awaiting(&write("f", NEW));
    prepared(&scratch.workspace());
    host_worker.process.end().unwrap();
    scratch.host_worker().write("g", "x").unwrap();
    assert!(unchanged());
}

#[test]
fn write_overtaken_while_waiting_starts_again() {
    let scratch = Scratch::new();
    scratch.write("d/f", "old");
    let workspace = scratch.workspace();
    let mut host_worker = scratch.host_worker();
    let mut sum = |content: &[u8]| host_worker.write("sum", content).unwrap().sha256_after;
    let [new, new_one, another] = [NEW, b"new one", b"another"].map(&mut sum);
    let mut overtaken = |operation: Operation, by: &dyn Fn()| {
        let id = host_worker.begin_awaiting(&operation);
        prepared(&workspace.join("d"));
        by();
        host_worker.go(id);
        host_worker.outcome(id)
    };
    let replace = |content: &str| fs::write(workspace.join("d/f"), content).unwrap();
    let before = written(overtaken(write("d/f", NEW), &|| replace("new one"))).sha256_before;
    assert_eq!(before, new_one, "the record names what was replaced");

    let Operation::Write(plain) = write("d/f", NEW) else { panic!() };
    let matching = Operation::Write(operations::Write { if_match_sha256: Some(new), ..plain });
    let refused = overtaken(matching, &|| replace("another")).unwrap_err();
    assert_eq!((refused.reason, &refused.details["sha256"]), (Reason::PreconditionFailed, &another));

    replace("third");
    let moved = &|| {
        fs::rename(workspace.join("d"), workspace.join("e")).unwrap();
        scratch.write("d/g", "x");
    };
    assert!(written(overtaken(write("d/f", NEW), moved)).created);
    let read = |name: &str| fs::read(workspace.join(name)).unwrap();
    assert_eq!((read("d/f"), read("e/f")), (NEW.to_vec(), b"third".to_vec()));
    assert!(temporaries(&workspace.join("d")).is_empty() && temporaries(&workspace.join("e")).is_empty());
}

#[test]
fn more_calls_than_are_at_work_at_once_get_their_words_in_any_order() {
    let scratch = Scratch::new();
    let mut host_worker = scratch.host_worker();
    let ids: Vec<_> =
        (0..40).map(|n| host_worker.begin_awaiting(&write(&format!("f{n}"), format!("{n}")))).collect();
    for id in ids.iter().rev() {
        host_worker.go(*id);
    }
    for (n, id) in ids.into_iter().enumerate() {
        written(host_worker.outcome(id));
        assert_eq!(fs::read_to_string(scratch.workspace().join(format!("f{n}"))).unwrap(), n.to_string());
    }
    assert!(nothing_left(&scratch));
}

/// Waits for all processes that wait for operations; the one that is for the next.
fn ready(host_worker: &Hand) -> String {
    loop {
        let waiting = host_worker.operations();
        if waiting.len() == WAITING {
            return waiting[0].clone();
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn a_waiting_process_serves_one_operation_and_its_death_costs_none() {
    let scratch = Scratch::new();
    let mut host_worker = scratch.host_worker();
    let mut served = Vec::new();
    for n in 0..20 {
        let waiting = ready(&host_worker);
        assert!(!served.contains(&waiting), "{waiting} served another operation");
        if n % 4 == 3 {
            kill_process(Pid::from_raw(waiting.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
            // Its host worker has yet to collect it.
            let is_over = || fs::read_to_string(format!("/proc/{waiting}/stat")).unwrap().contains(") Z ");
            while !is_over() {
                std::thread::yield_now();
            }
        }
        host_worker.write("f", n.to_string()).unwrap();
        assert_eq!(fs::read_to_string(scratch.workspace().join("f")).unwrap(), n.to_string());
        served.push(waiting);
    }
    let waiting = ready(&host_worker);
    host_worker.process.wait(Duration::from_secs(10)).unwrap();
    assert!(!Path::new(&format!("/proc/{waiting}")).exists(), "it outlived its host worker");
}
