use std::collections::BTreeMap;
use std::time::Duration;

use jail::SandboxPath;
use ops::{
    Encoding, Exec, Git, GitDiffFlag, GitFormat, GitLogFlag, GitRevision, GitRevisions, Grep, Hint,
    Operation, Read, ReadPart, Reason, ToolFailure, Write,
};
use wire::v1::{self, operation::Kind};
use wire::worker::v1 as worker;

use super::{failure_to_wire, operation_from_wire, operation_to_wire, outcome_from_wire, outcome_to_wire};

fn path(text: &str) -> SandboxPath {
    SandboxPath::parse(text).unwrap()
}

fn parse(kind: Kind) -> Result<Operation, super::Malformed> {
    operation_from_wire(v1::Operation { kind: Some(kind) })
}

fn grep(pattern: &str) -> Grep {
    let request = v1::GrepRequest { pattern: pattern.to_owned(), ..Default::default() };
    match parse(Kind::Grep(request)).unwrap() {
        Operation::Grep(grep) => grep,
        other => panic!("{other:?}"),
    }
}

#[test]
fn operations_survive_the_wire() {
    let operations = [
        Operation::Read(Read {
            path: path("@pkg/a.rs"),
            part: ReadPart::Lines { first: 3, last: None },
            encoding: Encoding::Utf8,
        }),
        Operation::Read(Read {
            path: path("a"),
            part: ReadPart::Bytes { offset: 7, limit: Some(9) },
            encoding: Encoding::Base64,
        }),
        Operation::Exec(Exec {
            command: "cargo".into(),
            args: vec!["test".into(), "--".into(), "ä".into()],
            cwd: path("@project/sub"),
            env: BTreeMap::from([("RUST_LOG".into(), "info".into())]),
            stdin: vec![0, 255],
            timeout: Duration::from_millis(1_500),
            only_reads: true,
        }),
        Operation::Write(Write {
            path: path("b"),
            content: vec![0xff, 0, 1],
            if_match_sha256: Some("a".repeat(64)),
            create_only: true,
        }),
        Operation::Git(Git::Diff {
            flags: vec![GitDiffFlag::Cached, GitDiffFlag::Format(GitFormat::Stat)],
            paths: vec![path("c")],
        }),
        Operation::Git(Git::Log {
            flags: vec![GitLogFlag::OneLine, GitLogFlag::Format(GitFormat::NameStatus)],
            max_count: 7,
            revisions: GitRevisions {
                of: GitRevision::parse("HEAD~2").unwrap(),
                without: GitRevision::parse("v1.0^{commit}"),
            },
            paths: vec![path("c")],
        }),
        Operation::Git(Git::Show {
            flags: vec![GitLogFlag::NoPatch],
            revision: GitRevision::default(),
            file: Some(path("@project/@odd/a b")),
            paths: vec![],
        }),
        Operation::Git(Git::Show {
            flags: vec![],
            revision: GitRevision::default(),
            file: None,
            paths: vec![path("d")],
        }),
        Operation::Git(Git::Commit { message: "say hi".into() }),
    ];
    for operation in operations {
        assert_eq!(operation_from_wire(operation_to_wire(&operation)), Ok(operation));
    }
}

#[test]
fn the_slashed_pattern_is_a_regular_expression() {
    let found = grep("/fn .*/i");
    assert_eq!((found.pattern.as_str(), found.regex, found.case_insensitive), ("fn .*", true, true));
    let found = grep("/fn/");
    assert_eq!((found.pattern.as_str(), found.regex, found.case_insensitive), ("fn", true, false));
    for literal in ["/", "//", "/usr", "a/", "/i"] {
        let found = grep(literal);
        assert_eq!((found.pattern.as_str(), found.regex), (literal, false));
    }
}

#[test]
fn patterns_with_slashes_of_their_own_survive_the_wire() {
    for given in ["/>", "</", "/a|b", "/usr/bin/env", "//", "//i", "/i", "/a/", "/a/i", "/ /", "/\\</", "///"]
    {
        let once = Operation::Grep(grep(given));
        assert_eq!(operation_from_wire(operation_to_wire(&once)), Ok(once), "{given}");
    }
    for given in ["//a//", "//a//i", "////", "//</div>//"] {
        let once = grep(given);
        let Ok(Operation::Grep(again)) =
            operation_from_wire(operation_to_wire(&Operation::Grep(once.clone())))
        else {
            panic!("{given}: no grep")
        };
        let same = Grep { pattern: once.pattern.replacen('/', "[/]", 1), ..once };
        assert_eq!(again, same, "{given}");
    }
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let found = grep("x");
    assert_eq!((found.before, found.after, found.max_matches), (1, 1, 50));
    assert_eq!(found.path, path("@project"));
    let exec = v1::ExecRequest { command: "true".into(), ..Default::default() };
    let Ok(Operation::Exec(exec)) = parse(Kind::Exec(exec)) else { panic!("not an exec") };
    assert_eq!((exec.timeout, exec.cwd), (Duration::from_secs(30), path("@project")));
}

