use std::time::Duration;

use operations::{ExecResult, OpResult, Operation, Outcome, Reason, ToolFailure, WriteResult};
use serde_json::{Value, json};

use super::Gateway;
use crate::dialect::Dialect as _;
use crate::failure::ParseFailure;
use crate::limits::Limits;
use crate::made::{Facts, Made};

fn parse(tool: &str, arguments: &Value) -> Result<Operation, ParseFailure> {
    Gateway.parse(tool, &arguments.to_string(), &Limits::default())
}

fn facts() -> Facts {
    Facts {
        call_id: "c-1".into(),
        agent_id: "alice".into(),
        execution_ms: 12,
        cpu_time_ms: 3,
        peak_memory_bytes: 4_096,
        executed_at: "2026-01-02T03:04:05.006Z".into(),
        ..Facts::default()
    }
}

fn render(tool: &str, operation: Option<&Operation>, outcome: &Outcome) -> Value {
    let facts = facts();
    serde_json::from_str(&Gateway.render(&Made::new(tool, operation).with(&facts), outcome)).unwrap()
}

fn failed(tool: &str, reason: Reason) -> Value {
    let operation = parse("read_file", &json!({"path": "a"})).unwrap();
    render(tool, Some(&operation), &Err(ToolFailure::new(reason, "why")))
}

#[test]
fn the_tools_have_the_gateway_s_names() {
    let names: Vec<&str> = Gateway.tools().iter().map(|tool| tool.name).collect();
    assert_eq!(
        names,
        ["read_file", "list_directory", "search_code", "write_file", "delete_file", "run_command"]
    );
}

#[test]
fn arguments_become_operations() {
    for (tool, arguments, operation) in [
        ("read_file", json!({"path": "a", "start_line": 2, "end_line": 3}), "read"),
        ("list_directory", json!({}), "list"),
        ("search_code", json!({"pattern": "x", "glob": "*.rs", "context_lines": 0}), "grep"),
        ("write_file", json!({"path": "a", "content": ""}), "write"),
        ("delete_file", json!({"path": "a"}), "delete"),
        ("run_command", json!({"command": "ls", "args": ["-l"], "cwd": "src"}), "exec"),
    ] {
        assert_eq!(parse(tool, &arguments).unwrap().name(), operation);
    }
    let Ok(Operation::Exec(exec)) = parse("run_command", &json!({"command": "ls", "timeout_ms": 5_000}))
    else {
        panic!("not an exec")
    };
    assert_eq!(exec.timeout, Duration::from_secs(5));
    for (tool, arguments, field) in [
        ("delete_file", json!({"path": "."}), "path"),
        ("run_command", json!({"command": "ls", "timeout_ms": 120_001}), "timeout_ms"),
        ("search_code", json!({"pattern": "x", "context_lines": 21}), "context_lines"),
        ("write_file", json!({"path": "a"}), "content"),
    ] {
        assert_eq!(parse(tool, &arguments).unwrap_err().field.as_deref(), Some(field), "{arguments}");
    }
}

#[test]
fn run_command_has_thirty_seconds() {
    let operation = parse("run_command", &json!({"command": "ls"})).unwrap();
    assert_eq!(operation.command_timeout(), Some(Duration::from_secs(30)));
}

#[test]
fn a_success_has_data_and_metadata() {
    let written =
        WriteResult { path: "@project/a".into(), bytes_written: 2, created: true, ..WriteResult::default() };
    assert_eq!(
        render("write_file", None, &Ok(OpResult::Write(written))),
        json!({
            "requestId": "c-1", "status": "success",
            "data": {
                "path": "@project/a", "bytes_written": 2, "sha256_before": "", "sha256_after": "", "created": true,
            },
            "metadata": {
                "executionTime": 12, "resourceUsage": {"cpuTime": 3, "memoryPeak": 4096, "networkCalls": 0},
            },
            "executedAt": "2026-01-02T03:04:05.006Z",
        })
    );
}

