//! The same task in every dialect: a scripted model finds a bug in a small repository, mends it, runs the repository's
//! check and commits; the workspaces end in the same state.
//!
//! Where a dialect has no tool for a step, the script says whose tool it borrows: one run takes calls of all of them.
//!
//! | dialect | borrowed, and why |
//! |---|---|
//! | `native` | the check: `bash_command` runs readers only |
//! | `fs` | the check and the commit: it has files only |
//! | `exec` | the commit: git is not in the image; files are found and mended by commands |
//! | `gateway` | the commit |
//! | `forge` | the commit; every other step is a turn of a transcript |
//! | `editor` | finding the place, the check and the commit: it has files only |

use harness::v1::call_response::{Result as Answer, Status};
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
    let response = run.call(v1::call_request::Operation::Dialect(call)).await.unwrap();
    assert_eq!(response.status(), Status::Succeeded, "{}", response.rendered);
    response.rendered
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_task_ends_in_the_same_state_in_every_dialect() {
    let daemon = Daemon::start().await;
    let mut states = Vec::new();
    for dialect in ["native", "fs", "exec", "gateway", "forge", "editor"] {
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

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_its_time_has_ended_is_told_with_that_time() {
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
            timeout: Some(wire::duration(std::time::Duration::from_secs(1))),
            operation: Some(v1::call_request::Operation::Dialect(call)),
            ..Default::default()
        };
        let answer = run.call_with(request).await.unwrap();
        let said = &answer.rendered;
        assert!(said.contains("Command timed out after 1s") && said.contains("begun"), "{dialect}: {said}");
        let told = (answer.status(), answer.error.as_ref().unwrap().reason.as_str());
        assert_eq!(told, (Status::Failed, "TIMED_OUT"), "{dialect}");
        let Some(Answer::Exec(result) | Answer::Shell(result)) = &answer.result else { panic!("no command") };
        assert_eq!((result.stdout.as_str(), result.timed_out), ("begun\n", true), "{dialect}");
    }
}
