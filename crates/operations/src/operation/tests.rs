use std::collections::BTreeMap;
use std::time::Duration;

use jail::SandboxPath;
use proptest::prelude::*;
use prost::Message as _;
use wire::v1::edit_request::Change;
use wire::v1::git_request::Command;
use wire::v1::operation::Kind;
use wire::v1::{
    self, EditRequest, ExecRequest, GitAdd, GitCommit, GitDiff, GitLog, GitRequest, GitShow, GrepRequest,
    ListRequest, McpRequest, PatchRequest, ProcessRequest, ReadRequest, SessionRequest, ShellRequest,
    StrReplace, UpdateFrontmatter, WriteRequest, patch_request,
};

use crate::{
    CommandLimits, Encoding, Exec, Git, GitDiffFlag, GitFetch, GitFormat, GitLogFlag, GitPull, GitPullMode,
    GitPush, GitPushed, GitRefName, GitRemote, GitRevision, GitRevisions, Grep, Malformed, Operation,
    Process, Read, ReadPart, Reason, Write,
};

fn path(text: &str) -> SandboxPath {
    SandboxPath::parse(text).unwrap()
}

fn parse_kind(kind: Kind) -> Result<Operation, Malformed> {
    Operation::parse(v1::Operation { kind: Some(kind) })
}

fn grep(pattern: &str) -> Grep {
    let request = GrepRequest { pattern: pattern.to_owned(), ..Default::default() };
    match parse(request).unwrap() {
        Operation::Grep(grep) => grep,
        other => panic!("{other:?}"),
    }
}

fn parse(request: impl TryInto<Operation, Error = Malformed>) -> Result<Operation, Malformed> {
    request.try_into()
}

fn field(result: Result<Operation, Malformed>) -> (Reason, String) {
    let malformed = result.unwrap_err();
    assert_eq!(malformed.refusal.is_some(), malformed.reason == Reason::SandboxViolation);
    (malformed.reason, malformed.field)
}

#[test]
fn an_empty_request_gets_the_documented_defaults() {
    let Ok(Operation::List(list)) = parse(ListRequest::default()) else { panic!("not a list") };
    assert_eq!((list.path.to_string().as_str(), list.depth, list.max_entries), ("@project", 1, 200));
    let grep = GrepRequest { pattern: "x".into(), ..GrepRequest::default() };
    let Ok(Operation::Grep(grep)) = parse(grep) else { panic!("not a grep") };
    assert_eq!((grep.before, grep.after, grep.max_matches, grep.glob), (1, 1, 50, None));
    let exec = ExecRequest { command: "true".into(), ..ExecRequest::default() };
    let Ok(Operation::Exec(exec)) = parse(exec) else { panic!("not an exec") };
    assert_eq!(exec.timeout, Duration::from_secs(30));
    let read = ReadRequest { path: "a".into(), ..ReadRequest::default() };
    let Ok(Operation::Read(read)) = parse(read) else { panic!("not a read") };
    assert_eq!((read.part, read.encoding), (ReadPart::Whole, Encoding::Utf8));
}

#[test]
fn a_refused_path_names_the_broken_rule() {
    for (path, rule) in
        [("/etc/passwd", "absolute_path"), ("@project/../x", "parent_segment"), ("@x/y", "unknown_mount")]
    {
        let malformed = parse(ReadRequest { path: path.into(), ..ReadRequest::default() }).unwrap_err();
        assert_eq!(malformed.refusal.map(|refusal| refusal.reason()), Some(rule), "{path}");
    }
}

#[test]
fn bounds_hold_to_the_byte() {
    let write = |length: usize| WriteRequest {
        path: "a".into(),
        content: "x".repeat(length),
        ..WriteRequest::default()
    };
    assert!(parse(write(3 * 1024 * 1024)).is_ok());
    assert_eq!(field(parse(write(3 * 1024 * 1024 + 1))), (Reason::InvalidArgument, "write.content".into()));
    let exec = |length: usize| ExecRequest {
        command: "a".into(),
        args: vec!["x".repeat(length)],
        ..ExecRequest::default()
    };
    assert!(parse(exec(128 * 1024)).is_ok());
    assert_eq!(field(parse(exec(128 * 1024 + 1))), (Reason::InvalidArgument, "exec.args".into()));
    let grep = |before| GrepRequest { pattern: "x".into(), before: Some(before), ..GrepRequest::default() };
    assert!(parse(grep(20)).is_ok());
    assert_eq!(field(parse(grep(21))), (Reason::InvalidArgument, "grep.before".into()));
}