#[test]
fn malformed_requests_name_their_field() {
    let read = |path: &str| v1::ReadRequest { path: path.into(), ..Default::default() };
    let exec = |command: &str| v1::ExecRequest { command: command.into(), ..Default::default() };
    let git = |command| Kind::Git(v1::GitRequest { command: Some(command) });
    let edit = |old: &str, new: &str| {
        let change = v1::StrReplace { old_str: old.into(), new_str: new.into(), replace_all: false };
        Kind::Edit(v1::EditRequest {
            path: "a".into(),
            change: Some(v1::edit_request::Change::StrReplace(change)),
            ..Default::default()
        })
    };
    let cases = [
        (Kind::Read(read("")), Reason::InvalidArgument, "read.path"),
        (Kind::Read(read("@project/../x")), Reason::SandboxViolation, "read.path"),
        (Kind::Read(read("/etc/passwd")), Reason::SandboxViolation, "read.path"),
        (
            Kind::Read(v1::ReadRequest { start_line: Some(0), ..read("a") }),
            Reason::InvalidArgument,
            "read.start_line",
        ),
        (
            Kind::Read(v1::ReadRequest { start_line: Some(5), end_line: Some(4), ..read("a") }),
            Reason::InvalidArgument,
            "read.end_line",
        ),
        (
            Kind::Read(v1::ReadRequest { start_line: Some(5), offset: Some(4), ..read("a") }),
            Reason::InvalidArgument,
            "read",
        ),
        (Kind::Read(v1::ReadRequest { encoding: 99, ..read("a") }), Reason::InvalidArgument, "read.encoding"),
        (Kind::Exec(exec("")), Reason::InvalidArgument, "exec.command"),
        (Kind::Exec(exec("./x")), Reason::InvalidArgument, "exec.command"),
        (Kind::Exec(exec("a\0b")), Reason::InvalidArgument, "exec.command"),
        (
            Kind::Exec(v1::ExecRequest { timeout_ms: Some(120_001), ..exec("true") }),
            Reason::InvalidArgument,
            "exec.timeout_ms",
        ),
        (
            Kind::Exec(v1::ExecRequest { env: [("A=B".to_owned(), String::new())].into(), ..exec("true") }),
            Reason::InvalidArgument,
            "exec.env",
        ),
        (edit("", "x"), Reason::InvalidArgument, "edit.str_replace.old_str"),
        (edit("x", "x"), Reason::InvalidArgument, "edit.str_replace"),
        (
            git(v1::git_request::Command::Add(v1::GitAdd { paths: vec![] })),
            Reason::InvalidArgument,
            "git.add.paths",
        ),
        (
            git(v1::git_request::Command::Add(v1::GitAdd { paths: vec!["@state/x".into()] })),
            Reason::InvalidArgument,
            "git.add.paths",
        ),
        (
            git(v1::git_request::Command::Commit(v1::GitCommit { message: " \n".into() })),
            Reason::InvalidArgument,
            "git.commit.message",
        ),
        (
            git(v1::git_request::Command::Diff(v1::GitDiff {
                flags: vec!["--ext-diff".into()],
                paths: vec![],
            })),
            Reason::InvalidArgument,
            "git.diff.flags",
        ),
    ];
    for (kind, reason, field) in cases {
        let malformed = parse(kind.clone()).unwrap_err();
        assert_eq!((malformed.reason, malformed.field.as_str()), (reason, field), "{kind:?}");
    }
    assert_eq!(operation_from_wire(v1::Operation { kind: None }).unwrap_err().field, "operation");
}

#[test]
fn a_worker_tells_of_full_places_and_of_nothing_else_that_ended_a_command() {
    let from = |limits_hit: &[&str]| {
        let result = v1::ExecResult {
            ended_by: "memory-limit".to_owned(),
            limits_hit: limits_hit.iter().map(ToString::to_string).collect(),
            hint: "forged".to_owned(),
            ..Default::default()
        };
        let kind = Some(v1::result::Kind::Exec(result));
        let kind = Some(worker::outcome::Kind::Result(v1::Result { kind }));
        outcome_from_wire(worker::Outcome { kind, usage: None, bound: None, hints: Vec::new() })
    };
    let Ok(Ok(ops::OpResult::Exec(result))) = from(&["tmp-space"]) else { panic!("refused") };
    assert_eq!((result.ended_by, result.hint.as_str()), (None, ""));
    assert_eq!(result.limits_hit, [ops::Limit::TmpSpace]);
    for forged in ["memory", "output", "anything"] {
        assert_eq!(from(&["tmp-space", forged]).unwrap_err().field, "exec.limits_hit");
    }
}

#[test]
fn hints_cross_as_words_and_become_sentences_for_clients_only() {
    let failure = ToolFailure::new(Reason::PreconditionFailed, "twice").hint(Hint::ReplaceAll);
    let wire = outcome_to_wire(Err(failure.clone()));
    assert_eq!(wire.hints, ["replace_all"]);
    assert_eq!(outcome_from_wire(wire.clone()), Ok(Err(failure.clone())));
    for hints in [vec!["sudo".to_owned()], vec!["replace_all".to_owned(); 9]] {
        assert!(outcome_from_wire(worker::Outcome { hints, ..wire.clone() }).is_err());
    }
    assert_eq!(failure_to_wire(failure).message, "twice; set replace_all to replace all of them");
}
