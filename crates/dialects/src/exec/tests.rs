use std::time::Duration;

use operations::{ExecResult, OpResult, Operation, Outcome, Reason, ToolFailure};
use serde_json::{Value, json};

use super::Exec;
use crate::dialect::Dialect as _;
use crate::failure::ParseFailure;
use crate::limits::Limits;
use crate::made::Made;

fn parse(arguments: &Value) -> Result<Operation, ParseFailure> {
    Exec.parse("exec", &arguments.to_string(), &Limits::default())
}

fn exec(arguments: &Value) -> operations::Exec {
    match parse(arguments) {
        Ok(Operation::Exec(exec)) => exec,
        other => panic!("{other:?}"),
    }
}

fn render(outcome: &Outcome) -> Value {
    serde_json::from_str(&Exec.render(&Made::new("exec", None), outcome)).unwrap()
}

#[test]
fn the_tool_is_called_exec_and_its_schema_is_the_seed_s() {
    let schema = Exec.tool("exec").unwrap().schema(&Limits::default());
    assert_eq!(Exec.tools().len(), 1);
    assert_eq!(schema["required"], json!(["command", "args"]));
    assert_eq!(schema["properties"]["command"]["type"], "string");
    assert_eq!(schema["properties"]["args"]["items"], json!({"type": "string"}));
    assert_eq!(schema["properties"]["cwd"]["type"], "string");
    assert_eq!(schema["additionalProperties"], false);
}

#[test]
fn command_args_and_cwd_become_an_exec() {
    let made = exec(&json!({"command": "cargo", "args": ["test", "--lib"], "cwd": "crates/parser"}));
    assert_eq!((made.command.as_str(), made.args), ("cargo", vec!["test".to_owned(), "--lib".to_owned()]));
    assert_eq!(made.cwd.to_string(), "@project/crates/parser");
    let here = exec(&json!({"command": "pwd", "args": []}));
    assert_eq!(here.cwd.to_string(), "@project");
}

#[test]
fn a_command_has_thirty_seconds() {
    assert_eq!(exec(&json!({"command": "pwd", "args": []})).timeout, Duration::from_secs(30));
}

#[test]
fn arguments_are_a_list_of_strings() {
    for bad in [
        json!({"command": "ls"}),
        json!({"command": "ls", "args": "-l"}),
        json!({"command": "ls", "args": ["-l", 7]}),
        json!({"command": "ls", "args": ["-l", null]}),
    ] {
        let failure = parse(&bad).unwrap_err();
        assert_eq!((failure.reason, failure.field.as_deref()), (Reason::InvalidArgument, Some("args")));
    }
    let failure = parse(&json!({"args": []})).unwrap_err();
    assert_eq!(failure.field.as_deref(), Some("command"));
}

#[test]
fn shell_syntax_is_literal() {
    let made = exec(&json!({"command": "echo", "args": ["; rm -rf /", "|", "&&", "$(id)", "`id`", "*"]}));
    assert_eq!(made.args, ["; rm -rf /", "|", "&&", "$(id)", "`id`", "*"]);
    // As a name it is looked up, never split.
    assert_eq!(exec(&json!({"command": "ls -la", "args": []})).command, "ls -la");
    assert!(parse(&json!({"command": "ls\0", "args": []})).is_err());
    let relative = exec(&json!({"command": "bin/x", "args": [], "cwd": "sub"}));
    assert_eq!((relative.command.as_str(), &*relative.program()), ("bin/x", "/workspace/sub/bin/x"));
}

#[test]
fn the_working_directory_is_checked_as_paths_are() {
    for bad in ["../../../etc", "/etc", "C:\\", "@home/x", "a\0"] {
        let failure = parse(&json!({"command": "ls", "args": [], "cwd": bad})).unwrap_err();
        assert_eq!(
            (failure.reason, failure.field.as_deref()),
            (Reason::SandboxViolation, Some("cwd")),
            "{bad}"
        );
        assert_eq!(render(&Err(failure.into()))["error"]["type"], "PermissionDenied");
    }
}