#[test]
fn metadata_names_the_approver() {
    let facts = Facts {
        approval_id: "a-1".into(),
        approved_by: "uid:7".into(),
        approved_at: "2026-01-02T03:04:00Z".into(),
        ..facts()
    };
    let made = Made::new("write_file", None).with(&facts);
    let text = Gateway.render(&made, &Ok(OpResult::Write(WriteResult::default())));
    let metadata = &serde_json::from_str::<Value>(&text).unwrap()["metadata"];
    assert_eq!(
        (&metadata["approvedBy"], &metadata["approvedAt"]),
        (&json!("uid:7"), &json!("2026-01-02T03:04:00Z"))
    );
    assert_eq!(metadata["approvalTaskId"], "a-1");
}

#[test]
fn a_failure_has_error_code_and_whether_to_try_again() {
    let failure = failed("read_file", Reason::PreconditionFailed);
    assert_eq!(
        (&failure["status"], &failure["error"], &failure["code"], &failure["retryable"]),
        (&json!("failure"), &json!("why"), &json!("PRECONDITION_FAILED"), &json!(false))
    );
    assert_eq!(failure.get("data"), None);
    let retryable: Vec<Reason> =
        Reason::ALL.into_iter().filter(|reason| failed("t", *reason)["retryable"] == true).collect();
    assert_eq!(
        retryable,
        [
            Reason::RateLimited,
            Reason::AwaitingApproval,
            Reason::TimedOut,
            Reason::RunNotReady,
            Reason::Overloaded,
            Reason::AuditUnavailable,
            Reason::EngineUnavailable
        ]
    );
}

#[test]
fn a_tool_that_does_not_exist_is_not_found() {
    let failure = parse("get_definition", &json!({})).unwrap_err();
    let rendered = render("get_definition", None, &Err(failure.into()));
    let error = rendered["error"].as_str().unwrap();
    assert!(
        error.starts_with("Tool not found: get_definition: ") && error.contains("run_command"),
        "{error}"
    );
    // A file that is not there is something else.
    assert_eq!(failed("read_file", Reason::NotFound)["error"], "why");
}

#[test]
fn a_lacking_permission_names_agent_and_tool() {
    assert_eq!(
        failed("write_file", Reason::PermissionDenied)["error"],
        "Agent alice lacks permission for write_file: why"
    );
}

#[test]
fn a_rate_limit_names_the_tool() {
    assert_eq!(failed("read_file", Reason::RateLimited)["error"], "Rate limit exceeded for read_file: why");
}

#[test]
fn a_timeout_is_a_failure_that_keeps_the_output() {
    let operation = parse("run_command", &json!({"command": "sleep"})).unwrap();
    let late = ExecResult { stdout: "so far".into(), timed_out: true, ..ExecResult::default() };
    let rendered = render("run_command", Some(&operation), &Ok(OpResult::Exec(late)));
    assert_eq!(
        (&rendered["status"], &rendered["error"], &rendered["data"]["stdout"]),
        (&json!("failure"), &json!("Tool execution timeout: Command timed out after 30s"), &json!("so far"))
    );
    assert_eq!(failed("read_file", Reason::TimedOut)["error"], "Tool execution timeout: why");
}

#[test]
fn a_command_that_failed_is_a_tool_that_succeeded() {
    let failed = ExecResult { exit_code: Some(3), ..ExecResult::default() };
    let rendered = render("run_command", None, &Ok(OpResult::Exec(failed)));
    assert_eq!((&rendered["status"], &rendered["data"]["exit_code"]), (&json!("success"), &json!(3)));
}

#[test]
fn a_waiting_call_names_its_reason() {
    let facts = Facts { execution_ms: 0, cpu_time_ms: 0, peak_memory_bytes: 0, ..facts() };
    let text = Gateway.render_pending(&Made::new("write_file", None).with(&facts), "a-1");
    let pending: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(pending["status"], "pending_approval");
    assert_eq!(
        pending["metadata"],
        json!({
            "executionTime": 0, "resourceUsage": {"cpuTime": 0, "memoryPeak": 0, "networkCalls": 0},
            "approvalTaskId": "a-1",
        })
    );
    assert_eq!(pending.get("error"), None);
}
