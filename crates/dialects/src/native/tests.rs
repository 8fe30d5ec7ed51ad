use jail::SandboxPath;
use operations::{
    EditChange, EditResult, Entry, EntryType, ExecResult, Git, GitDiffFlag, GitFormat, GitPull, GitPullMode,
    GitPushed, GitRefName, GitRemote, GitResult, GrepMatch, GrepResult, ListResult, OpResult, Operation,
    Outcome, ReadPart, ReadResult, Reason, ToolFailure, WriteResult,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::Native;
use crate::dialect::Dialect as _;
use crate::failure::ParseFailure;
use crate::limits::Limits;
use crate::made::Made;

fn parse(tool: &str, arguments: &Value) -> Result<Operation, ParseFailure> {
    Native.parse(tool, &arguments.to_string(), &Limits::default())
}

fn git(operation: &str, args: &[&str]) -> Result<Git, String> {
    match parse("git_operation", &json!({"operation": operation, "args": args})) {
        Ok(Operation::Git(git)) => Ok(git),
        Ok(other) => panic!("{other:?}"),
        Err(failure) => {
            assert_eq!(failure.field.as_deref(), Some("args"));
            Err(failure.message)
        }
    }
}

fn render(outcome: &Outcome) -> String {
    Native.render(&Made::new("", None), outcome)
}

#[test]
fn arguments_become_operations() {
    let arguments = json!({"path": "a", "start_line": 3});
    let Ok(Operation::Read(read)) = parse("read_file", &arguments) else { panic!("not a read") };
    assert_eq!(read.part, ReadPart::Lines { first: 3, last: None });
    let Ok(Operation::List(list)) = Native.parse("list_files", "", &Limits::default()) else {
        panic!("not a list")
    };
    assert_eq!((list.path.to_string().as_str(), list.depth), ("@project", 1));
    let Ok(Operation::Grep(grep)) = parse("grep", &json!({"pattern": "a|b"})) else { panic!("not a grep") };
    assert_eq!((grep.regex, grep.case_insensitive, grep.before, grep.after), (true, false, 0, 0));
    let arguments = json!({"pattern": "a", "path": "@pkg", "case_insensitive": true, "context_lines": 2});
    let Ok(Operation::Grep(grep)) = parse("grep", &arguments) else { panic!("not a grep") };
    assert_eq!(
        (grep.path.to_string().as_str(), grep.case_insensitive, grep.before, grep.after),
        ("@pkg", true, 2, 2)
    );
    let arguments = json!({"command": "str_replace", "path": "a", "old_str": "x\ny", "new_str": ""});
    let Ok(Operation::Edit(edit)) = parse("edit_file", &arguments) else { panic!("not an edit") };
    assert_eq!(
        edit.change,
        EditChange::StrReplace { old: "x\ny".into(), new: String::new(), replace_all: false }
    );
    let arguments = json!({"command": "create", "path": "a", "content": ""});
    let Ok(Operation::Edit(edit)) = parse("edit_file", &arguments) else { panic!("not an edit") };
    assert_eq!(edit.change, EditChange::Create { content: String::new() });
}

#[test]
fn bad_arguments_are_named() {
    let edit = |more: &Value| {
        let mut arguments = json!({"command": "str_replace", "path": "a"});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    };
    let cases = [
        ("read_file", json!({"path": ""}), Reason::InvalidArgument, "path"),
        ("read_file", json!({"path": "../a"}), Reason::SandboxViolation, "path"),
        (
            "read_file",
            json!({"path": "a", "start_line": 2, "end_line": 1}),
            Reason::InvalidArgument,
            "end_line",
        ),
        ("list_files", json!({"path": "/etc"}), Reason::SandboxViolation, "path"),
        ("grep", json!({"pattern": ""}), Reason::InvalidArgument, "pattern"),
        ("grep", json!({"pattern": "a", "context_lines": 21}), Reason::InvalidArgument, "context_lines"),
        ("edit_file", edit(&json!({})), Reason::InvalidArgument, "old_str"),
        ("edit_file", edit(&json!({"old_str": "a"})), Reason::InvalidArgument, "new_str"),
        ("edit_file", edit(&json!({"old_str": "a", "new_str": "a"})), Reason::InvalidArgument, "new_str"),
        ("edit_file", edit(&json!({"old_str": "", "new_str": "a"})), Reason::InvalidArgument, "old_str"),
        (
            "edit_file",
            edit(&json!({"old_str": "a", "new_str": "b", "content": "c"})),
            Reason::InvalidArgument,
            "content",
        ),
        ("edit_file", edit(&json!({"command": "create"})), Reason::InvalidArgument, "content"),
        (
            "edit_file",
            edit(&json!({"command": "create", "content": "", "old_str": "a"})),
            Reason::InvalidArgument,
            "old_str",
        ),
        ("edit_file", edit(&json!({"command": "view"})), Reason::InvalidArgument, "command"),
        ("git_operation", json!({"operation": "rebase"}), Reason::InvalidArgument, "operation"),
        ("git_operation", json!({"operation": "push", "args": ["--force"]}), Reason::InvalidArgument, "args"),
        ("bash_command", json!({"command": "cat", "args": "a"}), Reason::InvalidArgument, "args"),
        ("bash_command", json!({"command": "cat", "args": ["a\0"]}), Reason::InvalidArgument, "args"),
    ];
    for (tool, arguments, reason, field) in cases {
        let failure = parse(tool, &arguments).unwrap_err();
        assert_eq!((failure.reason, failure.field.as_deref()), (reason, Some(field)), "{arguments}");
    }
}

#[test]
fn bash_command_runs_five_programs_and_knows_aliases() {
    let arguments =
        json!({"command": "wc", "args": ["-l", "@project/a b", "@pkg", "@types/node", "x@project/y"]});
    let Ok(Operation::Exec(exec)) = parse("bash_command", &arguments) else { panic!("not an exec") };
    assert_eq!(exec.command, "wc");
    assert_eq!(exec.args, ["-l", "/workspace/a b", "/pkg", "@types/node", "x@project/y"]);
    let arguments = json!({"command": "cat", "args": ["./@project/a", "/@state/b", "./c"]});
    let Ok(Operation::Exec(exec)) = parse("bash_command", &arguments) else { panic!("not an exec") };
    assert_eq!(exec.args, ["/workspace/a", "/state/b", "./c"]);
    assert!(exec.env.is_empty() && exec.stdin.is_empty() && exec.only_reads);
    let failure = parse("bash_command", &json!({"command": "cat", "args": ["@state/../x"]})).unwrap_err();
    assert_eq!((failure.reason, failure.field.as_deref()), (Reason::SandboxViolation, Some("args")));
    let failure = parse("bash_command", &json!({"command": "rm"})).unwrap_err();
    assert_eq!(failure.message, "Command not allowed: rm; use one of cat, head, tail, find, wc");
    for command in ["rm", "/bin/cat", "CAT", "cat ", "sh", "", "c\u{1b}at"] {
        let failure = parse("bash_command", &json!({"command": command})).unwrap_err();
        assert_eq!(failure.reason, Reason::CommandNotAllowed, "{command}");
        assert!(failure.message.starts_with("Command not allowed: ") && !failure.message.contains('\u{1b}'));
    }
}

#[test]
fn git_command_lines_are_understood() {
    assert_eq!(git("status", &[]), Ok(Git::Status));
    assert_eq!(git("status", &["--short", "-b"]), Ok(Git::Status));
    assert!(git("status", &["src"]).is_err());
    let Ok(Git::Diff { flags, paths }) = git("diff", &["--staged", "a", "--stat", "--", "-b"]) else {
        panic!("not a diff")
    };
    assert_eq!(flags, [GitDiffFlag::Cached, GitDiffFlag::Format(GitFormat::Stat)]);
    assert_eq!(paths.iter().map(ToString::to_string).collect::<Vec<_>>(), ["@project/a", "@project/-b"]);
    for bad in ["--ext-diff", "--output=x", "-O/etc/passwd", "--no-index"] {
        assert!(git("diff", &[bad]).unwrap_err().contains("may only be"), "{bad}");
    }
    let Ok(Git::Add { paths }) = git("add", &["."]) else { panic!("not an add") };
    assert_eq!(paths[0].to_string(), "@project");
    assert_eq!(git("add", &["-A"]), git("add", &["."]));
    assert_eq!(git("add", &["--all", "a"]), git("add", &["a"]));
    for bad in [&["-f", "a"][..], &[], &["@pkg/a"], &["../a"]] {
        assert!(git("add", bad).is_err(), "{bad:?}");
    }
    let commit = |args: &[&str]| match git("commit", args) {
        Ok(Git::Commit { message }) => message,
        other => panic!("{other:?}"),
    };
    assert_eq!(commit(&["-m", "-n is a message"]), "-n is a message");
    assert_eq!(commit(&["--message", "a", "-m", "b"]), "a\n\nb");
    assert_eq!(commit(&["--message=a"]), "a");
    assert_eq!(commit(&["-ma"]), "a");
    for bad in [&[][..], &["-m"], &["a"], &["--amend", "-m", "a"], &["--no-verify", "-m", "a"], &["-m", " "]]
    {
        assert!(git("commit", bad).is_err(), "{bad:?}");
    }
}

#[test]
fn exchanges_with_a_remote_are_understood() {
    let origin = || GitRemote::Name("origin".to_owned());
    let name = |name: &str| GitRefName::parse(name).unwrap();
    let id = "1".repeat(40);
    let Ok(Git::Fetch(fetch)) = git("fetch", &["up", "main", "--depth", "3", "refs/tags/v1", "-t"]) else {
        panic!("no fetch")
    };
    assert_eq!(fetch.remote, GitRemote::Name("up".to_owned()));
    assert_eq!(fetch.refs, [name("main"), name("refs/tags/v1")]);
    assert_eq!((fetch.depth, fetch.tags), (Some(3), true));
    assert_eq!(git("fetch", &["--depth=3"]), git("fetch", &["origin", "--depth", "3"]));
    for bad in [&["--all"][..], &["-p"], &["--depth"], &["--depth=x"], &["--upload-pack=sh"], &["ssh://a/b"]]
    {
        assert!(git("fetch", bad).is_err(), "{bad:?}");
    }
    let pull = |mode| Ok(Git::Pull(GitPull { remote: origin(), branch: Some(name("main")), mode }));
    assert_eq!(git("pull", &["origin", "main"]), pull(GitPullMode::FastForward));
    assert_eq!(git("pull", &["--ff-only", "origin", "main"]), pull(GitPullMode::FastForward));
    assert_eq!(git("pull", &["origin", "main", "--no-rebase"]), pull(GitPullMode::Merge));
    for bad in [&["--rebase"][..], &["a", "b", "c"], &["origin", "refs/tags/v1"], &["-X", "ours"]] {
        assert!(git("pull", bad).is_err(), "{bad:?}");
    }
    let push = |args: &[&str]| match git("push", args) {
        Ok(Git::Push(push)) => {
            assert_eq!(push.remote, origin());
            let of = |to: &GitPushed| {
                let local = to.local.as_ref().map(ToString::to_string).unwrap_or_default();
                let reference = to.reference.as_ref().map(ToString::to_string).unwrap_or_default();
                [local, reference, to.expected.clone().unwrap_or_default()]
            };
            (push.refs.iter().map(of).collect::<Vec<_>>(), push.force)
        }
        other => panic!("{other:?}"),
    };
    let to = |local: &str, reference: &str, id: &str| [local, reference, id].map(str::to_owned);
    assert_eq!(push(&[]), (vec![to("HEAD", "", "")], false));
    assert_eq!(push(&["-u", "origin", "HEAD"]), (vec![to("HEAD", "", "")], false));
    assert_eq!(
        push(&["origin", "main:agent/a", "HEAD~1:b"]),
        (vec![to("main", "refs/heads/agent/a", ""), to("HEAD~1", "refs/heads/b", "")], false)
    );
    let deleted = (vec![to("", "refs/heads/old", "")], false);
    assert_eq!(push(&["origin", ":old"]), deleted);
    assert_eq!(push(&["origin", "--delete", "old"]), deleted);
    let lease = format!("--force-with-lease=main:{id}");
    let forced = |local: &str| (vec![to(local, "refs/heads/main", &id)], true);
    assert_eq!(push(&[&lease]), forced("HEAD"));
    assert_eq!(push(&["origin", "main", &lease]), forced("main"));
    assert_eq!(push(&["origin", "HEAD:main", &lease]), forced("HEAD"));
    for bad in [
        &["-f"][..],
        &["--force"],
        &["origin", "+main"],
        &["--force-with-lease"],
        &["--force-with-lease=main"],
        &["origin", "a:a", &lease],
        &["origin", "a:a", "main", &lease],
        &["--mirror"],
        &["--tags"],
        &["origin", "--delete"],
        &["origin", "a:b:c"],
        &["--receive-pack=sh"],
    ] {
        assert!(git("push", bad).is_err(), "{bad:?}");
    }
}

#[test]
fn history_arguments_follow_git() {
    let log = |args: &[&str]| match git("log", args) {
        Ok(Git::Log { flags, max_count, revisions, paths }) => {
            let flags: Vec<_> = flags.iter().map(|flag| flag.as_str()).collect();
            let paths: Vec<_> = paths.iter().map(ToString::to_string).collect();
            format!("{} {max_count} {revisions} {}", flags.join(","), paths.join(","))
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(log(&[]), " 100 HEAD ");
    for five in [&["-n", "5"][..], &["-n5"], &["-5"], &["--max-count=5"], &["--max-count", "5"]] {
        assert_eq!(log(five), " 5 HEAD ", "{five:?}");
    }
    let many = ["--oneline", "--stat", "-s", "main..HEAD~2", "--", "src", "--stat"];
    assert_eq!(log(&many), "--oneline,--stat,--no-patch 100 main..HEAD~2 @project/src,@project/--stat");
    for bad in [
        &["-n"][..],
        &["-n", "many"],
        &["-n0"],
        &["-10001"],
        &["a", "b"],
        &["--all"],
        &["-p"],
        &["--output=x"],
        &["--exec=x"],
        &["HEAD@{1}"],
        &[":/fix"],
        &["a...b"],
        &["--", "../a"],
    ] {
        assert!(git("log", bad).is_err(), "{bad:?}");
    }
    let show = |args: &[&str]| match git("show", args) {
        Ok(Git::Show { flags, revision, file, paths }) => {
            (flags.len(), revision.to_string(), file, paths.len())
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(show(&[]), (0, "HEAD".to_owned(), None, 0));
    assert_eq!(show(&["v1", "--stat", "--", "a", "b"]), (1, "v1".to_owned(), None, 2));
    let file = SandboxPath::parse("@project/src/a").unwrap();
    assert_eq!(show(&["HEAD:src/a"]), (0, "HEAD".to_owned(), Some(file), 0));
    let root = SandboxPath::parse("@project").unwrap();
    assert_eq!(show(&["HEAD:"]), (0, "HEAD".to_owned(), Some(root), 0));
    for bad in [
        &[":a"][..],
        &["HEAD:../a"],
        &["HEAD:a", "--", "b"],
        &["HEAD", "a"],
        &["--textconv"],
        &["--ext-diff"],
    ] {
        assert!(git("show", bad).is_err(), "{bad:?}");
    }
}

#[test]
fn every_flag_of_diff_is_understood() {
    let flags = [
        "--cached",
        "--staged",
        "--stat",
        "--name-only",
        "--name-status",
        "--shortstat",
        "--numstat",
        "--no-color",
    ];
    for flag in flags {
        let expected = vec![GitDiffFlag::parse(flag).unwrap()];
        assert_eq!(git("diff", &[flag]), Ok(Git::Diff { flags: expected, paths: vec![] }), "{flag}");
    }
}

#[test]
fn a_pattern_that_looks_like_a_flag_is_a_pattern() {
    for pattern in ["--pre=sh", "-f/etc/passwd", "--"] {
        let Ok(Operation::Grep(grep)) = parse("grep", &json!({"pattern": pattern})) else {
            panic!("not a grep")
        };
        assert_eq!(grep.pattern, pattern);
    }
}

#[test]
fn files_are_given_raw() {
    let read = |content: &str| ReadResult { content: content.into(), ..ReadResult::default() };
    assert_eq!(render(&Ok(OpResult::Read(read("a\r\n\x1bb")))), "a\r\n\x1bb");
    assert_eq!(render(&Ok(OpResult::Read(read("")))), "(empty)");
    let cut = ReadResult {
        truncated: true,
        size_bytes: 99,
        total_lines: 9,
        start_line: 3,
        end_line: 4,
        ..read("a\nb")
    };
    assert_eq!(
        render(&Ok(OpResult::Read(cut.clone()))),
        "a\nb\n[truncated: the file has 99 bytes in 9 lines; go on with start_line 4, or search it with grep]"
    );
    let one_line = ReadResult { end_line: 3, ..cut };
    assert!(
        render(&Ok(OpResult::Read(one_line)))
            .ends_with("; this line alone is too long to be shown whole; search it with grep]")
    );
    let beyond = ReadResult { size_bytes: 9, total_lines: 2, ..read("") };
    assert_eq!(render(&Ok(OpResult::Read(beyond))), "(nothing there: the file has 2 lines)");
    let binary = ReadResult { binary: true, size_bytes: 4, sha256: "ab".into(), ..read("") };
    assert_eq!(render(&Ok(OpResult::Read(binary))), "(binary file: 4 bytes, sha256 ab)");
}

#[test]
fn a_listing_is_a_name_a_line() {
    let entry = |name: &str, entry_type: EntryType| Entry {
        path: String::new(),
        name: name.into(),
        r#type: entry_type.into(),
        size_bytes: 0,
        modified_unix_seconds: 0,
    };
    let entries = vec![
        entry("a b", EntryType::File),
        entry("d", EntryType::Directory),
        entry("evil\n[truncated]", EntryType::File),
    ];
    let list = ListResult { entries, ..ListResult::default() };
    assert_eq!(render(&Ok(OpResult::List(list.clone()))), "a b\nd/\nevil\\n[truncated]\n");
    let cut = ListResult { truncated: true, total_entries: 700, ..list };
    assert!(
        render(&Ok(OpResult::List(cut)))
            .ends_with("\n[truncated: 3 of 700 or more entries; list a subdirectory, or use grep]")
    );
    assert_eq!(render(&Ok(OpResult::List(ListResult::default()))), "(empty directory)");
}

fn found(path: &str, line: u64, before: &[&str], after: &[&str]) -> GrepMatch {
    let owned = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
    GrepMatch {
        path: path.into(),
        line,
        text: format!("match {line}"),
        before: owned(before),
        after: owned(after),
    }
}

fn grep(matches: Vec<GrepMatch>, truncated: bool) -> String {
    render(&Ok(OpResult::Grep(GrepResult { matches, truncated, ..GrepResult::default() })))
}

#[test]
fn matches_look_like_those_of_grep() {
    assert_eq!(grep(vec![], false), "(no matches found)");
    let plain = vec![found("@project/a", 2, &[], &[]), found("@project/b", 9, &[], &[])];
    assert_eq!(grep(plain, false), "@project/a:2:match 2\n@project/b:9:match 9\n");
    assert_eq!(
        grep(vec![found("a", 1, &[], &[])], true),
        "a:1:match 1\n[stopped after 1 matches; narrow the pattern or the path]"
    );
}

#[test]
fn context_that_overlaps_is_printed_once() {
    let near = vec![
        found("a", 2, &["l1"], &["match 3"]),
        found("a", 3, &["match 2"], &["l4"]),
        found("a", 9, &["l8"], &["l10"]),
        found("b", 11, &["l10"], &[]),
    ];
    assert_eq!(
        grep(near, false),
        "a-1-l1\na:2:match 2\na:3:match 3\na-4-l4\n--\na-8-l8\na:9:match 9\na-10-l10\n--\nb-10-l10\nb:11:match 11\n"
    );
}

#[test]
fn the_output_of_a_command_comes_first() {
    let exec = |stdout: &str, stderr: &str| ExecResult {
        stdout: stdout.into(),
        stderr: stderr.into(),
        exit_code: Some(0),
        ..ExecResult::default()
    };
    let shown = |result| render(&Ok(OpResult::Exec(result)));
    assert_eq!(shown(exec("a\n", "")), "a\n");
    assert_eq!(shown(exec("", "")), "(no output)");
    assert_eq!(
        shown(ExecResult { exit_code: Some(1), ..exec("a", "no\n") }),
        "a\n[stderr]\nno\n[exit code 1]"
    );
    assert_eq!(shown(ExecResult { exit_code: Some(1), ..exec("", "") }), "[exit code 1]");
    assert_eq!(
        shown(ExecResult { exit_code: None, signal: Some(9), ..exec("a", "") }),
        "a\n[ended by signal 9]"
    );
    let hog = operations::CommandEnd {
        exit: operations::Exit::Signal(9),
        ended_by: operations::EndedBy::MemoryLimit,
        limits: [operations::Limit::Memory].into(),
        stdout: operations::Written { text: "a".to_owned(), bytes: 1, omitted: 0 },
        ..operations::CommandEnd::default()
    };
    let said = shown(hog.into());
    let beginning = "a\n[ended by signal 9: memory-limit]\nError: the run was out of memory and the kernel ended the \
                     command\n[the run ran out of memory";
    assert!(said.starts_with(beginning), "{said}");
    assert_eq!(
        shown(ExecResult { stdout_omitted_bytes: 7, ..exec("a", "") }),
        "a\n[7 bytes of stdout left out]"
    );
    let drained = ExecResult {
        exit_code: None,
        ended_by: operations::EndedBy::RunEnded.into(),
        evidence: vec![operations::Evidence::new(operations::END_CAUSE, "node_drained").to_wire()],
        ..exec("so far\n", "")
    };
    assert_eq!(
        shown(drained),
        "so far\n[ended without an exit code]\nError: the run was ended by its node during the call, which may have taken effect"
    );
    let late = ExecResult { timed_out: true, exit_code: None, signal: Some(15), ..exec("so far", "") };
    let operation = parse("bash_command", &json!({"command": "find"})).unwrap();
    assert_eq!(
        Native.render(&Made::new("bash_command", Some(&operation)), &Ok(OpResult::Exec(late))),
        "so far\nError: Command timed out after 30s"
    );
}

#[test]
fn edits_show_their_diff_and_git_its_output() {
    let edit = EditResult {
        path: "@project/a".into(),
        diff: "-x\n+y\n".into(),
        sha256_before: "ab".into(),
        ..EditResult::default()
    };
    assert_eq!(render(&Ok(OpResult::Edit(edit.clone()))), "Edited @project/a\n-x\n+y\n");
    let cut = EditResult { diff_truncated: true, ..edit.clone() };
    assert!(render(&Ok(OpResult::Edit(cut))).ends_with("+y\n[the diff is longer]"));
    let new = EditResult { sha256_before: String::new(), ..edit };
    assert_eq!(render(&Ok(OpResult::Edit(new))), "Created @project/a");
    let git = |output: &str| GitResult { output: output.into(), ..GitResult::default() };
    assert_eq!(render(&Ok(OpResult::Git(git("## main\n")))), "## main\n");
    assert_eq!(render(&Ok(OpResult::Git(git("")))), "(no output)");
    let cut = GitResult { truncated: true, omitted_bytes: 8, ..git("x") };
    assert_eq!(render(&Ok(OpResult::Git(cut))), "x\n[8 bytes left out; name fewer paths]");
}

#[test]
fn failures_and_waiting_calls_begin_with_their_status() {
    for reason in Reason::ALL {
        assert_eq!(render(&Err(ToolFailure::new(reason, "no such file"))), "Error: no such file");
    }
    assert!(Native.render_pending(&Made::new("", None), "a-1").starts_with("Pending approval a-1: "));
    let foreign = Ok(OpResult::Write(WriteResult::default()));
    assert!(render(&foreign).starts_with(r#"{"ok":true,"#));
}

proptest! {
    #[test]
    fn hostile_file_names_stay_on_one_line(name in "\\PC{0,20}[\\x00-\\x1f\u{2028}]{1,3}\\PC{0,20}", line in any::<u64>()) {
        let text = grep(vec![found(&name, line, &["x"; 3], &["y"; 3])], false);
        let lines: Vec<&str> = text.lines().collect();
        prop_assert!(lines.len() <= 7 && !lines.is_empty());
        prop_assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
    }
}
