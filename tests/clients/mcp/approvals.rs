//! Calls that need consent: a text for clients that cannot ask, a form for those that can, and who may decide by it.

use harness::{Daemon, RunHandle, Setup, v1};
use serde_json::{Value, json};

use super::http::{daemon as daemon_with_http, http};
use super::python::{Client, stdio, text, with};
use super::run_with_token;

/// In `review` every edit asks.
fn edit(new: &str) -> Value {
    json!({"file_path": "a.txt", "old_string": "one", "new_string": new})
}

fn answer(content: &Value) -> Value {
    json!({"action": "accept", "content": content})
}

async fn state(run: &mut RunHandle, approval_id: &str) -> v1::approval::State {
    run.clients.approval(approval_id).await.state()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_elicitation_gets_pending_and_learns_the_outcome_by_calling_again() {
    let (daemon, port) = daemon_with_http("").await;
    for transport in ["stdio", "http"] {
        let workspace = daemon.workspace(transport, &[("a.txt", "one\n")]);
        let (mut run, token) = run_with_token(&daemon, "review", &workspace).await;
        let setup = if transport == "http" { http(port, &token) } else { stdio(&daemon, &token, &[]) };
        let mut client = Client::connect(setup).await;
        let waits = client.call("edit", edit("two")).await;
        assert_eq!(waits["isError"], false, "{waits}");
        assert!(waits["content"].to_string().contains("PENDING_APPROVAL"), "{waits}");
        let approval = waits["_meta"]["io.cofferdam/approvalId"].as_str().unwrap().to_owned();
        // The same call again asks nobody a second time.
        let again = client.call("edit", edit("two")).await;
        assert_eq!(again["_meta"]["io.cofferdam/approvalId"], approval.as_str(), "{again}");
        assert_eq!(std::fs::read_to_string(workspace.join("a.txt")).unwrap(), "one\n");
        run.clients.approve(&approval).await.unwrap();
        run.outcome(waits["_meta"]["io.cofferdam/callId"].as_str().unwrap()).await;
        let done = client.call("edit", edit("two")).await;
        assert_eq!(done["_meta"]["io.cofferdam/status"], "SUCCEEDED", "{done}");
        assert!(done["content"][1]["text"].as_str().unwrap().contains("it was not made again"), "{done}");
        assert_eq!(std::fs::read_to_string(workspace.join("a.txt")).unwrap(), "two\n");
        // After that it is a call as any other.
        let anew = client.call("edit", edit("two")).await;
        assert_ne!(anew["_meta"]["io.cofferdam/callId"], done["_meta"]["io.cofferdam/callId"], "{anew}");
        client.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_at_the_client_can_wait_leave_or_cancel_but_not_decide() {
    let (daemon, port) = daemon_with_http("").await;
    for (mode, transport) in [("auto", "stdio"), ("legacy", "stdio"), ("auto", "http"), ("legacy", "http")] {
        let workspace = daemon.workspace(&format!("{mode}-{transport}"), &[("a.txt", "one\n")]);
        let (mut run, token) = run_with_token(&daemon, "review", &workspace).await;
        let answers = json!([
            answer(&json!({"until_decided": "approve", "decision": "approve"})),
            answer(&json!({"until_decided": "cancel"})),
            answer(&json!({"until_decided": "wait"})),
            {"action": "decline"},
        ]);
        let setup = if transport == "http" { http(port, &token) } else { stdio(&daemon, &token, &[]) };
        let mut client = Client::connect(with(setup, json!({"mode": mode, "answers": answers}))).await;

        // An answer that was not offered, and would approve if a run's token could.
        let left = client.call("edit", edit("two")).await;
        assert!(left["content"].to_string().contains("PENDING_APPROVAL"), "{mode} {transport}: {left}");
        assert!(
            left["asked"][0]["message"].as_str().unwrap().contains("does not approve the call"),
            "{left}"
        );
        let approval = left["_meta"]["io.cofferdam/approvalId"].as_str().unwrap().to_owned();
        assert_eq!(state(&mut run, &approval).await, v1::approval::State::Pending);
        // The same call again: the person cancels.
        let cancelled = client.call("edit", edit("two")).await;
        assert!(cancelled["isError"] == true && cancelled.to_string().contains("CANCELLED"), "{cancelled}");
        assert_eq!(state(&mut run, &approval).await, v1::approval::State::Cancelled);

        // Another one: the person waits, and a reviewer consents.
        client.begin(json!({"do": "call", "name": "edit", "arguments": edit("three")})).await;
        let approval = run.clients.pending_approval(&run.run.run_id).await;
        run.clients.approve(&approval.approval_id).await.unwrap();
        let done = client.end().await;
        assert_eq!(done["_meta"]["io.cofferdam/status"], "SUCCEEDED", "{mode} {transport}: {done}");
        assert_eq!(std::fs::read_to_string(workspace.join("a.txt")).unwrap(), "three\n");
        client.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_faster_reviewer_ends_the_elicitation() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let (mut run, token) = run_with_token(&daemon, "review", &workspace).await;
    // Never answered: the client has no answers left and waits for none.
    let setup = with(stdio(&daemon, &token, &[]), json!({"mode": "legacy", "answers": [{"wait": true}]}));
    let mut client = Client::connect(setup).await;
    client.begin(json!({"do": "call", "name": "edit", "arguments": edit("two")})).await;
    let approval = run.clients.pending_approval(&run.run.run_id).await;
    run.clients.approve(&approval.approval_id).await.unwrap();
    let done = client.end().await;
    assert_eq!(done["_meta"]["io.cofferdam/status"], "SUCCEEDED", "{done}");
    client.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn user_of_the_bridge_decides_when_enabled_and_permitted() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let (mut run, token) = run_with_token(&daemon, "review", &workspace).await;
    for mode in ["auto", "legacy"] {
        let answers = json!([
            answer(&json!({"decision": "deny", "comment": "not that one"})),
            {"action": "cancel"},
            answer(&json!({"decision": "approve"})),
        ]);
        let setup = stdio(&daemon, &token, &["--decide-approvals"]);
        let mut client = Client::connect(with(setup, json!({"mode": mode, "answers": answers}))).await;
        let denied = client.call("edit", edit(&format!("no-{mode}"))).await;
        assert!(denied["isError"] == true && text(&denied).contains("not that one"), "{mode}: {denied}");
        let asked = denied["asked"][0]["message"].as_str().unwrap();
        assert!(
            asked.contains(&format!("+no-{mode}")) && asked.contains("tester"),
            "the diff is shown: {asked}"
        );
        let left = client.call("edit", edit(mode)).await;
        assert!(left["content"].to_string().contains("PENDING_APPROVAL"), "{mode}: {left}");
        let approved = client.call("edit", edit(mode)).await;
        assert_eq!(approved["_meta"]["io.cofferdam/status"], "SUCCEEDED", "{mode}: {approved}");
        let approval = approved["_meta"]["io.cofferdam/approvalId"].as_str().unwrap().to_owned();
        let settled = run.clients.approval(&approval).await;
        assert!(settled.decided_by.starts_with("uid:"), "{settled:?}");
        std::fs::write(workspace.join("a.txt"), "one\n").unwrap();
        client.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approver_who_is_the_requester_is_refused() {
    let daemon = Daemon::start_with(Setup { forbid_self_approval: true, ..Setup::default() }).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let (mut run, token) = run_with_token(&daemon, "review", &workspace).await;
    for mode in ["auto", "legacy"] {
        let setup = stdio(&daemon, &token, &["--decide-approvals"]);
        let answers = json!([answer(&json!({"decision": "approve"}))]);
        let mut client = Client::connect(with(setup, json!({"mode": mode, "answers": answers}))).await;
        let refused = client.call("edit", edit(mode)).await;
        let said = refused["content"].to_string();
        assert!(
            said.contains("The decision was not accepted") && said.contains("PENDING_APPROVAL"),
            "{said}"
        );
        let approval = refused["_meta"]["io.cofferdam/approvalId"].as_str().unwrap().to_owned();
        assert_eq!(state(&mut run, &approval).await, v1::approval::State::Pending);
        client.leave().await;
    }
    assert_eq!(std::fs::read_to_string(workspace.join("a.txt")).unwrap(), "one\n");
}
