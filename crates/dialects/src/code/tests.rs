use std::time::Duration;

use operations::{
    EditChange, EditResult, Evidence, ExecResult, GlobResult, GrepMatch, GrepResult, ListResult, OpResult,
    Operation, Outcome, PatchChange, PatchResult, PatchedFile, ProcessProgram, ProcessResult, ReadPart,
    ReadResult, Reason, ToolFailure, WriteResult,
};
use serde_json::{Value, json};
use wire::v1::patched_file::Change;

use super::Code;
use crate::dialect::Dialect as _;
use crate::failure::ParseFailure;
use crate::limits::Limits;
use crate::list::{Format, Offer};
use crate::made::Made;
use crate::policy::{Consent, Denied, Policy};
use crate::process::ProcessAccess;

fn parse(tool: &str, arguments: &Value) -> Result<Operation, ParseFailure> {
    Code.parse(tool, &arguments.to_string(), &Limits::default())
}

fn parsed(tool: &str, arguments: &Value) -> Operation {
    parse(tool, arguments).unwrap_or_else(|failure| panic!("{failure}"))
}

fn field(tool: &str, arguments: &Value) -> String {
    parse(tool, arguments).unwrap_err().field.unwrap()
}

fn render(operation: Option<&Operation>, result: impl Into<Outcome>) -> String {
    Code.render(&Made::new("bash", operation), &result.into())
}

fn shown(result: OpResult) -> String {
    render(None, Ok(result))
}

#[test]
fn a_plain_command_is_an_exec_and_everything_else_a_script() {
    let arguments =
        json!({"command": "cargo test -- 'a b'", "workdir": "crates/x", "description": "Test it"});
    let Operation::Exec(exec) = parsed("bash", &arguments) else { panic!("no exec") };
    assert_eq!((exec.command.as_str(), exec.args), ("cargo", vec!["test".into(), "--".into(), "a b".into()]));
    assert_eq!((exec.cwd.to_string().as_str(), exec.timeout), ("@project/crates/x", Duration::from_secs(30)));
    let Operation::Shell(shell) = parsed("bash", &json!({"command": "make 2>&1 | tail", "timeout": 5}))
    else {
        panic!("no shell")
    };
    assert_eq!((shell.script.as_str(), shell.timeout), ("make 2>&1 | tail", Duration::from_millis(5)));
    assert_eq!(field("bash", &json!({"command": "make", "timeout": 120_001})), "timeout");
    assert_eq!(field("bash", &json!({"command": "make", "workdir": "/etc"})), "workdir");
    assert_eq!(field("bash", &json!({"command": ""})), "command");
}

#[test]
fn a_command_in_the_background_is_a_process_without_input() {
    for (command, is_script) in [("serve --port 8000", false), ("serve | log", true)] {
        let arguments = json!({"command": command, "run_in_background": true});
        let Operation::Process(process) = parsed("bash", &arguments) else { panic!("no process") };
        assert_eq!((process.stdin, process.timeout), (false, None));
        assert_eq!(matches!(process.program, ProcessProgram::Script(_)), is_script);
    }
    let arguments = json!({"action": "start", "command": "python3 -i", "workdir": "a"});
    let Operation::Process(process) = parsed("process", &arguments) else { panic!("no process") };
    assert!(process.stdin && process.cwd().to_string() == "@project/a");
}