#[test]
fn an_argument_that_the_schema_does_not_name_is_refused() {
    let arguments = json!({"command": "ls", "args": [], "env": {"A": "1"}});
    let failure = Exec.parse("exec", &arguments.to_string(), &Limits::default()).unwrap_err();
    assert_eq!((failure.reason, failure.field.as_deref()), (Reason::InvalidArgument, Some("env")));
}

#[test]
fn a_result_is_stdout_stderr_and_exit_code() {
    let done = ExecResult { stdout: "a\n".into(), exit_code: Some(0), ..ExecResult::default() };
    let text = Exec.render(&Made::new("exec", None), &Ok(OpResult::Exec(done)));
    assert_eq!(text, r#"{"stdout":"a\n","stderr":"","exit_code":0}"#);
}

#[test]
fn a_failed_command_still_returns_its_output() {
    let failed = ExecResult {
        stdout: "some".into(),
        stderr: "no such test\n".into(),
        exit_code: Some(101),
        ..ExecResult::default()
    };
    assert_eq!(
        render(&Ok(OpResult::Exec(failed))),
        json!({"stdout": "some", "stderr": "no such test\n", "exit_code": 101})
    );
}

#[test]
fn omitted_bytes_and_signal_are_rendered() {
    let ended = ExecResult {
        signal: Some(9),
        stdout_omitted_bytes: 7,
        stderr_omitted_bytes: 8,
        hint: "less".into(),
        ..ExecResult::default()
    };
    assert_eq!(
        render(&Ok(OpResult::Exec(ended))),
        json!({
            "stdout": "", "stderr": "", "exit_code": null, "signal": 9, "stdout_omitted_bytes": 7,
            "stderr_omitted_bytes": 8, "hint": "less",
        })
    );
}

#[test]
fn a_timeout_is_rendered_with_the_output_so_far() {
    let operation = parse(&json!({"command": "sleep", "args": ["60"]})).unwrap();
    let late =
        ExecResult { stdout: "so far".into(), timed_out: true, signal: Some(15), ..ExecResult::default() };
    let text = Exec.render(&Made::new("exec", Some(&operation)), &Ok(OpResult::Exec(late)));
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["error"], json!({"type": "Timeout", "message": "Command timed out after 30s"}));
    assert_eq!((&value["stdout"], &value["exit_code"]), (&json!("so far"), &Value::Null));
}

#[test]
fn a_denied_command_is_named() {
    let failure = ToolFailure::new(Reason::CommandNotAllowed, "Command not allowed: rm");
    assert_eq!(
        render(&Err(failure)),
        json!({"error": {"type": "PermissionDenied", "message": "Command not allowed: rm"}})
    );
}

#[test]
fn every_reason_has_an_error_kind() {
    for reason in Reason::ALL {
        let rendered = render(&Err(ToolFailure::new(reason, "why")));
        let kind = rendered["error"]["type"].as_str().unwrap().to_owned();
        let known = ["InvalidArguments", "ExecutionFailed", "PermissionDenied", "NotFound", "Timeout"];
        assert!(known.contains(&kind.as_str()), "{kind}");
        assert_eq!(rendered["error"]["message"], "why");
    }
    let pending: Value = serde_json::from_str(&Exec.render_pending(&Made::new("exec", None), "a-1")).unwrap();
    assert_eq!(pending["error"]["type"], "PendingApproval");
    assert!(pending["error"]["message"].as_str().unwrap().starts_with("approval a-1: "));
}

/// The list is applied to the operation, whichever dialect it came from.
#[test]
fn every_command_of_the_seed_s_list_is_denied() {
    for name in ["rm", "sudo", "dd", "mkfs", "shutdown", "reboot", "passwd", "visudo"] {
        for form in [name.to_owned(), name.to_uppercase(), format!("/bin/{name}")] {
            let made = exec(&json!({"command": form, "args": []}));
            assert!(operations::deny::is_denied(&made.command), "{form}");
        }
    }
    assert!(!operations::deny::is_denied("ls"));
}
