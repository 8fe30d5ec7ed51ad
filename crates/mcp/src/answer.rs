//! Builds the answers to a client: results that a model can read, and JSON-RPC errors only if there is no result.

use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use wire::v1::CallResponse;
use wire::v1::call_response::Status as CallStatus;

/// Returns the result of a tool.
///
/// `structured`: the tool has an output schema, which the rendered text matches. `note` is a message to the model after the result.
pub(crate) fn answer(response: &CallResponse, structured: bool, note: Option<String>) -> CallToolResult {
    let status = response.status();
    let mut content = vec![ContentBlock::text(response.rendered.clone())];
    content.extend(note.map(ContentBlock::text));
    let mut result = match status {
        CallStatus::Failed | CallStatus::Denied => CallToolResult::error(content),
        _ => CallToolResult::success(content),
    };
    if structured {
        let value: Option<Value> = serde_json::from_str(&response.rendered).ok();
        result.structured_content = value.filter(Value::is_object);
    }
    result.with_meta(Some(meta(response)))
}

/// Returns the call's id and status, for programs.
fn meta(response: &CallResponse) -> MetaObject {
    let mut meta = MetaObject::new();
    meta.insert("io.cofferdam/callId".to_owned(), response.call_id.clone().into());
    meta.insert("io.cofferdam/status".to_owned(), response.status().as_str_name().into());
    if !response.approval_id.is_empty() {
        meta.insert("io.cofferdam/approvalId".to_owned(), response.approval_id.clone().into());
    }
    if let Some(error) = &response.error {
        meta.insert("io.cofferdam/reason".to_owned(), error.reason.clone().into());
    }
    meta
}

/// Returns the answer to a call that could not be made. The model gets the reason if it can act on it.
pub(crate) fn refused(status: &Status) -> Result<CallToolResult, ErrorData> {
    match reason(status) {
        Some(reason) if !is_dead(status) => {
            let text = format!("{} ({reason})", status.message());
            Ok(CallToolResult::error(vec![ContentBlock::text(text)]))
        }
        _ => Err(error(status)),
    }
}

/// Returns the error of a request that has no result to carry the reason.
pub(crate) fn error(status: &Status) -> ErrorData {
    let Some(reason) = reason(status) else {
        // The transport's message may name paths of the host.
        tracing::debug!(%status, "the daemon did not answer");
        return ErrorData::internal_error("the daemon cannot be reached, or did not answer", None);
    };
    let data = Some(json!({ "reason": reason }));
    let message = status.message().to_owned();
    match status.code() {
        Code::NotFound => ErrorData::resource_not_found(message, data),
        Code::InvalidArgument => ErrorData::invalid_params(message, data),
        _ => ErrorData::internal_error(message, data),
    }
}

/// Returns true if the token is not valid, or no longer: no call can be made with it.
fn is_dead(status: &Status) -> bool {
    matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated)
}

/// Returns the stable reason, if the daemon itself has answered.
fn reason(status: &Status) -> Option<String> {
    status.get_details_error_info().map(|info| info.reason)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rmcp::model::ErrorCode;
    use serde_json::json;
    use tonic::{Code, Status};
    use tonic_types::{ErrorDetails, StatusExt as _};
    use wire::v1::{CallResponse, ToolFailure, call_response};

    use super::{answer, error, refused};

    fn response(status: call_response::Status, rendered: &str) -> CallResponse {
        let failed = status == call_response::Status::Failed;
        let error = failed.then(|| ToolFailure { reason: "NOT_FOUND".to_owned(), ..Default::default() });
        CallResponse {
            call_id: "c".to_owned(),
            status: status.into(),
            rendered: rendered.to_owned(),
            error,
            ..Default::default()
        }
    }

    #[test]
    fn failed_call_is_an_error_result() {
        let failed = answer(&response(call_response::Status::Failed, "no such file"), false, None);
        assert_eq!(
            serde_json::to_value(&failed).unwrap(),
            json!({
                "resultType": "complete",
                "content": [{"type": "text", "text": "no such file"}],
                "isError": true,
                "_meta": {"io.cofferdam/callId": "c", "io.cofferdam/status": "FAILED", "io.cofferdam/reason": "NOT_FOUND"},
            })
        );
    }

    #[test]
    fn structure_is_given_where_there_is_a_schema_and_an_object() {
        let ok = |rendered, structured| {
            answer(&response(call_response::Status::Succeeded, rendered), structured, Some("n".to_owned()))
        };
        let value = ok(r#"{"ok":true}"#, true);
        assert_eq!(value.structured_content, Some(json!({"ok": true})));
        assert_eq!((value.content.len(), value.is_error), (2, Some(false)));
        assert_eq!(ok(r#"{"ok":true}"#, false).structured_content, None);
        assert_eq!(ok("[1]", true).structured_content, None);
        assert_eq!(ok("text", true).structured_content, None);
    }

    #[test]
    fn actionable_refusals_are_results_and_others_errors() {
        let status = |code, reason: &str| {
            let mut details = ErrorDetails::new();
            details.set_error_info(reason, "cofferdam", HashMap::new());
            Status::with_error_details(code, "said", details)
        };
        let result = refused(&status(Code::ResourceExhausted, "OVERLOADED")).unwrap();
        assert_eq!(serde_json::to_value(&result).unwrap()["content"][0]["text"], "said (OVERLOADED)");
        let dead = refused(&status(Code::PermissionDenied, "PERMISSION_DENIED")).unwrap_err();
        assert_eq!((dead.code, dead.message.as_ref()), (ErrorCode::INTERNAL_ERROR, "said"));
        assert_eq!(error(&status(Code::NotFound, "NOT_FOUND")).code, ErrorCode::RESOURCE_NOT_FOUND);
        let gone = refused(&Status::unavailable("connect /run/secret.sock")).unwrap_err();
        assert!(!gone.message.contains("secret"), "{gone:?}");
    }
}