#[test]
fn hashes_are_lower_case_hex_of_full_length() {
    let write =
        |hash: String| WriteRequest { path: "a".into(), if_match_sha256: hash, ..WriteRequest::default() };
    assert!(parse(write("0f".repeat(32))).is_ok());
    for bad in ["0F".repeat(32), "0f".repeat(31), "0g".repeat(32)] {
        assert_eq!(field(parse(write(bad))), (Reason::InvalidArgument, "write.if_match_sha256".into()));
    }
}

#[test]
fn edits_may_hold_nul_but_have_to_change_something() {
    let edit = |old: &str, new: &str| EditRequest {
        path: "a".into(),
        change: Some(Change::StrReplace(StrReplace {
            old_str: old.into(),
            new_str: new.into(),
            replace_all: false,
        })),
        if_match_sha256: String::new(),
    };
    assert!(parse(edit("a\0", "b")).is_ok());
    assert_eq!(field(parse(edit("a", "a"))), (Reason::InvalidArgument, "edit.str_replace".into()));
    assert_eq!(field(parse(edit("", "a"))), (Reason::InvalidArgument, "edit.str_replace.old_str".into()));
}

#[test]
fn git_stays_in_the_project() {
    let add = |path: &str| GitRequest { command: Some(Command::Add(GitAdd { paths: vec![path.into()] })) };
    assert!(parse(add(".")).is_ok());
    assert_eq!(field(parse(add("@pkg/a"))), (Reason::InvalidArgument, "git.add.paths".into()));
    assert_eq!(field(parse(add("../a"))), (Reason::SandboxViolation, "git.add.paths".into()));
    let many = GitRequest {
        command: Some(Command::Diff(GitDiff { flags: vec!["--stat".into(); 65], paths: vec![] })),
    };
    assert_eq!(field(parse(many)), (Reason::InvalidArgument, "git.diff.flags".into()));
}

