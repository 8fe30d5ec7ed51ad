//! Results of calls that were made without a dialect, and the JSON that other dialects build on.

use std::collections::BTreeMap;

use operations::{OpResult, Outcome, ToolFailure};
use serde::Serialize;

#[derive(Serialize)]
struct CanonicalSuccess<'a> {
    ok: bool,
    #[serde(flatten)]
    result: &'a OpResult,
}

#[derive(Serialize)]
struct CanonicalFailure<'a> {
    ok: bool,
    error: CanonicalError<'a>,
    /// Present for a command that was ended early.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    result: Option<&'a OpResult>,
}

#[derive(Serialize)]
struct CanonicalError<'a> {
    code: &'a str,
    message: &'a str,
    details: BTreeMap<&'a str, &'a str>,
}

/// Renders `{"ok":true,…}` with the fields of the result, or `{"ok":false,"error":{"code","message","details"}}`.
///
/// The code is the name of the reason. A command that was ended early has both the error and the fields.
pub fn render_canonical(outcome: &Outcome) -> String {
    match outcome {
        Ok(result) => match operations::cut_short(result) {
            None => to_json(&CanonicalSuccess { ok: true, result }),
            Some(failure) => failed(&failure, Some(result)),
        },
        Err(failure) => failed(&failure.clone().told(|hint| Some(hint.canonical())), None),
    }
}

fn failed(failure: &ToolFailure, result: Option<&OpResult>) -> String {
    let ToolFailure { reason, message, details, .. } = failure;
    let details = details.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    to_json(&CanonicalFailure {
        ok: false,
        error: CanonicalError { code: reason.as_str(), message, details },
        result,
    })
}

/// Renders a call that waits for a reviewer: a failure with the code `PENDING_APPROVAL`.
pub fn render_canonical_pending(approval_id: &str) -> String {
    let details = BTreeMap::from([("approval_id", approval_id)]);
    let error = CanonicalError { code: "PENDING_APPROVAL", message: PENDING, details };
    to_json(&CanonicalFailure { ok: false, error, result: None })
}

/// Message to models about a call that waits for a reviewer.
pub(crate) const PENDING: &str = "a person has to approve this call first. It has had no effect yet. Continue with something else, or ask for its outcome later";

/// Returns compact JSON. The types here have string keys and always serialise; if one did not, the text would still be valid JSON.
pub(crate) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| {
        r#"{"ok":false,"error":{"code":"INTERNAL","message":"the result could not be rendered"}}"#.to_owned()
    })
}
