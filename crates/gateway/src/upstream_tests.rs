//! Calls to upstream MCP servers, before the gateway.

use std::sync::Arc;

use operations::{Bound, McpTool, Operation, Reason};
use serde_json::json;

use crate::testing::{TestClock, builtin_and, caller, limited, run};
use crate::{Admission, Ballot, Choice, Decision, Gateway, Permit, Refusal, Review, Reviewer};
use policy::{Level, McpTransport, Risk, Verdict};

const POLICY: &str = "
mcp_servers: {db: {stdio: {command: [/bin/db]}}, web: {http: {url: \"https://a.example/mcp\"}}}
profiles:
  p:
    operations: {\"mcp.*\": ask, mcp.db.query: allow, mcp.db.drop: deny}
    rate_limits: {operations: {default: {minute: 9, hour: 9, day: 9}, mcp.db: {minute: 2, hour: 2, day: 2}}}
roles:
  narrow: {allow: [mcp.db.query]}
  barred: {allow: \"*\", deny: [\"mcp.web.*\"]}
";

fn tool(name: &str, arguments: serde_json::Value) -> Operation {
    let serde_json::Value::Object(arguments) = arguments else { panic!("not an object") };
    Operation::Mcp(operations::Mcp { tool: McpTool::parse(name).unwrap(), arguments })
}

fn admit(gateway: &Gateway, role: &str, name: &str) -> Result<Decision, Refusal> {
    match gateway.admit(&gateway.policy(), &run("p"), &caller(role), "call", tool(name, json!({}))) {
        Admission::Permit(permit) => Ok(permit.decision().clone()),
        Admission::Ask(ticket) => Ok(ticket.decision().clone()),
        Admission::Refuse(refusal) => Err(refusal),
    }
}

#[test]
fn tools_are_judged_by_the_most_specific_key_and_are_of_high_risk() {
    let gateway = Gateway::new(builtin_and(POLICY), TestClock::new());
    let of = |role, name| admit(&gateway, role, name).map(|decision| (decision.verdict, decision.risk));
    assert_eq!(of("director", "mcp.db.query").unwrap().1, Risk::High);
    assert_eq!(of("barred", "mcp.db.query"), Ok((Verdict::Allow, Risk::High)));
    assert_eq!(of("barred", "mcp.db.other"), Ok((Verdict::Ask, Risk::High)));
    assert_eq!(of("narrow", "mcp.db.query"), Ok((Verdict::Allow, Risk::High)));
    for (role, name, rule) in [
        ("barred", "mcp.db.drop", "profile p: operations.mcp.db.drop"),
        ("barred", "mcp.web.get", "role barred: mcp.web.get"),
        ("narrow", "mcp.db.other", "role narrow: mcp.db.other"),
        ("worker", "mcp.db.query", "role worker: mcp.db.query"),
    ] {
        let refusal = of(role, name).unwrap_err();
        assert_eq!(
            (refusal.reason, refusal.rule.as_str()),
            (Reason::PermissionDenied, rule),
            "{role} {name}"
        );
    }
}

#[test]
fn a_server_that_the_policy_does_not_name_is_not_there() {
    let gateway = Gateway::new(builtin_and(POLICY), TestClock::new());
    let refusal = admit(&gateway, "barred", "mcp.other.tool").unwrap_err();
    assert_eq!((refusal.reason, refusal.rule.as_str()), (Reason::NotFound, "mcp_servers"));
    // Who may call none is not told which there are.
    assert_eq!(admit(&gateway, "worker", "mcp.other.tool").unwrap_err().reason, Reason::PermissionDenied);
}

#[test]
fn the_permit_has_the_server_of_the_policy_that_decided() {
    let gateway = Gateway::new(builtin_and(POLICY), TestClock::new());
    let Admission::Permit(permit) = gateway.admit(
        &gateway.policy(),
        &run("p"),
        &caller("barred"),
        "call",
        tool("mcp.db.query", json!({})),
    ) else {
        panic!("not allowed")
    };
    let server = Permit::into_parts(permit).server.unwrap();
    assert!(matches!(server.transport, McpTransport::Stdio(stdio) if stdio.command == ["/bin/db"]));
}

#[test]
fn all_tools_of_a_server_count_together_and_invented_ones_make_no_counters() {
    let gateway = Gateway::new(limited(POLICY), TestClock::new());
    assert!(admit(&gateway, "barred", "mcp.db.query").is_ok());
    assert!(admit(&gateway, "barred", "mcp.db.other").is_ok());
    let refusal = admit(&gateway, "barred", "mcp.db.third").unwrap_err();
    assert_eq!(
        (refusal.reason, refusal.rule.as_str()),
        (Reason::RateLimited, "profile p: rate_limits.operations.mcp.db.day")
    );
    assert!(refusal.message.contains("2 `mcp.db` calls"), "{}", refusal.message);
}

#[test]
fn consent_is_for_these_arguments_and_this_server() {
    let gateway = Arc::new(Gateway::new(builtin_and(POLICY), TestClock::new()));
    let ask = |arguments| match gateway.admit(
        &gateway.policy(),
        &run("p"),
        &caller("barred"),
        "call",
        tool("mcp.db.put", arguments),
    ) {
        Admission::Ask(ticket) => ticket,
        other => panic!("{other:?}"),
    };
    let none = Bound::default();
    let digest = |arguments| ask(arguments).digest("p", &none);
    let digests = [
        digest(json!({})),
        digest(json!({"a": 1})),
        digest(json!({"a": "1"})),
        digest(json!({"a": [1]})),
        digest(json!({"a": {"0": 1}})),
        digest(json!({"a": null})),
        digest(json!({"a": 1, "b": 1})),
    ];
    for (i, digest) in digests.iter().enumerate() {
        assert_eq!(digests.iter().position(|other| other == digest), Some(i));
    }
    let ticket = ask(json!({"a": 1}));
    let review = Review { bound: none.clone(), ..Review::default() };
    let reviewer = Reviewer { principal: "uid:0".into(), level: Level::Director, may_decide_own: false };
    let consent = |ticket, review| {
        let approval = gateway.request_approval(ticket, review, None).unwrap();
        gateway.decide(&approval.approval_id, &reviewer, &Ballot::once(Choice::Approve, "")).unwrap();
        approval.approval_id
    };
    let approved = consent(&ticket, review.clone());
    let permit = gateway.redeem(&approved, &ticket).unwrap();
    assert!(permit.into_parts().server.is_some());
    assert!(gateway.redeem(&approved, &ticket).is_err(), "once");

    let again = consent(&ticket, review);
    let moved = POLICY.replace("/bin/db", "/bin/other");
    gateway.reload(builtin_and(&moved));
    assert!(gateway.redeem(&again, &ticket).is_err(), "it is another server now");
}
