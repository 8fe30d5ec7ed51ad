use serde_json::json;
use wire::v1::{ConsideredRule, ToolFailure};

use super::super::super::foreign::tests::{HOSTILE, assert_harmless};
use super::*;

const ID: &str = "0198a1b2-0000-7000-8000-00000000aaaa";

fn hostile() -> String {
    HOSTILE.to_owned()
}

fn event(kind: &str, record: &Value) -> AuditEvent {
    AuditEvent {
        kind: kind.to_owned(),
        run_id: hostile(),
        call_id: ID.to_owned(),
        principal: hostile(),
        agent_id: hostile(),
        operation: hostile(),
        record_json: record.to_string(),
        ..Default::default()
    }
}

fn shown() -> Shown {
    let intent = json!({
        "role": HOSTILE,
        "approval_id": HOSTILE,
        "decision": { "outcome": HOSTILE, "rule": HOSTILE, "reason": HOSTILE, "policy_digest": HOSTILE },
        "input": { HOSTILE: HOSTILE, "lines": format!("{HOSTILE}\n"), "args": [HOSTILE], "other": { HOSTILE: [1, HOSTILE] } },
    });
    let receipt = json!({
        "outcome": { "status": HOSTILE, "reason": HOSTILE, "message": HOSTILE, "facts": { HOSTILE: HOSTILE } },
        "duration_us": 1500,
    });
    let chunk =
        || Some(OutputChunk { data: HOSTILE.as_bytes().to_vec(), kept_bytes: 1 << 20, ..Default::default() });
    let error = ToolFailure { reason: hostile(), message: hostile(), ..Default::default() };
    let rule =
        ConsideredRule { stage: hostile(), rule: hostile(), justification: hostile(), ..Default::default() };
    Shown {
        id: ID.to_owned(),
        events: Ok(vec![
            event("call_intent", &intent),
            event("call_receipt", &receipt),
            event(HOSTILE, &json!(null)),
        ]),
        call: Ok(GetCallResponse {
            call: Some(CallResponse { rendered: hostile(), error: Some(error), ..Default::default() }),
            stdout: chunk(),
            stderr: chunk(),
        }),
        explained: Ok(ExplainPolicyResponse {
            rule: hostile(),
            justification: hostile(),
            reason: hostile(),
            risk: hostile(),
            decision_time_from: hostile(),
            policy_digest: hostile(),
            considered: vec![rule],
            ..Default::default()
        }),
    }
}

#[test]
fn texts_of_a_call_are_harmless() {
    assert_harmless(&render(&shown()));
    let refused =
        Shown { events: Err(hostile()), call: Err(hostile()), explained: Err(hostile()), id: hostile() };
    assert_harmless(&render(&refused));
}

#[test]
fn output_has_a_next_page() {
    let next = HOSTILE.len();
    let page = render(&shown()).0;
    for field in ["out", "err"] {
        assert!(page.contains(&format!("href=\"/calls/{ID}?{field}={next}\"")), "{field}: {page}");
    }
}

#[test]
fn arguments_are_shown_one_by_one() {
    let shown = arguments(&json!({ "command": "ls", "args": ["-l", "a b"] })).0;
    assert!(shown.contains("<dt>") && shown.matches("<li>").count() == 2, "{shown}");
    assert!(
        arguments(&json!({})).0.contains("No arguments") && arguments(&json!(1)).0.contains("No arguments")
    );
}
