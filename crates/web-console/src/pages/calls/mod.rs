//! The pages of calls.

mod list;
mod show;

use axum::Router;
use axum::extract::Path;
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};
use wire::v1::query_events_request::Order;
use wire::v1::{
    AuditEvent, CallRequest, EventFilter, ExplainPolicyRequest, ExplainPolicyResponse, GetApprovalRequest,
    GetCallRequest, Operation, QueryEventsRequest,
};

use super::elements::{Part, is_id};
use super::record::Record;
use super::request::{Query, id, part_of};
use crate::State;
use crate::api::quick;
use crate::error::Problem;
use crate::layout::page;
use crate::viewer::Viewer;

/// Records of a call that are shown.
const RECORDS: u32 = 100;
/// Words of the pages in the navigation.
const TITLE: &str = "Calls";

pub(super) fn routes() -> Router<State> {
    Router::new().route("/calls", get(listed)).route("/calls/{call}", get(shown))
}

async fn listed(viewer: Viewer, Query(query): Query) -> Result<Response, Problem> {
    let filter = list::Filter::of(&query);
    let request = QueryEventsRequest {
        filter: Some(filter.to_wire()),
        order: Order::NewestFirst.into(),
        page_size: list::PAGE,
        page_token: filter.page.clone(),
    };
    let answer = viewer.services.audit().query_events(quick(request)).await?.into_inner();
    Ok(page(TITLE, Some(&viewer), list::render(&answer.events, &filter, &answer.next_page_token)))
}

async fn shown(viewer: Viewer, Path(call): Path<String>, Query(query): Query) -> Result<Response, Problem> {
    let call_id = id(call)?;
    let offset = |name| Some(query.get(name).parse().unwrap_or_default());
    let request = GetCallRequest {
        call_id: call_id.clone(),
        stdout_offset: offset("out"),
        stderr_offset: offset("err"),
        max_output_bytes: show::OUTPUT,
    };
    let call = part_of(viewer.services.tools().get_call(quick(request)).await);
    let events = records(&viewer, &call_id).await;
    // An unknown call has no page.
    if let (Err(_), Ok([])) = (&call, events.as_deref()) {
        return Err(Problem::not_found());
    }
    let explained = explain(&viewer, &events).await;
    Ok(page(TITLE, Some(&viewer), show::render(&show::Shown { id: call_id, events, call, explained })))
}

async fn records(viewer: &Viewer, call: &str) -> Part<Vec<AuditEvent>> {
    let request = QueryEventsRequest {
        filter: Some(EventFilter { call_id: call.to_owned(), ..Default::default() }),
        order: Order::OldestFirst.into(),
        page_size: RECORDS,
        ..Default::default()
    };
    Ok(part_of(viewer.services.audit().query_events(quick(request)).await)?.events)
}

/// Asks why the policy in force would decide about a recorded call as it does.
async fn explain(viewer: &Viewer, events: &Part<Vec<AuditEvent>>) -> Part<ExplainPolicyResponse> {
    let events = events.as_ref().map_err(Clone::clone)?;
    let intent = events.iter().find(|event| event.kind == "call_intent");
    let intent = intent.ok_or_else(|| "The log has no intent of this call.".to_owned())?;
    let record = Record::of(intent);
    let approval = record.text("/approval_id");
    let mut operation = operation(&intent.operation, record.value("/input"));
    // An approval has all of the operation, and a record may have a part.
    if operation.is_none() && is_id(approval) {
        let request = GetApprovalRequest { approval_id: approval.to_owned() };
        let found = part_of(viewer.services.approvals().get_approval(quick(request)).await)?.approval;
        operation = found.and_then(|found| serde_json::from_str(&found.operation_json).ok());
    }
    let operation = operation.ok_or_else(|| {
        "The record has only a part of the arguments, so the policy cannot be asked again. The decision above is the one that counted."
            .to_owned()
    })?;
    let call = CallRequest {
        run_id: intent.run_id.clone(),
        request: operation.kind.map(Into::into),
        ..Default::default()
    };
    part_of(viewer.services.policy().explain_policy(quick(ExplainPolicyRequest { call: Some(call) })).await)
}

/// Returns the operation that was recorded, if the record has all of it.
fn operation(name: &str, input: Option<&Value>) -> Option<Operation> {
    let base = name.split('.').next()?;
    serde_json::from_value(json!({ base: input? })).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_restored_only_from_all_of_its_arguments() {
        let read = operation("read", Some(&json!({ "path": "@project/a" }))).unwrap();
        assert!(
            matches!(read.kind, Some(wire::v1::operation::Kind::Read(read)) if read.path == "@project/a")
        );
        assert!(operation("git.diff", Some(&json!({ "diff": {} }))).is_some());
        let cut = json!({ "path": "@project/a", "content": { "bytes": 5, "sha256": "00" } });
        assert!(operation("write", Some(&cut)).is_none());
        assert!(operation("read", None).is_none() && operation("teleport", Some(&json!({}))).is_none());
    }
}