#[test]
fn operations_parse_from_their_messages() {
    let operations = [
        Operation::Read(Read {
            path: path("@pkg/a.rs"),
            part: ReadPart::Lines { first: 3, last: None },
            encoding: Encoding::Utf8,
            transfer: None,
        }),
        Operation::Read(Read {
            path: path("a"),
            part: ReadPart::Bytes { offset: 7, limit: Some(9) },
            encoding: Encoding::Base64,
            transfer: None,
        }),
        Operation::Exec(Exec {
            command: "cargo".into(),
            args: vec!["test".into(), "--".into(), "ä".into()],
            cwd: path("@project/sub"),
            env: BTreeMap::from([("RUST_LOG".into(), "info".into())]),
            stdin: vec![0, 255],
            stdin_file: None,
            timeout: Duration::from_millis(1_500),
            only_reads: true,
        }),
        Operation::Write(Write {
            path: path("b"),
            content: vec![0xff, 0, 1],
            uploaded: None,
            mode: None,
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
        Operation::Git(Git::Fetch(GitFetch {
            remote: GitRemote::Name("origin".into()),
            refs: ["main", "refs/tags/v1"].map(|name| GitRefName::parse(name).unwrap()).into(),
            tags: true,
            depth: Some(3),
        })),
        Operation::Git(Git::Pull(GitPull {
            remote: GitRemote::Url("https://git.example.org/org/app".into()),
            branch: GitRefName::parse("main"),
            mode: GitPullMode::Merge,
        })),
        Operation::Git(Git::Push(GitPush {
            remote: GitRemote::Name("origin".into()),
            refs: vec![
                GitPushed {
                    local: GitRevision::parse("main~1"),
                    reference: None,
                    expected: Some("1".repeat(40)),
                },
                GitPushed {
                    local: None,
                    reference: GitRefName::parse("old"),
                    expected: Some("0".repeat(40)),
                },
            ],
            force: true,
        })),
    ];
    for operation in operations {
        assert_eq!(Operation::parse(operation.message()), Ok(operation));
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
fn defaults_equal_the_documentation() {
    let found = grep("x");
    assert_eq!((found.before, found.after, found.max_matches), (1, 1, 50));
    assert_eq!(found.path, path("@project"));
    let exec = ExecRequest { command: "true".into(), ..Default::default() };
    let Ok(Operation::Exec(exec)) = parse_kind(Kind::Exec(exec)) else { panic!("not an exec") };
    assert_eq!(exec, Exec::new("true", [""; 0]));
    assert_eq!((exec.timeout, exec.cwd), (Duration::from_secs(30), path("@project")));
}

#[test]
fn each_command_gets_the_time_that_its_limits_set() {
    let (default, longest) = (Duration::from_secs(7), Duration::from_secs(9));
    let limits = CommandLimits { default_timeout: default, longest_timeout: longest, ..CommandLimits::USUAL };
    let of = |timeout_ms| {
        let session = SessionRequest { session_id: "s".into(), timeout_ms, ..Default::default() };
        [
            Kind::Exec(ExecRequest { command: "true".into(), timeout_ms, ..Default::default() }),
            Kind::Shell(ShellRequest { script: "true".into(), timeout_ms, ..Default::default() }),
            Kind::Session(session),
        ]
        .map(|kind| Operation::parse_within(v1::Operation { kind: Some(kind) }, limits))
    };
    for mut operation in of(None).map(Result::unwrap) {
        assert_eq!(operation.time_limit(), default);
        operation.shorten(longest);
        assert_eq!(operation.command_timeout(), Some(default));
        operation.shorten(Duration::from_secs(1));
        assert_eq!(operation.command_timeout(), Some(Duration::from_secs(1)));
    }
    assert!(of(Some(9_000)).iter().all(Result::is_ok));
    assert!(
        of(Some(9_001)).iter().all(|parsed| parsed.as_ref().is_err_and(|bad| bad.message.ends_with("9000")))
    );
    let process = ProcessRequest { command: "true".into(), ..Default::default() };
    let process = Process::parse_within(process, limits).unwrap();
    assert_eq!(Process::parse_within(process.request(), CommandLimits::USUAL), Ok(process.clone()));
    assert_eq!(Operation::Process(process).command_timeout(), None);
}

#[test]
fn a_request_without_an_operation_is_refused_with_all_of_them() {
    let refused = Operation::parse(v1::Operation { kind: None }).unwrap_err();
    assert!(refused.message.starts_with("is missing: set exactly one of read, list, "), "{refused}");
    for name in Operation::NAMES.into_iter().chain(["mcp.SERVER.TOOL"]) {
        assert!(refused.message.contains(name.split('.').next().unwrap()), "{name}");
    }
}

#[test]
fn malformed_requests_name_their_field() {
    let read = |path: &str| ReadRequest { path: path.into(), ..Default::default() };
    let exec = |command: &str| ExecRequest { command: command.into(), ..Default::default() };
    let git = |command| Kind::Git(GitRequest { command: Some(command) });
    let edit = |old: &str, new: &str| {
        let change = StrReplace { old_str: old.into(), new_str: new.into(), replace_all: false };
        Kind::Edit(EditRequest {
            path: "a".into(),
            change: Some(Change::StrReplace(change)),
            ..Default::default()
        })
    };
    let cases = [
        (Kind::Read(read("")), Reason::InvalidArgument, "read.path"),
        (Kind::Read(read("@project/../x")), Reason::SandboxViolation, "read.path"),
        (Kind::Read(read("/etc/passwd")), Reason::SandboxViolation, "read.path"),
        (
            Kind::Read(ReadRequest { start_line: Some(0), ..read("a") }),
            Reason::InvalidArgument,
            "read.start_line",
        ),
        (
            Kind::Read(ReadRequest { start_line: Some(5), end_line: Some(4), ..read("a") }),
            Reason::InvalidArgument,
            "read.end_line",
        ),
        (
            Kind::Read(ReadRequest { start_line: Some(5), offset: Some(4), ..read("a") }),
            Reason::InvalidArgument,
            "read",
        ),
        (Kind::Read(ReadRequest { encoding: 99, ..read("a") }), Reason::InvalidArgument, "read.encoding"),
        (Kind::Exec(exec("")), Reason::InvalidArgument, "exec.command"),
        (Kind::Exec(exec("./x\0")), Reason::InvalidArgument, "exec.command"),
        (Kind::Exec(exec("a\0b")), Reason::InvalidArgument, "exec.command"),
        (
            Kind::Exec(ExecRequest { timeout_ms: Some(14_400_001), ..exec("true") }),
            Reason::InvalidArgument,
            "exec.timeout_ms",
        ),
        (
            Kind::Exec(ExecRequest { env: [("A=B".to_owned(), String::new())].into(), ..exec("true") }),
            Reason::InvalidArgument,
            "exec.env",
        ),
        (edit("", "x"), Reason::InvalidArgument, "edit.str_replace.old_str"),
        (edit("x", "x"), Reason::InvalidArgument, "edit.str_replace"),
        (git(Command::Add(GitAdd { paths: vec![] })), Reason::InvalidArgument, "git.add.paths"),
        (
            git(Command::Add(GitAdd { paths: vec!["@state/x".into()] })),
            Reason::InvalidArgument,
            "git.add.paths",
        ),
        (
            git(Command::Commit(GitCommit { message: " \n".into() })),
            Reason::InvalidArgument,
            "git.commit.message",
        ),
        (
            git(Command::Diff(GitDiff { flags: vec!["--ext-diff".into()], paths: vec![] })),
            Reason::InvalidArgument,
            "git.diff.flags",
        ),
    ];
    for (kind, reason, field) in cases {
        let malformed = parse_kind(kind.clone()).unwrap_err();
        assert_eq!((malformed.reason, malformed.field.as_str()), (reason, field), "{kind:?}");
    }
    assert_eq!(Operation::parse(v1::Operation { kind: None }).unwrap_err().field, "operation");
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z/@.: -]{0,12}", "(/[a-z]{0,3}){0,3}/i?", any::<String>()]
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(text(), 0..3)
}

fn json() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just(r#"{"b":1,"a":{"d":[1.50,null],"c":"x"}}"#.to_owned()),
        "[a-z]{1,3}".prop_map(|name| format!(r#"{{"{name}":[true,-0.0,1e3]}}"#)),
    ]
}

/// Requests as clients may send them, most of which are operations.
fn request() -> impl Strategy<Value = Kind> {
    let number = || prop::option::of(0_u32..30);
    let long = || prop::option::of(0_u64..2_000);
    prop_oneof![
        (text(), long(), long(), any::<bool>(), 0..3_i32, 0..4_i32).prop_map(
            |(path, one, other, bytes, encoding, transfer)| {
                let (lines, range) =
                    if bytes { ((None, None), (one, other)) } else { ((one, other), (None, None)) };
                let (start_line, end_line, offset, limit) = (lines.0, lines.1, range.0, range.1);
                Kind::Read(ReadRequest { path, start_line, end_line, offset, limit, encoding, transfer })
            }
        ),
        (text(), number(), any::<[bool; 2]>(), number()).prop_map(|(path, depth, include, max_entries)| {
            let [include_hidden, include_symlinks] = include;
            Kind::List(ListRequest { path, depth, include_hidden, include_symlinks, max_entries })
        }),
        (text(), text(), any::<[bool; 4]>(), number(), text()).prop_map(
            |(path, pattern, flags, number, glob)| {
                let [regex, case_insensitive, include_ignored, one_per_file] = flags;
                let (before, after, max_matches) = (number, number, number);
                Kind::Grep(GrepRequest {
                    path,
                    pattern,
                    regex,
                    case_insensitive,
                    before,
                    after,
                    glob,
                    max_matches,
                    include_ignored,
                    one_per_file,
                })
            }
        ),
        (text(), texts(), text(), long(), any::<Vec<u8>>()).prop_map(
            |(command, args, value, timeout_ms, stdin)| {
                let env = [("B".to_owned(), value.clone()), ("A".to_owned(), value)].into();
                Kind::Exec(ExecRequest { command, args, env, stdin, timeout_ms, ..Default::default() })
            }
        ),
        (text(), text(), long()).prop_map(|(script, cwd, timeout_ms)| {
            Kind::Shell(ShellRequest { script, cwd, timeout_ms, ..Default::default() })
        }),
        (text(), text(), any::<bool>(), 0..3_i32).prop_map(|(path, content, create_only, encoding)| {
            Kind::Write(WriteRequest { path, content, create_only, encoding, ..Default::default() })
        }),
        (text(), texts(), json(), text()).prop_map(|(path, steps, variables_set_json, id)| {
            let update = UpdateFrontmatter {
                path,
                steps_completed_append: steps,
                decision_log_append_json: vec![variables_set_json.clone()],
                variables_set_json,
                current_node_id: Some(id),
                ..Default::default()
            };
            Kind::Patch(PatchRequest { change: Some(patch_request::Change::UpdateFrontmatter(update)) })
        }),
        (texts(), text(), texts(), number()).prop_map(|(flags, revision, paths, max_count)| {
            Kind::Git(GitRequest {
                command: Some(Command::Log(GitLog { flags, max_count, revision, paths })),
            })
        }),
        (text(), texts()).prop_map(|(revision, paths)| {
            let show = GitShow { flags: vec!["-s".to_owned()], revision, paths };
            Kind::Git(GitRequest { command: Some(Command::Show(show)) })
        }),
        json().prop_map(|arguments_json| {
            Kind::Mcp(McpRequest { server: "s".to_owned(), tool: "t".to_owned(), arguments_json })
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort::cases(2_000, 20_000)))]

    #[test]
    fn a_message_parses_to_its_operation_and_has_one_form(kind in request()) {
        if let Ok(operation) = parse_kind(kind) {
            let message = operation.message();
            prop_assert_eq!(Operation::parse(message.clone()), Ok(operation));
            let again = v1::Operation::decode(&*message.encode_to_vec()).unwrap();
            prop_assert_eq!(Operation::parse(again).unwrap().message().encode_to_vec(), message.encode_to_vec());
        }
    }
}

#[test]
fn a_program_is_a_name_or_one_whole_path() {
    let of = |command: &str, cwd: &str| {
        let request = ExecRequest { command: command.to_owned(), cwd: cwd.to_owned(), ..Default::default() };
        let Ok(Operation::Exec(exec)) = Operation::try_from(request) else { panic!("{command}") };
        assert_eq!(exec.command, command, "as it was asked for");
        exec.program().into_owned()
    };
    for (command, cwd, program) in [
        ("make", "sub", "make"),
        ("./run.sh", "", "/workspace/run.sh"),
        ("./run.sh", "sub", "/workspace/sub/run.sh"),
        ("bin//rails", "@project", "/workspace/bin/rails"),
        ("../run.sh", "sub/deep", "/workspace/sub/run.sh"),
        ("../usr/bin/env", "", "/usr/bin/env"),
        ("../../../..", "", "/"),
        ("./a/", "@state/x", "/state/x/a"),
        ("@project/run.sh", "sub", "/workspace/run.sh"),
        ("@pkg/run.sh", "", "/pkg/run.sh"),
        ("@babel/cli", "", "/workspace/@babel/cli"),
        ("@project/../x", "sub", "/workspace/sub/x"),
        ("~/x", "", "/workspace/~/x"),
        ("/bin/../usr/./bin//env", "sub", "/usr/bin/env"),
        ("/workspace/run.sh", "sub", "/workspace/run.sh"),
    ] {
        assert_eq!(of(command, cwd), program, "{command} in {cwd}");
    }
}
