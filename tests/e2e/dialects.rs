//! The same task in every dialect: a scripted model finds a bug in a small repository, mends it, runs the repository's
//! check and commits; the workspaces end in the same state.
//!
//! Where a dialect has no tool for a step, the script says whose tool it borrows: one run takes calls of all of them.
//!
//! | dialect | borrowed, and why |
//! |---|---|
//! | `code` | nothing |
//! | `native` | the check: `bash_command` runs readers only |
//! | `fs` | the check and the commit: it has files only |
//! | `exec` | the commit: git is not in the image; files are found and mended by commands |
//! | `gateway` | the commit |
//! | `forge` | the commit; every other step is a turn of a transcript |
//! | `editor` | finding the place, the check and the commit: it has files only |

use harness::v1::call_response::Status;
use harness::v1::result::Kind as Answer;
use harness::{Daemon, RunHandle, git, v1};
use serde_json::{Value, json};

const CHECK: &str =
    ". ./src/limit.sh\n[ \"$limit\" = 10 ] || { echo \"limit is $limit, not 10\"; exit 1; }\necho fine\n";
const FILES: [(&str, &str); 3] = [
    ("README.md", "# Pump\n\nIts limit is 10.\n"),
    ("src/limit.sh", "# how often\nlimit=11\n"),
    ("check.sh", CHECK),
];

/// One thing that the model says, and what it reads then.
struct Line {
    dialect: &'static str,
    tool: &'static str,
    arguments: Value,
    reads: &'static str,
}

fn say(dialect: &'static str, tool: &'static str, arguments: Value, reads: &'static str) -> Line {
    Line { dialect, tool, arguments, reads }
}

