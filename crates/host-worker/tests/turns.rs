//! Effects on one file take turns: only a call whose old text is gone fails.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::collections::BTreeSet;
use std::fs;

use operations::{
    Delete, Edit, EditChange, Git, OpResult, Operation, Outcome, Patch, PatchChange, Reason, Write,
};

use support::{DEADLINE, Dice, Hand, SHORT, Scratch, paths, write};

/// Calls at once, more than are at work.
const MANY: usize = 36;

fn replace(path: &str, old: &str, new: &str) -> Operation {
    let change = EditChange::StrReplace { old: old.into(), new: new.into(), replace_all: false };
    Operation::Edit(Edit { path: path.parse().unwrap(), change, if_match_sha256: None })
}

fn insert(path: &str, text: &str) -> Operation {
    let change = EditChange::Insert { after_line: 0, text: text.into() };
    Operation::Edit(Edit { path: path.parse().unwrap(), change, if_match_sha256: None })
}

fn create(path: &str, content: &str) -> Operation {
    let Operation::Write(plain) = write(path, content) else { panic!() };
    Operation::Write(Write { create_only: true, ..plain })
}

fn delete(path: &str) -> Operation {
    Operation::Delete(Delete { path: path.parse().unwrap(), if_match_sha256: None })
}

fn envelope(text: &str) -> Operation {
    let change = PatchChange::Envelope(format!("*** Begin Patch\n{text}*** End Patch\n"));
    Operation::Patch(Patch::new(change).unwrap())
}

fn numbered(word: &str) -> String {
    (0..MANY).map(|n| format!("{word} {n:02}\n")).collect::<Vec<_>>().concat()
}

/// Begins all of them, in this order, and waits for all.
fn at_once(host_worker: &mut Hand, operations: &[Operation]) -> Vec<Outcome> {
    let ids: Vec<_> =
        operations.iter().map(|operation| host_worker.begin(operation, DEADLINE, false)).collect();
    ids.into_iter().map(|id| host_worker.outcome(id)).collect()
}

fn reasons(outcomes: &[Outcome]) -> Vec<Option<Reason>> {
    outcomes.iter().map(|outcome| outcome.as_ref().err().map(|failure| failure.reason)).collect()
}

#[test]
fn changes_of_different_lines_of_one_file_at_once_are_all_made() {
    let scratch = Scratch::new();
    let mut host_worker = scratch.host_worker();
    for round in 0..4 {
        scratch.write("f", numbered("old"));
        scratch.write("g", numbered("old"));
        let operations: Vec<_> = (0..MANY)
            .map(|n| match n % 3 {
                0 => replace("f", &format!("old {n:02}"), &format!("new {n:02}")),
                1 => envelope(&format!("*** Update File: f\n-old {n:02}\n+new {n:02}\n")),
                // In one order here, and in the other there.
                _ => {
                    let part = |name| format!("*** Update File: {name}\n-old {n:02}\n+new {n:02}\n");
                    let (one, other) = if n % 2 == 0 { ("f", "g") } else { ("g", "f") };
                    envelope(&format!("{}{}", part(one), part(other)))
                }
            })
            .collect();
        // Each gets `Go` while it waits or when it has begun, the last one first.
        let ids: Vec<_> = operations.iter().map(|operation| host_worker.begin_awaiting(operation)).collect();
        ids.iter().rev().for_each(|id| host_worker.go(*id));
        for id in ids {
            host_worker.outcome(id).unwrap();
        }
        let read = |name: &str| fs::read_to_string(scratch.workspace().join(name)).unwrap();
        assert_eq!(read("f"), numbered("new"), "{round}");
        assert_eq!(read("g").matches("new").count(), MANY / 3, "{round}");
    }
}

#[test]
fn two_names_of_one_file_do_not_fail_each_other() {
    let scratch = Scratch::new();
    let mut host_worker = scratch.host_worker();
    for round in 0..8 {
        for name in ["f", "g"] {
            let _ = fs::remove_file(scratch.workspace().join(name));
        }
        scratch.write("f", numbered("old"));
        fs::hard_link(scratch.workspace().join("f"), scratch.workspace().join("g")).unwrap();
        let operations: Vec<_> = (0..8)
            .map(|n| replace(["f", "g"][n % 2], &format!("old {n:02}"), &format!("new {n:02}")))
            .collect();
        for outcome in at_once(&mut host_worker, &operations) {
            outcome.unwrap();
        }
        for name in ["f", "g"] {
            let text = fs::read_to_string(scratch.workspace().join(name)).unwrap();
            assert_eq!(text.matches("new").count(), 4, "{round} {name}: {text}");
        }
    }
}

