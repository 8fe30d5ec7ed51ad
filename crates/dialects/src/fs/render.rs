//! Outcomes as the ToolResult union: `{ok:true,…}` or `{ok:false,error:{code,message,details}}`, in camelCase.

use std::collections::BTreeMap;

use operations::{OpResult, Operation, Outcome, Reason, ToolFailure};

use super::result::{ListSuccess, PatchSuccess, ReadSuccess, SearchSuccess, UnionFailure, WriteSuccess};
use crate::canonical::{PENDING, render_canonical, to_json};

/// Detail `refusal` of a range whose last line is before its first.
pub(super) const LINE_ORDER: &str = "line_order";

/// Renders an outcome. Results of operations that no tool of this dialect makes have no form in the union and are rendered canonically.
pub(super) fn render(operation: Option<&Operation>, outcome: &Outcome) -> String {
    match outcome {
        Ok(OpResult::Read(result)) => to_json(&ReadSuccess::of(result)),
        Ok(OpResult::List(result)) => to_json(&ListSuccess::of(result)),
        Ok(OpResult::Grep(result)) => to_json(&SearchSuccess::of(operation, result)),
        Ok(OpResult::Write(result)) => to_json(&WriteSuccess::of(result)),
        Ok(OpResult::Patch(result)) => {
            PatchSuccess::of(result).map_or_else(|| render_canonical(outcome), |patch| to_json(&patch))
        }
        Ok(_) => render_canonical(outcome),
        Err(failure) => {
            let details = failure.details.iter().map(|(name, value)| (camel_case(name), value.as_str()));
            error(&code(failure), &failure.message, details.collect())
        }
    }
}

pub(super) fn render_pending(approval_id: &str) -> String {
    error("E_APPROVAL_REQUIRED", PENDING, BTreeMap::from([("approvalId".to_owned(), approval_id)]))
}

/// Returns the union's code: `E_` and the name of the reason, except for three reasons that have other names in the union.
///
/// Reasons that the union does not define get codes in the same style: `E_PERMISSION_DENIED`, `E_RATE_LIMITED`, `E_APPROVAL_DENIED`,
/// `E_APPROVAL_EXPIRED`, `E_TIMED_OUT` and so on.
fn code(failure: &ToolFailure) -> String {
    let line_order = failure.details.get("refusal").is_some_and(|refusal| refusal == LINE_ORDER);
    match failure.reason {
        Reason::NotFound => "ENOENT".to_owned(),
        Reason::AlreadyExists => "E_PRECONDITION_FAILED".to_owned(),
        Reason::InvalidArgument if line_order => "E_INTERNAL".to_owned(),
        Reason::InvalidArgument => "E_SCHEMA_VALIDATION".to_owned(),
        reason => format!("E_{reason}"),
    }
}

/// Returns the name in this dialect's spelling: `start_line` becomes `startLine`.
pub(super) fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut name, word| {
        let mut letters = word.chars();
        name.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        name.push_str(letters.as_str());
        name
    })
}

fn error(code: &str, message: &str, details: BTreeMap<String, &str>) -> String {
    to_json(&UnionFailure::of(code, message, details))
}