#[test]
fn process_access_is_not_an_operation() {
    let access = |arguments: Value| Code.process_access("process", &arguments.to_string());
    let process_id = || "p".to_owned();
    assert_eq!(
        access(json!({"action": "output", "process_id": "p", "after": "12:3", "wait": 500})),
        Some(ProcessAccess::Output {
            process_id: process_id(),
            after: Some([12, 3]),
            wait: Duration::from_millis(500)
        })
    );
    assert_eq!(
        access(json!({"action": "input", "process_id": "p", "input": "1+1\n"})),
        Some(ProcessAccess::Input { process_id: process_id(), text: "1+1\n".into(), close: false })
    );
    assert_eq!(
        access(json!({"action": "stop", "process_id": "p"})),
        Some(ProcessAccess::Stop { process_id: process_id() })
    );
    assert_eq!(access(json!({"action": "list"})), Some(ProcessAccess::List));
    // Those are an operation, and a failure.
    assert_eq!(access(json!({"action": "start", "command": "a"})), None);
    assert_eq!(Code.process_access("bash", r#"{"action": "list"}"#), None);
    for (wrong, named) in [
        (json!({"action": "stop"}), "process_id"),
        (json!({"action": "start"}), "command"),
        (json!({"action": "input", "process_id": "p"}), "input"),
        (json!({"action": "list", "process_id": "p"}), "process_id"),
        (json!({"action": "output", "process_id": "p", "after": "12"}), "after"),
        (json!({"action": "output", "process_id": "p", "after": "-1:0"}), "after"),
        (json!({"action": "output", "process_id": "p", "wait": 60_001}), "wait"),
        (json!({"action": "kill", "process_id": "p"}), "action"),
    ] {
        assert_eq!((access(wrong.clone()), field("process", &wrong).as_str()), (None, named), "{wrong}");
    }
    let failure = parse("process", &json!({"action": "list"})).unwrap_err();
    assert_eq!(failure.reason, Reason::InvalidArgument);
}

#[test]
fn files_are_read_written_edited_and_patched() {
    let part = |arguments: &Value| match parsed("read", arguments) {
        Operation::Read(read) => read.part,
        other => panic!("{other:?}"),
    };
    assert_eq!(part(&json!({"file_path": "a"})), ReadPart::Whole);
    assert_eq!(
        part(&json!({"file_path": "/workspace/a", "offset": 5, "limit": 2})),
        ReadPart::Lines { first: 5, last: Some(6) }
    );
    assert_eq!(part(&json!({"file_path": "a", "limit": 2})), ReadPart::Lines { first: 1, last: Some(2) });
    assert!(matches!(parsed("read", &json!({"file_path": "src/"})), Operation::List(_)));
    assert_eq!(field("read", &json!({"file_path": "/etc/passwd"})), "file_path");

    assert!(matches!(parsed("write", &json!({"file_path": "a", "content": "x"})), Operation::Write(_)));
    let edit = json!({"file_path": "a", "old_string": "x", "new_string": "", "replace_all": true});
    let Operation::Edit(edit) = parsed("edit", &edit) else { panic!("no edit") };
    assert_eq!(
        edit.change,
        EditChange::StrReplace { old: "x".into(), new: String::new(), replace_all: true }
    );
    let same = json!({"file_path": "a", "old_string": "x", "new_string": "x"});
    assert_eq!(field("edit", &same), "new_string");
    assert_eq!(field("edit", &json!({"file_path": "a", "old_string": "", "new_string": "x"})), "old_string");

    let patch = |text: &str| match parsed("patch", &json!({"patch": text})) {
        Operation::Patch(patch) => matches!(patch.change(), PatchChange::Envelope(_)),
        other => panic!("{other:?}"),
    };
    assert!(patch("\n*** Begin Patch\n*** Delete File: a\n*** End Patch\n"));
    assert!(!patch("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"));
    assert_eq!(field("patch", &json!({"patch": " \n"})), "patch");
}

#[test]
fn a_search_is_for_paths_unless_lines_are_wanted() {
    let grep = |arguments: &Value| match parsed("grep", arguments) {
        Operation::Grep(grep) => grep,
        other => panic!("{other:?}"),
    };
    let paths = grep(&json!({"pattern": "a.b", "type": "ts", "-C": 3}));
    assert!(paths.one_per_file && paths.regex);
    assert_eq!(
        (paths.before, paths.glob.as_deref(), paths.max_matches),
        (0, Some("*.{ts,tsx,mts,cts}"), 100)
    );
    let lines = json!({
        "pattern": "/a/i", "path": "src", "glob": "*.rs", "output_mode": "content", "-n": true, "-i": true, "-C": 2,
        "-A": 5, "head_limit": 7,
    });
    let lines = grep(&lines);
    assert!(!lines.one_per_file && lines.case_insensitive && lines.pattern == "/a/i");
    assert_eq!((lines.before, lines.after, lines.max_matches), (2, 5, 7));
    assert_eq!(field("grep", &json!({"pattern": "a", "type": "cobol"})), "type");
    assert_eq!(field("grep", &json!({"pattern": "a", "type": "py", "glob": "*"})), "type");
    assert_eq!(field("grep", &json!({"pattern": "a", "output_mode": "content", "-A": 21})), "-A");
    assert_eq!(field("grep", &json!({"pattern": "a", "head_limit": 0})), "head_limit");
    let Operation::Glob(glob) = parsed("glob", &json!({"pattern": "**/*.rs", "path": "src"})) else {
        panic!("no glob")
    };
    assert_eq!((glob.pattern.as_str(), glob.path.to_string().as_str()), ("**/*.rs", "@project/src"));
}

#[test]
fn a_command_is_rendered_with_its_output_and_exit_code() {
    let exec = |result: ExecResult| shown(OpResult::Exec(result));
    let ended = |code: i32| ExecResult { exit_code: Some(code), ..ExecResult::default() };
    assert_eq!(exec(ended(0)), "(no output)\n[exit code 0]");
    let both = ExecResult { stdout: "out".into(), stderr: "err\n".into(), ..ended(101) };
    assert_eq!(exec(both), "out\n[stderr]\nerr\n[exit code 101]");
    let long = ExecResult { stdout: "a\n".into(), stdout_omitted_bytes: 12_345, ..ended(0) };
    assert_eq!(
        exec(long),
        "a\n[truncated: 12,345 bytes of the middle are left out; to see them send the output to a file, such as > \
         /state/out.txt 2>&1, and read parts of it]\n[exit code 0]"
    );
    let killed = ExecResult {
        signal: Some(9),
        ended_by: operations::EndedBy::MemoryLimit.into(),
        hint: "use less".into(),
        ..ended(137)
    };
    assert_eq!(
        exec(killed),
        "(no output)\n[ended by signal 9 (memory-limit)]\n[cut short: the run was out of memory and the kernel ended \
         the command]\n[use less]"
    );
    let drained = ExecResult {
        stdout: "so far\n".into(),
        ended_by: operations::EndedBy::RunEnded.into(),
        evidence: vec![Evidence::new(operations::END_CAUSE, "node_drained").to_wire()],
        ..ExecResult::default()
    };
    assert_eq!(
        exec(drained),
        "so far\n[ended without an exit code]\n[cut short: the run was ended by its node during the call, which may have \
         taken effect]"
    );
    let operation = parsed("bash", &json!({"command": "make", "timeout": 1_500}));
    let late = ExecResult { timed_out: true, stdout: "so far\n".into(), ..ExecResult::default() };
    assert_eq!(
        render(Some(&operation), Ok(OpResult::Shell(late))),
        "so far\n[timed out after 1.5 seconds: it and all that it started were ended]"
    );
    let id = "p".to_owned();
    assert_eq!(
        shown(OpResult::Process(ProcessResult { process_id: id })),
        r#"Started process p. Its output: process {"action": "output", "process_id": "p"}"#
    );
}

#[test]
fn files_are_shown_by_the_paths_of_commands() {
    let read = |part: ReadResult| shown(OpResult::Read(part));
    let whole = ReadResult {
        content: "a\nb\n".into(),
        size_bytes: 4,
        total_lines: 2,
        start_line: 1,
        end_line: 2,
        ..ReadResult::default()
    };
    assert_eq!(read(whole.clone()), "     1\ta\n     2\tb\n");
    let part = ReadResult { total_lines: 9, ..whole.clone() };
    assert_eq!(read(part), "     1\ta\n     2\tb\n[the file has 9 lines]\n");
    let cut = ReadResult { total_lines: 9, truncated: true, ..whole };
    assert_eq!(
        read(cut),
        "     1\ta\n     2\tb\n[truncated: the file has 4 bytes in 9 lines; go on with offset 2, or search it with grep]\n"
    );
    let paths = vec!["@project/a".into(), "@pkg/b\n".into(), "@projection/c".into()];
    let glob = GlobResult { paths, truncated: true, ..GlobResult::default() };
    assert_eq!(
        shown(OpResult::Glob(glob)),
        "/workspace/a\n/pkg/b\\n\n@projection/c\n[stopped after 3 paths; narrow the pattern or the path]\n"
    );
    assert_eq!(shown(OpResult::Glob(GlobResult::default())), "(no files found)");
    assert_eq!(shown(OpResult::List(ListResult::default())), "(empty directory)");
    let created = WriteResult {
        path: "@state/x".into(),
        bytes_written: 1_000,
        created: true,
        ..WriteResult::default()
    };
    assert_eq!(shown(OpResult::Write(created)), "Created /state/x (1,000 bytes)");
    let failure = ToolFailure::new(Reason::NotFound, "no such file");
    assert_eq!(render(None, Err(failure)), "Error: no such file");
}

#[test]
fn a_change_is_rendered_with_the_current_lines() {
    let diff = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n".to_owned();
    let edited = EditResult { path: "@project/x".into(), diff, replacements: 1, ..EditResult::default() };
    assert_eq!(
        shown(OpResult::Edit(edited.clone())),
        "Edited /workspace/x. The lines are now:\n     1\ta\n     2\tc\n"
    );
    let many = EditResult { replacements: 3, diff_truncated: true, ..edited };
    assert_eq!(
        shown(OpResult::Edit(many)),
        "Edited /workspace/x in 3 places. The lines are now:\n     1\ta\n     2\tc\n[more lines have changed]\n"
    );
    let file = |path: &str, change: Change, moved_from: &str| PatchedFile {
        path: path.into(),
        change: change.into(),
        moved_from: moved_from.into(),
        ..PatchedFile::default()
    };
    let files = vec![
        file("@project/a", Change::Created, ""),
        file("@project/b", Change::Updated, ""),
        file("@project/c", Change::Deleted, ""),
        file("@project/d", Change::Moved, "@project/e"),
    ];
    let patched =
        PatchResult { files, notes: vec!["hunk 1 of b: 3 lines below".into()], ..PatchResult::default() };
    assert_eq!(
        shown(OpResult::Patch(patched)),
        "Applied the patch:\nA /workspace/a\nM /workspace/b\nD /workspace/c\nR /workspace/e -> /workspace/d\n\
         [hunk 1 of b: 3 lines below]\n"
    );
}

#[test]
fn matches_are_paths_or_lines_as_requested() {
    let found = GrepMatch { path: "@project/a".into(), line: 3, text: "x".into(), ..GrepMatch::default() };
    let result = GrepResult { matches: vec![found], truncated: true, ..GrepResult::default() };
    let told = |arguments: Value| {
        let operation = parsed("grep", &arguments);
        render(Some(&operation), Ok(OpResult::Grep(result.clone())))
    };
    let more = "narrow the pattern or the path, or raise head_limit]\n";
    assert_eq!(told(json!({"pattern": "x"})), format!("/workspace/a\n[stopped after 1 files; {more}"));
    assert_eq!(
        told(json!({"pattern": "x", "output_mode": "content"})),
        format!("/workspace/a:3:x\n[stopped after 1 matches; {more}")
    );
    assert_eq!(shown(OpResult::Grep(GrepResult::default())), "(no matches found)");
}

/// The list under a policy that permits, asks and denies so.
fn listed(permitted: &[&str], asked: &[&str], denied: &Denied) -> Vec<Value> {
    let permits = |operation: &str| permitted.contains(&operation);
    let consent = |operation: &str| match operation {
        _ if asked.contains(&operation) => Consent::Asked,
        "exec.read_only" => Consent::Free,
        _ if permits(operation) => Consent::Free,
        _ => Consent::Refused,
    };
    let policy = Policy { permitted: &permits, consent: &consent, denied, network: None };
    let offer = Offer { dialect: &Code, policy, limits: Limits::default() };
    offer.list(Format::Mcp).as_array().unwrap().clone()
}

fn described<'a>(tools: &'a [Value], name: &str) -> &'a str {
    let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
    tool["description"].as_str().unwrap()
}

