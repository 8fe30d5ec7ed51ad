//! Outcomes as `ToolExecutionResult`.

use operations::{OpResult, Outcome, Reason, ToolFailure};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::canonical::{PENDING, to_json};
use crate::exec::render::timed_out;
use crate::made::Made;
use text::excerpt;

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer<'a> {
    request_id: &'a str,
    #[schemars(extend("enum" = ["success", "failure", "pending_approval"]))]
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    data: Option<&'a OpResult>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The stable reason, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    /// True if a failed call may succeed later.
    #[serde(skip_serializing_if = "Option::is_none")]
    retryable: Option<bool>,
    /// Message for a call that waits for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'static str>,
    metadata: Metadata<'a>,
    executed_at: &'a str,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    /// Time in its lane, milliseconds.
    execution_time: u64,
    resource_usage: ResourceUsage,
    #[serde(skip_serializing_if = "str::is_empty")]
    approved_by: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    approved_at: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    approval_task_id: &'a str,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ResourceUsage {
    /// CPU time of the command, milliseconds.
    cpu_time: u64,
    /// Peak resident memory of the command, bytes.
    memory_peak: u64,
    /// Always 0: calls over a network are not counted here.
    network_calls: u64,
}

/// Renders an outcome.
///
/// A command that was ended early is a failure with data. One that ended with an exit code is a success, whatever the code is.
pub(super) fn render(made: &Made<'_>, outcome: &Outcome) -> String {
    let (data, error, code, retryable) = match outcome {
        Ok(result) => match operations::cut_short(result) {
            Some(ToolFailure { reason, message, .. }) => {
                let error = match reason {
                    Reason::TimedOut => format!("Tool execution timeout: {}", timed_out(made.operation)),
                    _ => message,
                };
                (Some(result), Some(error), Some(reason.as_str()), Some(is_retryable(reason)))
            }
            None => (Some(result), None, None, None),
        },
        Err(failure) => {
            let error = message(made, failure);
            (None, Some(error), Some(failure.reason.as_str()), Some(is_retryable(failure.reason)))
        }
    };
    let status = if error.is_some() { "failure" } else { "success" };
    to_json(&Answer {
        request_id: &made.facts.call_id,
        status,
        data,
        error,
        code,
        retryable,
        message: None,
        metadata: metadata(made, &made.facts.approval_id),
        executed_at: &made.facts.executed_at,
    })
}

/// Renders a call that waits for a reviewer. It has not run, so all measurements are zero.
pub(super) fn render_pending(made: &Made<'_>, approval_id: &str) -> String {
    to_json(&Answer {
        request_id: &made.facts.call_id,
        status: "pending_approval",
        data: None,
        error: None,
        code: None,
        retryable: None,
        message: Some(PENDING),
        metadata: metadata(made, approval_id),
        executed_at: &made.facts.executed_at,
    })
}

fn metadata<'a>(made: &Made<'a>, approval_id: &'a str) -> Metadata<'a> {
    let facts = made.facts;
    Metadata {
        execution_time: facts.execution_ms,
        resource_usage: ResourceUsage {
            cpu_time: facts.cpu_time_ms,
            memory_peak: facts.peak_memory_bytes,
            network_calls: 0,
        },
        approved_by: &facts.approved_by,
        approved_at: &facts.approved_at,
        approval_task_id: approval_id,
    }
}

/// Returns the gateway's own words, if it has some, followed by the common message.
fn message(made: &Made<'_>, failure: &ToolFailure) -> String {
    let ToolFailure { reason, message, .. } = failure;
    let tool = excerpt(made.tool);
    match reason {
        Reason::NotFound if made.operation.is_none() => format!("Tool not found: {tool}: {message}"),
        Reason::PermissionDenied => {
            format!("Agent {} lacks permission for {tool}: {message}", excerpt(&made.facts.agent_id))
        }
        Reason::RateLimited => format!("Rate limit exceeded for {tool}: {message}"),
        Reason::TimedOut => format!("Tool execution timeout: {message}"),
        _ => message.clone(),
    }
}

/// Returns true if the cause may be gone when the call is made again.
fn is_retryable(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::RateLimited
            | Reason::TimedOut
            | Reason::RunNotReady
            | Reason::AwaitingApproval
            | Reason::Overloaded
            | Reason::AuditUnavailable
            | Reason::EngineUnavailable
    )
}