fn check_fails() -> Line {
    say("exec", "exec", json!({"command": "sh", "args": ["check.sh"]}), r#""exit_code":1"#)
}

fn check_passes() -> Line {
    say(
        "exec",
        "exec",
        json!({"command": "sh", "args": ["check.sh"]}),
        r#"{"stdout":"fine\n","stderr":"","exit_code":0}"#,
    )
}

fn commit() -> [Line; 3] {
    [
        say("native", "git_operation", json!({"operation": "diff"}), "+limit=10"),
        say("native", "git_operation", json!({"operation": "add", "args": ["."]}), "(no output)"),
        say(
            "native",
            "git_operation",
            json!({"operation": "commit", "args": ["-m", "Mend the limit"]}),
            "Mend the limit",
        ),
    ]
}

fn script(dialect: &str) -> Vec<Line> {
    let own = match dialect {
        "code" => vec![
            say("code", "grep", json!({"pattern": "limit="}), "/workspace/src/limit.sh\n"),
            say("code", "read", json!({"file_path": "/workspace/src/limit.sh"}), "     2\tlimit=11\n"),
            say("code", "bash", json!({"command": "sh check.sh"}), "limit is 11, not 10\n[exit code 1]"),
            say(
                "code",
                "edit",
                json!({"file_path": "src/limit.sh", "old_string": "limit=11", "new_string": "limit=10"}),
                "Edited /workspace/src/limit.sh. The lines are now:\n     1\t# how often\n     2\tlimit=10\n",
            ),
            say("code", "bash", json!({"command": "sh check.sh | cat"}), "fine\n[exit code 0]"),
            say("code", "git", json!({"operation": "status"}), " M src/limit.sh"),
        ],
        "native" => vec![
            say("native", "grep", json!({"pattern": "limit="}), "@project/src/limit.sh:2:limit=11"),
            say("native", "read_file", json!({"path": "src/limit.sh"}), "limit=11"),
            check_fails(),
            say(
                "native",
                "edit_file",
                json!({"command": "str_replace", "path": "src/limit.sh", "old_str": "limit=11", "new_str": "limit=10"}),
                "+limit=10",
            ),
            check_passes(),
        ],
        "fs" => vec![
            say(
                "fs",
                "fs.search",
                json!({"path": "@project", "pattern": "limit="}),
                r#""line":2,"text":"limit=11""#,
            ),
            say(
                "fs",
                "fs_read",
                json!({"path": "@project/src/limit.sh"}),
                r##""content":"# how often\nlimit=11\n""##,
            ),
            check_fails(),
            say(
                "fs",
                "fs.write",
                json!({"path": "@project/src/limit.sh", "content": "# how often\nlimit=10\n"}),
                r#""bytesWritten":21"#,
            ),
            check_passes(),
        ],
        "exec" => vec![
            say("exec", "exec", json!({"command": "find", "args": ["src", "-type", "f"]}), "src/limit.sh"),
            say("exec", "exec", json!({"command": "cat", "args": ["limit.sh"], "cwd": "src"}), "limit=11"),
            check_fails(),
            say(
                "exec",
                "exec",
                json!({"command": "sh", "args": ["-c", "echo '# how often' > src/limit.sh; echo limit=10 >> src/limit.sh"]}),
                r#""exit_code":0"#,
            ),
            check_passes(),
        ],
        "gateway" => vec![
            say("gateway", "list_directory", json!({}), "check.sh"),
            say("gateway", "search_code", json!({"pattern": "/limit=\\d+/"}), r#""text":"limit=11""#),
            say("gateway", "read_file", json!({"path": "src/limit.sh"}), r#""status":"success""#),
            say("gateway", "run_command", json!({"command": "sh", "args": ["check.sh"]}), r#""exit_code":1"#),
            say(
                "gateway",
                "write_file",
                json!({"path": "src/limit.sh", "content": "# how often\nlimit=10\n"}),
                r#""bytes_written":21"#,
            ),
            say(
                "gateway",
                "run_command",
                json!({"command": "sh", "args": ["check.sh"]}),
                r#""stdout":"fine\n""#,
            ),
        ],
        "forge" => vec![
            say("forge", "glob", json!({"pattern": "**/*.sh"}), "@project/src/limit.sh\n"),
            say("forge", "grep", json!({"pattern": "limit="}), "@project/src/limit.sh:2:limit=11\n"),
            say("forge", "read", json!({"path": "src/limit.sh"}), "limit=11\n"),
            say("forge", "bash", json!({"command": "sh check.sh"}), "exit_code: 1\n"),
            say(
                "forge",
                "edit",
                json!({"path": "src/limit.sh", "oldString": "limit=11", "newString": "limit=10"}),
                "replacements: 1\n",
            ),
            say("forge", "bash", json!({"command": "sh check.sh && echo done"}), "fine\ndone\n"),
        ],
        "editor" => vec![
            say("native", "grep", json!({"pattern": "limit="}), "src/limit.sh:2:limit=11"),
            say("editor", "view", json!({"path": "src/"}), "limit.sh\n"),
            say(
                "editor",
                "view",
                json!({"path": "src/limit.sh", "view_range": [1, -1]}),
                "     2\tlimit=11\n",
            ),
            check_fails(),
            say(
                "editor",
                "str_replace_based_edit_tool",
                json!({"command": "str_replace", "path": "src/limit.sh", "old_str": "limit=11", "new_str": "limit=10"}),
                "The text was replaced in @project/src/limit.sh",
            ),
            check_passes(),
        ],
        other => panic!("{other}"),
    };
    own.into_iter().chain(commit()).collect()
}

/// What the model reads.
async fn answer(run: &mut RunHandle, line: &Line) -> String {
    let arguments = line.arguments.to_string();
    if line.dialect == "forge" {
        let request = v1::StepTranscriptRequest {
            run_id: run.id().to_owned(),
            session_id: "task".to_owned(),
            text: format!("Next:\n```forge:{}\n{arguments}\n```\n", line.tool),
            ..Default::default()
        };
        let step = run.clients.tools.step_transcript(request).await.unwrap().into_inner();
        assert_eq!(
            (step.status(), step.call_status.as_str()),
            (v1::step_transcript_response::Status::ToolResult, "SUCCEEDED")
        );
        return step.message;
    }
    let call = v1::DialectCall {
        dialect: line.dialect.to_owned(),
        name: line.tool.to_owned(),
        arguments_json: arguments,
    };
    let response = run.call(call).await.unwrap();
    assert_eq!(response.status(), Status::Succeeded, "{}", response.rendered);
    response.rendered
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_task_ends_in_the_same_state_in_every_dialect() {
    let daemon = Daemon::start().await;
    let mut states = Vec::new();
    for dialect in ["code", "native", "fs", "exec", "gateway", "forge", "editor"] {
        let workspace = daemon.repository(dialect, &FILES);
        let mut run = daemon.run("open", &workspace).await;
        for line in script(dialect) {
            let read = answer(&mut run, &line).await;
            assert!(read.contains(line.reads), "{dialect}: {} {} reads {read}", line.tool, line.arguments);
        }
        run.stop().await;
        assert_eq!(git(&workspace, &["status", "--porcelain"]), "", "{dialect}");
        states.push([
            git(&workspace, &["rev-parse", "HEAD^{tree}"]),
            git(&workspace, &["log", "--format=%s"]),
            std::fs::read_to_string(workspace.join("src/limit.sh")).unwrap(),
        ]);
    }
    assert_eq!(states[0][1], "Mend the limit\nfirst\n");
    assert_eq!(states[0][2], "# how often\nlimit=10\n");
    assert!(states.iter().all(|state| *state == states[0]), "{states:?}");
}

/// Names of arguments that nobody uses in a sentence.
const ARGUMENTS: [&str; 24] = [
    "replace_all",
    "replaceAll",
    "old_str",
    "oldString",
    "new_str",
    "newString",
    "start_line",
    "end_line",
    "startLine",
    "endLine",
    "view_range",
    "offset",
    "if_match_sha256",
    "ifMatchSha256",
    "create_only",
    "max_matches",
    "maxMatches",
    "max_results",
    "maxResults",
    "max_entries",
    "maxEntries",
    "context_lines",
    "encoding",
    "insert_text",
];

#[tokio::test(flavor = "multi_thread")]
async fn hints_name_only_arguments_of_their_tool() {
    let daemon = Daemon::start().await;
    let long = "line of text\n".repeat(9_000);
    let files = [("a.txt", "x\nx\n"), ("long.txt", long.as_str()), ("d/b.txt", "b\n")];
    let workspace = daemon.workspace("w", &files);
    std::fs::write(workspace.join("binary"), b"\0\x01\xff").unwrap();
    for number in 0..250 {
        std::fs::write(workspace.join(format!("d/{number}")), "x\n").unwrap();
    }
    let mut run = daemon.run("open", &workspace).await;
    let wrong = "0f".repeat(32);
    for (dialect, tool, arguments, told) in [
        ("forge", "edit", json!({"path": "a.txt", "oldString": "x", "newString": "y"}), "set replaceAll to"),
        (
            "native",
            "edit_file",
            json!({"command": "str_replace", "path": "a.txt", "old_str": "x", "new_str": "y"}),
            "2 times",
        ),
        ("editor", "str_replace", json!({"path": "a.txt", "old_str": "x", "new_str": "y"}), "2 times"),
        (
            "native",
            "edit_file",
            json!({"command": "str_replace", "path": "a.txt", "old_str": "z", "new_str": "y"}),
            "not found",
        ),
        (
            "native",
            "edit_file",
            json!({"command": "create", "path": "a.txt", "content": ""}),
            "already exists",
        ),
        ("editor", "create", json!({"path": "a.txt", "file_text": ""}), "already exists"),
        ("fs", "fs.write", json!({"path": "a.txt", "content": "", "ifMatchSha256": wrong}), "SHA-256"),
        ("fs", "fs.write", json!({"path": "new", "content": "", "ifMatchSha256": wrong}), "does not exist"),
        (
            "code",
            "edit",
            json!({"file_path": "a.txt", "old_string": "x", "new_string": "y"}),
            "set replace_all to",
        ),
        ("code", "read", json!({"file_path": "d"}), "put a slash at the end of its path"),
        ("code", "read", json!({"file_path": "long.txt"}), "go on with offset"),
        ("code", "grep", json!({"pattern": "line", "output_mode": "content"}), "raise head_limit"),
        ("fs", "fs.read", json!({"path": "d"}), "list it with fs.list"),
        ("native", "read_file", json!({"path": "d"}), "list it with list_files"),
        ("gateway", "read_file", json!({"path": "d"}), "list it with list_directory"),
        ("editor", "view", json!({"path": "d"}), "put a slash at the end of its path"),
        ("forge", "read", json!({"path": "d"}), "is a directory"),
        ("fs", "fs.list", json!({"path": "a.txt"}), "read it with fs.read"),
        ("native", "list_files", json!({"path": "a.txt"}), "read it with read_file"),
        ("gateway", "list_directory", json!({"path": "a.txt"}), "read it with read_file"),
        ("gateway", "read_file", json!({"path": "long.txt"}), "continue with line"),
        ("gateway", "read_file", json!({"path": "binary"}), "not UTF-8 text"),
        ("gateway", "list_directory", json!({"path": "d"}), "251 entries"),
        ("gateway", "search_code", json!({"pattern": "line"}), "stopped after"),
        ("native", "read_file", json!({"path": "long.txt"}), "go on with"),
        ("fs", "fs.read", json!({"path": "long.txt"}), "read on with"),
        ("forge", "read", json!({"path": "long.txt", "limit": 2_000}), "left_out"),
        ("editor", "view", json!({"path": "long.txt"}), "go on with view_range"),
        ("fs", "fs.search", json!({"path": "@project", "pattern": "line"}), "more matches"),
        ("native", "grep", json!({"pattern": "line"}), "stopped after"),
    ] {
        let call = v1::DialectCall {
            dialect: dialect.to_owned(),
            name: tool.to_owned(),
            arguments_json: arguments.to_string(),
        };
        let said = run.call(call).await.unwrap().rendered;
        assert!(said.contains(told), "{dialect} {tool}: {said}");
        // What it says beside the file's content.
        let words: Vec<&str> = said.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let own = arguments_of(dialect, tool);
        for name in ARGUMENTS.iter().filter(|name| !own.contains(name)) {
            // The names of a result's own facts are no arguments.
            let fact = said.contains(&format!("\"{name}\":")) || said.contains(&format!("{name}: "));
            assert!(fact || !words.contains(name), "{dialect} {tool} has no {name}: {said}");
        }
    }
}

/// Those that a tool has.
fn arguments_of(dialect: &str, tool: &str) -> &'static [&'static str] {
    match (dialect, tool) {
        ("forge", "edit") => &["oldString", "newString", "replaceAll"],
        ("code", "edit") => &["replace_all"],
        ("code" | "forge", "read") => &["offset"],
        ("native", "edit_file") | ("editor", "str_replace") => &["old_str", "new_str"],
        ("native" | "gateway", "read_file") => &["start_line", "end_line"],
        ("editor", "view") => &["view_range"],
        ("fs", "fs.write") => &["ifMatchSha256"],
        ("fs", "fs.read") => &["startLine", "endLine"],
        ("fs", "fs.search") => &["maxMatches"],
        ("gateway", "search_code") => &["context_lines"],
        _ => &[],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_timed_out_is_rendered_with_its_timeout() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run("open", &daemon.workspace("w", &[])).await;
    for (dialect, tool, arguments) in [
        ("exec", "exec", json!({"command": "sh", "args": ["-c", "echo begun; sleep 60"]})),
        ("gateway", "run_command", json!({"command": "sh", "args": ["-c", "echo begun; sleep 60"]})),
        ("forge", "bash", json!({"command": "echo begun; sleep 60"})),
    ] {
        let call = v1::DialectCall {
            dialect: dialect.to_owned(),
            name: tool.to_owned(),
            arguments_json: arguments.to_string(),
        };
        let request = v1::CallRequest {
            timeout: Some(wire::duration(std::time::Duration::from_secs(5))),
            request: Some(call.into()),
            ..Default::default()
        };
        let answer = run.call_with(request).await.unwrap();
        let said = &answer.rendered;
        assert!(said.contains("Command timed out after 5s") && said.contains("begun"), "{dialect}: {said}");
        let told = (answer.status(), answer.error.as_ref().unwrap().reason.as_str());
        assert_eq!(told, (Status::Failed, "TIMED_OUT"), "{dialect}");
        let Some(Answer::Exec(result) | Answer::Shell(result)) = answer.kind() else { panic!("no command") };
        assert_eq!((result.stdout.as_str(), result.timed_out), ("begun\n", true), "{dialect}");
    }
}
