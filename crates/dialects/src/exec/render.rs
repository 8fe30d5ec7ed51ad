//! Outcomes as `{"stdout","stderr","exit_code"}`, with an `error` in addition or instead.

use operations::{ExecResult, OpResult, Operation, Outcome, Reason};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::canonical::{PENDING, render_canonical, to_json};
use crate::tool::result_schema;

#[derive(Serialize, JsonSchema)]
struct Ended<'a> {
    stdout: &'a str,
    stderr: &'a str,
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    #[serde(skip_serializing_if = "is_zero")]
    stdout_omitted_bytes: u64,
    #[serde(skip_serializing_if = "is_zero")]
    stderr_omitted_bytes: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    hint: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ExecError<'a>>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde asks for
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Serialize)]
struct Refused<'a> {
    error: ExecError<'a>,
}

#[derive(Serialize, JsonSchema)]
struct ExecError<'a> {
    r#type: &'a str,
    message: String,
}

/// Renders an outcome.
///
/// A command that failed has run, so it has output and an exit code. Only a command that never ran, or was ended early, has an `error`.
pub(super) fn render(operation: Option<&Operation>, outcome: &Outcome) -> String {
    match outcome {
        Ok(OpResult::Exec(result) | OpResult::Shell(result)) => to_json(&ended(operation, result)),
        Ok(_) => render_canonical(outcome),
        Err(failure) => to_json(&Refused {
            error: ExecError { r#type: kind(failure.reason), message: failure.message.clone() },
        }),
    }
}

pub(super) fn render_pending(approval_id: &str) -> String {
    let message = format!("approval {approval_id}: {PENDING}");
    to_json(&Refused { error: ExecError { r#type: "PendingApproval", message } })
}

fn ended<'a>(operation: Option<&Operation>, result: &'a ExecResult) -> Ended<'a> {
    let error = operations::unfinished(result).map(|failure| ExecError {
        r#type: kind(failure.reason),
        message: if result.timed_out { timed_out(operation) } else { failure.message },
    });
    Ended {
        stdout: &result.stdout,
        stderr: &result.stderr,
        exit_code: result.exit_code,
        signal: result.signal,
        stdout_omitted_bytes: result.stdout_omitted_bytes,
        stderr_omitted_bytes: result.stderr_omitted_bytes,
        hint: &result.hint,
        error,
    }
}

/// Returns the message about a command that was ended by its timeout.
pub(crate) fn timed_out(operation: Option<&Operation>) -> String {
    match operation.and_then(Operation::command_timeout) {
        Some(timeout) => format!("Command timed out after {}s", timeout.as_secs_f64()),
        None => "Command timed out".to_owned(),
    }
}

/// Returns the kind of error under the name that this dialect's models know.
fn kind(reason: Reason) -> &'static str {
    match reason {
        Reason::InvalidArgument | Reason::InvalidFrontmatter => "InvalidArguments",
        Reason::SandboxViolation
        | Reason::PermissionDenied
        | Reason::CommandNotAllowed
        | Reason::ImageNotAllowed
        | Reason::ApprovalDenied
        | Reason::ApprovalExpired => "PermissionDenied",
        Reason::NotFound | Reason::ImageMissing => "NotFound",
        Reason::TimedOut => "Timeout",
        Reason::RateLimited
        | Reason::ReadLimit
        | Reason::WriteLimit
        | Reason::MemoryLimit
        | Reason::TenantLimit
        | Reason::DaemonStopping
        | Reason::NodeDrained
        | Reason::PreconditionFailed
        | Reason::AlreadyExists
        | Reason::WrongNode
        | Reason::ImageUnusable
        | Reason::Cancelled
        | Reason::RunNotReady
        | Reason::RunLost
        | Reason::AwaitingApproval
        | Reason::Overloaded
        | Reason::AuditUnavailable
        | Reason::EngineUnavailable
        | Reason::UpstreamFailed
        | Reason::Internal => "ExecutionFailed",
    }
}

/// Returns the JSON Schema of a result: the output of a command, an error, or both.
pub(super) fn schema() -> Value {
    let mut schema = result_schema::<Ended<'_>>();
    let ended = schema["required"].take();
    schema["required"] = json!([]);
    schema["anyOf"] = json!([{"required": ended}, {"required": ["error"]}]);
    schema
}
