//! Tests patches in the real jail. A patch that is killed at any moment is applied completely or not at all, and its answer
//! says which.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::fs;
use std::path::Path;
use std::time::Duration;

use operations::{OpResult, Operation, Patch, PatchChange, PatchResult, Reason, ToolFailure};
use support::{DEADLINE, Hand, Scratch};

/// Chance that is the same in each run of the test.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

fn envelope(text: &str) -> Operation {
    let change = PatchChange::Envelope(format!("*** Begin Patch\n{text}*** End Patch\n"));
    Operation::Patch(Patch::new(change).unwrap())
}

fn patch(host_worker: &mut Hand, operation: &Operation) -> Result<PatchResult, ToolFailure> {
    match host_worker.call(operation)? {
        OpResult::Patch(result) => Ok(result),
        other => panic!("{other:?}"),
    }
}

fn names(at: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(at) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// What a patch leaves in the private directory: nothing.
fn journals(scratch: &Scratch) -> Vec<String> {
    names(&scratch.dir.path().join("private/patches"))
}

#[test]
fn several_files_and_mounts_change_at_once() {
    let scratch = Scratch::new();
    for (name, content) in [("a", "one\n"), ("gone", "bye\n"), ("d/m", "x\n")] {
        scratch.write(name, content);
    }
    let mut host_worker = scratch.host_worker();
    let all = "*** Update File: a\n-one\n+two\n*** Delete File: gone\n*** Update File: d/m\n*** Move to: e/f/m\n\
               *** Add File: @state/new\n+new\n";
    let id = host_worker.begin(&envelope(all), DEADLINE, true);
    assert!(matches!(host_worker.outcome(id), Ok(OpResult::Patch(preview)) if preview.files.len() == 4));
    assert_eq!(names(&scratch.workspace()), ["a", "d", "gone"]);
    let result = patch(&mut host_worker, &envelope(all)).unwrap();
    assert!(result.files[1].trash_entry.len() > 1, "{result:?}");
    assert_eq!(names(&scratch.workspace()), ["a", "d", "e"]);
    assert_eq!(fs::read(scratch.workspace().join("a")).unwrap(), b"two\n");
    assert_eq!(fs::read(scratch.workspace().join("e/f/m")).unwrap(), b"x\n");
    assert_eq!(fs::read(scratch.dir.path().join("state/new")).unwrap(), b"new\n");
    assert_eq!(journals(&scratch), [""; 0]);

    let spoilt = "*** Update File: a\n-two\n+three\n*** Add File: .git/hooks/x\n+x\n";
    assert_eq!(patch(&mut host_worker, &envelope(spoilt)).unwrap_err().reason, Reason::SandboxViolation);
    assert_eq!(fs::read(scratch.workspace().join("a")).unwrap(), b"two\n");
}

#[test]
fn several_patches_at_once_exclude_each_other_only_where_they_meet() {
    let scratch = Scratch::new();
    for n in 0..8 {
        scratch.write(&format!("f{n}"), "old\n");
    }
    scratch.write("shared", "0\n");
    let mut host_worker = scratch.host_worker();
    let calls: Vec<u64> = (0..8)
        .map(|n| {
            let text =
                format!("*** Update File: f{n}\n-old\n+new\n*** Update File: shared\n-0\n+{}\n", n + 1);
            host_worker.begin(&envelope(&text), DEADLINE, false)
        })
        .collect();
    let outcomes: Vec<_> = calls.into_iter().map(|id| host_worker.outcome(id)).collect();
    let shared = fs::read_to_string(scratch.workspace().join("shared")).unwrap();
    for (n, outcome) in outcomes.iter().enumerate() {
        let content = fs::read_to_string(scratch.workspace().join(format!("f{n}"))).unwrap();
        assert_eq!(content == "new\n", outcome.is_ok(), "f{n}: {outcome:?}");
        if let Err(failure) = outcome {
            assert_eq!(failure.reason, Reason::PreconditionFailed, "{failure:?}");
        }
    }
    let winners: Vec<usize> = (0..8).filter(|&n| outcomes[n].is_ok()).collect();
    assert_eq!(winners.len(), 1, "{outcomes:?}");
    assert_eq!(shared, format!("{}\n", winners[0] + 1));
    assert_eq!((journals(&scratch), names(&scratch.workspace()).len()), (Vec::new(), 9));
}

fn kill_operations(host_worker: &Hand) {
    let children = |pid: &str| -> Vec<String> {
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        list.split_whitespace().map(str::to_owned).collect()
    };
    for pid in children(&host_worker.process.pid().to_string()).iter().flat_map(|pid| children(pid)) {
        if let Some(pid) = rustix::process::Pid::from_raw(pid.parse().unwrap()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// Two versions of a tree, and the patches between them.
const FILES: usize = 6;

fn step(from: u8, to: u8) -> Operation {
    let updates: Vec<String> =
        (0..FILES).map(|n| format!("*** Update File: d{n}/f\n-{from}\n+{to}\n")).collect();
    let others = format!("*** Delete File: only{from}\n*** Add File: only{to}\n+{to}\n");
    envelope(&(updates.concat() + &others))
}

/// The version that the whole tree has.
fn version(scratch: &Scratch) -> Option<u8> {
    let at = scratch.workspace();
    let read = |name: &str| fs::read_to_string(at.join(name)).unwrap();
    let version = read("d0/f").trim().parse().unwrap();
    let same = (0..FILES).all(|n| {
        read(&format!("d{n}/f")) == format!("{version}\n") && names(&at.join(format!("d{n}"))) == ["f"]
    });
    let only = names(&at).into_iter().filter(|name| !name.starts_with('d')).collect::<Vec<_>>();
    (same && only == [format!("only{version}")]).then_some(version)
}

#[test]
fn a_patch_killed_at_any_moment_is_there_as_a_whole_or_not_at_all() {
    let (scratch, mut dice) = (Scratch::new(), Dice(11));
    for n in 0..FILES {
        scratch.write(&format!("d{n}/f"), "0\n");
    }
    scratch.write("only0", "0\n");
    let mut host_worker = scratch.host_worker();
    let (mut now, mut undone, mut done) = (0, 0, 0);
    for round in 0..150 {
        let next = 1 - now;
        let id = host_worker.begin(&step(now, next), DEADLINE, false);
        std::thread::sleep(Duration::from_micros(dice.roll(40_000)));
        kill_operations(&host_worker);
        let outcome = host_worker.outcome(id);
        // A recovery that was killed itself is done again by the next host worker.
        if journals(&scratch) != [""; 0] {
            drop(host_worker);
            host_worker = scratch.host_worker();
        }
        let Some(found) = version(&scratch) else {
            panic!("round {round}: between two versions: {outcome:?}")
        };
        match &outcome {
            Ok(_) => assert_eq!(found, next, "round {round}"),
            Err(failure) if found == now => {
                undone += 1;
                assert!(!failure.message.contains("all files of the patch were changed"), "{failure:?}");
            }
            // When nothing was left to do for it, nothing is known of it either.
            Err(failure) => {
                done += 1;
                assert!(!failure.message.contains("no file of the patch was changed"), "{failure:?}");
            }
        }
        now = found;
        assert_eq!(journals(&scratch), [""; 0], "round {round}");
    }
    assert!(undone > 0, "no kill hit a patch in the middle: {undone} undone, {done} completed");
}

#[test]
fn a_patch_whose_host_worker_dies_is_repaired_before_the_next_call() {
    let (scratch, mut dice) = (Scratch::new(), Dice(5));
    for n in 0..FILES {
        scratch.write(&format!("d{n}/f"), "0\n");
    }
    scratch.write("only0", "0\n");
    let mut now = 0;
    for round in 0..40 {
        let mut host_worker = scratch.host_worker();
        host_worker.begin(&step(now, 1 - now), DEADLINE, false);
        std::thread::sleep(Duration::from_micros(dice.roll(40_000)));
        host_worker.process.end().unwrap();
        let mut next = scratch.host_worker();
        next.write("d0/probe", "x").unwrap();
        fs::remove_file(scratch.workspace().join("d0/probe")).unwrap();
        now = version(&scratch).unwrap_or_else(|| panic!("round {round}: between two versions"));
        assert_eq!(journals(&scratch), [""; 0], "round {round}");
    }
}