#[test]
fn calls_on_one_file_are_made_in_order_of_arrival() {
    let scratch = Scratch::new();
    scratch.init();
    scratch.write("f", "one\n");
    let mut host_worker = scratch.host_worker();
    let failed = Some(Reason::PreconditionFailed);
    for round in 0..3 {
        let sum = host_worker.write("f", "one\n").unwrap().sha256_after;
        let matching = |content: &str| {
            let Operation::Write(plain) = write("f", content) else { panic!() };
            Operation::Write(Write { if_match_sha256: Some(sum.clone()), ..plain })
        };
        let n = format!("n{round}");
        for (operations, expected, content) in [
            (
                vec![matching("two\n"), matching("three\n"), write("f", "one\n")],
                vec![None, failed, None],
                "one\n",
            ),
            (
                vec![write("f", "x\n"), replace("f", "x", "y"), replace("f", "x", "z")],
                vec![None, None, failed],
                "y\n",
            ),
            (vec![insert("f", "1"), insert("f", "2"), insert("f", "3")], vec![None; 3], "3\n2\n1\ny\n"),
            (vec![delete("f"), create("f", "1"), create("f", "2")], vec![None, None, failed], "1"),
            (vec![create(&n, "1"), create(&n, "2"), write("f", "2")], vec![None, failed, None], "2"),
            (vec![write("d/f", "x"), delete("d/f"), delete("d"), write("f", "3")], vec![None; 4], "3"),
            (
                vec![replace("f", "3", "4"), Operation::Git(Git::Add { paths: paths(&["f"]) })],
                vec![None; 2],
                "4",
            ),
        ] {
            let outcomes = at_once(&mut host_worker, &operations);
            assert_eq!(reasons(&outcomes), expected, "{round} {operations:?}: {outcomes:?}");
            assert_eq!(fs::read_to_string(scratch.workspace().join("f")).unwrap(), content, "{operations:?}");
        }
        assert_eq!(scratch.git(&["show", ":f"]).trim_end(), "4");
    }
}

#[test]
fn a_call_that_waits_for_its_turn_can_be_cancelled_and_delays_no_other_file() {
    let scratch = Scratch::new();
    scratch.write("f", "old\n");
    let mut host_worker = scratch.host_worker();
    let first = host_worker.begin_awaiting(&replace("f", "old", "new"));
    let late = host_worker.begin(&write("f", "late"), SHORT, false);
    let cancelled = host_worker.begin(&write("f", "cancelled"), DEADLINE, false);
    let last = host_worker.begin(&replace("f", "new", "newer"), DEADLINE, false);
    host_worker.write("other", "x").unwrap();
    host_worker.cancel(cancelled);
    assert_eq!(host_worker.outcome(cancelled).unwrap_err().reason, Reason::Cancelled);
    assert_eq!(host_worker.outcome(late).unwrap_err().reason, Reason::TimedOut);
    host_worker.go(first);
    host_worker.outcome(first).unwrap();
    host_worker.outcome(last).unwrap();
    assert_eq!(fs::read_to_string(scratch.workspace().join("f")).unwrap(), "newer\n");
}

#[test]
fn an_operation_waits_for_a_git_command_that_holds_the_index() {
    let scratch = Scratch::new();
    scratch.init();
    scratch.write("f", "x");
    scratch.write(".git/index.lock", "");
    let mut host_worker = scratch.host_worker();
    let add = host_worker.begin(&Operation::Git(Git::Add { paths: paths(&["f"]) }), DEADLINE, false);
    host_worker.write("g", "x").unwrap();
    fs::remove_file(scratch.workspace().join(".git/index.lock")).unwrap();
    host_worker.outcome(add).unwrap();
    assert_eq!(scratch.git(&["ls-files"]).trim_end(), "f");
}

#[test]
fn any_mix_of_changes_at_once_loses_none() {
    let mut dice = Dice(18);
    let scratch = Scratch::new();
    let mut host_worker = scratch.host_worker();
    for round in 0..12 {
        let names = ["a", "b", "d/c"];
        for name in names {
            scratch.write(name, numbered("old"));
        }
        let mut expected: Vec<BTreeSet<String>> = vec![BTreeSet::new(); names.len()];
        let mut operations = Vec::new();
        for n in 0..40 {
            let at = dice.roll(names.len());
            let (path, line) = (names[at], n % MANY);
            let (old, new) = (format!("old {line:02}"), format!("new {n}"));
            match dice.roll(4) {
                _ if n >= MANY => operations.push(write(&format!("e/{n}"), "x")),
                0 => {
                    operations.push(insert(path, &new));
                    expected[at].insert(new);
                }
                1 => {
                    operations.push(envelope(&format!("*** Update File: {path}\n-{old}\n+{new}\n")));
                    expected[at].insert(new);
                }
                2 => {
                    let other = (at + 1) % names.len();
                    let part = |at: usize| format!("*** Update File: {}\n-{old}\n+{new}\n", names[at]);
                    operations.push(envelope(&[part(at), part(other)].concat()));
                    expected[at].insert(new.clone());
                    expected[other].insert(new);
                }
                _ => {
                    operations.push(replace(path, &old, &new));
                    expected[at].insert(new);
                }
            }
        }
        for outcome in at_once(&mut host_worker, &operations) {
            assert!(
                matches!(outcome, Ok(OpResult::Edit(_) | OpResult::Patch(_) | OpResult::Write(_))),
                "{outcome:?}"
            );
        }
        for (name, expected) in names.iter().zip(expected) {
            let text = fs::read_to_string(scratch.workspace().join(name)).unwrap();
            let found: BTreeSet<_> =
                text.lines().filter(|line| line.starts_with("new")).map(str::to_owned).collect();
            assert_eq!(found, expected, "{round} {name}");
        }
    }
    assert_eq!(fs::read_dir(scratch.workspace().join("e")).unwrap().count(), 4);
}
