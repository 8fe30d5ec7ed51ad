use std::time::Duration;

use super::{Change, Edit, Exec, Git, Grep, List, Malformed, Read, Write};
use crate::{Encoding, Operation, ReadPart, Reason};

fn field(result: Result<Operation, Malformed>) -> (Reason, String) {
    let malformed = result.unwrap_err();
    assert_eq!(malformed.refusal.is_some(), malformed.reason == Reason::SandboxViolation);
    (malformed.reason, malformed.field)
}

#[test]
fn an_empty_request_gets_the_documented_defaults() {
    let Ok(Operation::List(list)) = List::default().into_operation() else { panic!("not a list") };
    assert_eq!((list.path.to_string().as_str(), list.depth, list.max_entries), ("@project", 1, 200));
    let grep = Grep { pattern: "x".into(), ..Grep::default() };
    let Ok(Operation::Grep(grep)) = grep.into_operation() else { panic!("not a grep") };
    assert_eq!((grep.before, grep.after, grep.max_matches, grep.glob), (1, 1, 50, None));
    let exec = Exec { command: "true".into(), ..Exec::default() };
    let Ok(Operation::Exec(exec)) = exec.into_operation() else { panic!("not an exec") };
    assert_eq!(exec.timeout, Duration::from_secs(30));
    let read = Read { path: "a".into(), ..Read::default() };
    let Ok(Operation::Read(read)) = read.into_operation() else { panic!("not a read") };
    assert_eq!((read.part, read.encoding), (ReadPart::Whole, Encoding::Utf8));
}

#[test]
fn a_refused_path_says_which_rule_it_broke() {
    for (path, rule) in
        [("/etc/passwd", "absolute_path"), ("@project/../x", "parent_segment"), ("@x/y", "unknown_mount")]
    {
        let malformed = Read { path: path.into(), ..Read::default() }.into_operation().unwrap_err();
        assert_eq!(malformed.refusal.map(|refusal| refusal.reason()), Some(rule), "{path}");
    }
}

#[test]
fn bounds_hold_to_the_byte() {
    let write = |length: usize| Write { path: "a".into(), content: "x".repeat(length), ..Write::default() };
    assert!(write(3 * 1024 * 1024).into_operation().is_ok());
    assert_eq!(
        field(write(3 * 1024 * 1024 + 1).into_operation()),
        (Reason::InvalidArgument, "write.content".into())
    );
    let exec =
        |length: usize| Exec { command: "a".into(), args: vec!["x".repeat(length)], ..Exec::default() };
    assert!(exec(128 * 1024).into_operation().is_ok());
    assert_eq!(field(exec(128 * 1024 + 1).into_operation()), (Reason::InvalidArgument, "exec.args".into()));
    let grep = |before| Grep { pattern: "x".into(), before: Some(before), ..Grep::default() };
    assert!(grep(20).into_operation().is_ok());
    assert_eq!(field(grep(21).into_operation()), (Reason::InvalidArgument, "grep.before".into()));
}

#[test]
fn hashes_are_lower_case_hex_of_full_length() {
    let write = |hash: String| Write { path: "a".into(), if_match_sha256: hash, ..Write::default() };
    assert!(write("0f".repeat(32)).into_operation().is_ok());
    for bad in ["0F".repeat(32), "0f".repeat(31), "0g".repeat(32)] {
        assert_eq!(
            field(write(bad).into_operation()),
            (Reason::InvalidArgument, "write.if_match_sha256".into())
        );
    }
}

#[test]
fn edits_may_hold_nul_but_have_to_change_something() {
    let edit = |old: &str, new: &str| Edit {
        path: "a".into(),
        change: Change::StrReplace { old_str: old.into(), new_str: new.into(), replace_all: false },
        if_match_sha256: String::new(),
    };
    assert!(edit("a\0", "b").into_operation().is_ok());
    assert_eq!(field(edit("a", "a").into_operation()), (Reason::InvalidArgument, "edit.str_replace".into()));
    assert_eq!(
        field(edit("", "a").into_operation()),
        (Reason::InvalidArgument, "edit.str_replace.old_str".into())
    );
}

#[test]
fn git_stays_in_the_project() {
    let add = |path: &str| Git::Add { paths: vec![path.into()] };
    assert!(add(".").into_operation().is_ok());
    assert_eq!(field(add("@pkg/a").into_operation()), (Reason::InvalidArgument, "git.add.paths".into()));
    assert_eq!(field(add("../a").into_operation()), (Reason::SandboxViolation, "git.add.paths".into()));
    let many = Git::Diff { flags: vec!["--stat".into(); 65], paths: vec![] };
    assert_eq!(field(many.into_operation()), (Reason::InvalidArgument, "git.diff.flags".into()));
}