#[test]
fn a_description_lists_the_operations_that_ask_or_are_refused() {
    let all = [
        "read",
        "list",
        "glob",
        "grep",
        "exec",
        "shell",
        "process",
        "write",
        "edit",
        "patch",
        "git.status",
        "git.diff",
        "git.log",
        "git.show",
        "git.add",
        "git.commit",
        "git.fetch",
        "git.pull",
        "git.push",
        "checkpoint.create",
        "checkpoint.list",
        "checkpoint.restore",
    ];
    let free = listed(&all, &[], &Denied::default());
    assert_eq!(free.len(), 10);
    for tool in &free {
        let description = tool["description"].as_str().unwrap();
        for word in ["approve", "Refused", "never run"] {
            assert!(!description.contains(word), "{description}");
        }
    }

    let some =
        ["read", "list", "glob", "grep", "exec", "write", "edit", "git.status", "git.add", "git.commit"];
    let denied = Denied { builtin: true, names: vec!["curl\n".to_owned()] };
    let tools = listed(&some, &["exec", "write", "git.commit"], &denied);
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["bash", "read", "write", "edit", "grep", "glob", "git"]);
    assert!(tools[0]["inputSchema"]["properties"]["run_in_background"].is_null());
    assert!(free[0]["inputSchema"]["properties"]["run_in_background"].is_object());
    let bash = described(&tools, "bash");
    for said in [
        " A person has to approve first: commands that the policy does not name.",
        " Refused here: more than one plain command (pipes, redirections, &&, variables, wildcards).",
        " One plain cat, head, tail, find or wc that only reads runs at once.",
        " never run: rm, unlink, ",
        "and their like, curl\\n. There is no network. Example: ",
    ] {
        assert!(bash.contains(said), "{said}: {bash}");
    }
    let scripts = listed(&["exec", "shell"], &["exec", "shell"], &Denied::default());
    let some = " A person has to approve first: more than one plain command (pipes, redirections, &&, variables, wildcards); commands";
    assert!(
        described(&scripts, "bash").contains(some),
        "rules may let some run: {}",
        described(&scripts, "bash")
    );
    assert!(described(&tools, "write").contains(" A person has to approve each call first. Example: "));
    assert!(!described(&tools, "edit").contains("approve"));
    let git = described(&tools, "git");
    assert!(
        git.contains(
            " A person has to approve first: commit. Refused here: diff; log; show; fetch; pull; push. Example: "
        ),
        "{git}"
    );
}
