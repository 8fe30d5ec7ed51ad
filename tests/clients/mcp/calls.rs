//! Tests progress, cancellation and resources of calls.

use std::path::Path;
use std::time::Duration;

use harness::{Daemon, v1};
use serde_json::{Value, json};

use super::http::{daemon as daemon_with_http, http};
use super::python::{Client, stdio, text, with};
use super::run_with_token;

/// A command that writes, waits, and would leave a trace if nothing ended it; so would its child.
const WORK: &str = "echo begun; (sleep 30; touch late-child) & sleep 30; touch late";

fn work() -> Value {
    json!({"command": "sh", "args": ["-c", WORK]})
}

/// The run's only command is over, with all of its processes.
async fn ends(run: &mut harness::RunHandle, workspace: &Path) {
    let ended = async {
        loop {
            let receipts = run.clients.events(&run.run.run_id, "call_receipt").await;
            let cancelled = |receipt: &&v1::AuditEvent| receipt.record_json.contains("CANCELLED");
            if receipts.iter().any(|receipt| cancelled(&receipt)) {
                return;
            }
            // The record is what there is to wait on.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("the call was not cancelled");
    let names = run.exec(&["sh", "-c", "cat /proc/[0-9]*/comm"]).await;
    assert!(
        names.stdout.contains("cat\n") && !names.stdout.contains("sleep") && !names.stdout.contains("sh\n"),
        "{names:?}"
    );
    assert!(!workspace.join("late").exists() && !workspace.join("late-child").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_request_ends_the_command_with_its_whole_tree() {
    let (daemon, port) = daemon_with_http(", dialect: exec").await;
    for (name, mode) in [("auto", "auto"), ("legacy", "legacy")] {
        for transport in ["stdio", "http"] {
            let workspace = daemon.workspace(&format!("{name}-{transport}"), &[]);
            let (mut run, token) = run_with_token(&daemon, "open", &workspace).await;
            let setup = if transport == "http" {
                http(port, &token)
            } else {
                stdio(&daemon, &token, &["--dialect", "exec"])
            };
            let mut client = Client::connect(with(setup, json!({"mode": mode}))).await;
            let step = json!({"do": "call", "name": "exec", "arguments": work(), "cancel_on": "begun"});
            let cancelled = client.step(step).await;
            assert_eq!(cancelled["cancelled"], true, "{transport} {mode}: {cancelled}");
            ends(&mut run, &workspace).await;
            // The session goes on.
            let listed = client.step(json!({"do": "list"})).await;
            assert!(listed["tools"].is_array(), "{listed}");
            client.leave().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_arrives_as_progress_that_always_increases() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let (_run, token) = run_with_token(&daemon, "open", &workspace).await;
    let mut client = Client::connect(stdio(&daemon, &token, &["--dialect", "exec"])).await;
    let script = "for i in 1 2 3 4 5; do echo line $i; sleep 0.3; done; head -c 3000000 /dev/zero";
    let done = client.call("exec", json!({"command": "sh", "args": ["-c", script]})).await;
    assert_eq!(done["isError"], false, "{}", &done.to_string()[..500]);
    let progress = done["progress"].as_array().unwrap();
    let told: String = progress.iter().filter_map(|one| one["text"].as_str()).collect();
    for line in 1..=5 {
        assert!(told.contains(&format!("line {line}\n")), "{told:.200}");
    }
    assert!(progress.len() >= 2, "not only at the end");
    let values: Vec<f64> = progress.iter().map(|one| one["value"].as_f64().unwrap()).collect();
    assert!(values.windows(2).all(|pair| pair[0] < pair[1]), "{values:?}");
    // A flood is told by its end: the sum of it is far less than what was written.
    assert!(told.len() < 1_000_000 && values.last().unwrap() >= &3_000_000.0, "{} {values:?}", told.len());
    client.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_resources_read_through_the_gateway() {
    let daemon = Daemon::start().await;
    let names: Vec<String> = (0..250).map(|number| format!("d/{number:03}.txt")).collect();
    let mut files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x\n")).collect();
    files.extend([("a b.md", "# one\n"), (".gitignore", "ignored\n"), ("ignored", "x")]);
    let workspace = daemon.workspace("w", &files);
    std::fs::write(workspace.join("bin"), [0_u8, 159, 146, 150]).unwrap();
    std::fs::write(workspace.join("large"), "x".repeat(1 << 20)).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", workspace.join("passwd")).unwrap();
    let (mut run, token) = run_with_token(&daemon, "open", &workspace).await;
    let mut client = Client::connect(stdio(&daemon, &token, &[])).await;

    let first = client.step(json!({"do": "resources"})).await;
    let second = client.step(json!({"do": "resources", "cursor": first["nextCursor"]})).await;
    let uris = |page: &Value| {
        let resources = page["resources"].as_array().unwrap().iter();
        resources.map(|resource| resource["uri"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(uris(&first).len(), 200);
    assert!(second["nextCursor"].is_null(), "{second}");
    let all = [uris(&first), uris(&second)].concat();
    assert!(
        all.contains(&"workspace:///a%20b.md".to_owned())
            && all.contains(&"workspace:///d/249.txt".to_owned())
    );
    assert!(!all.iter().any(|uri| uri.contains("ignored")), "{all:?}");
    let templates = client.step(json!({"do": "templates"})).await;
    assert_eq!(templates["resourceTemplates"][0]["uriTemplate"], "workspace:///{+path}");

    let read = client.step(json!({"do": "read", "uri": "workspace:///a%20b.md"})).await;
    assert_eq!(read["contents"][0]["text"], "# one\n", "{read}");
    let binary = client.step(json!({"do": "read", "uri": "workspace:///bin"})).await;
    assert_eq!(binary["contents"][0]["blob"], "AJ+Slg==", "{binary}");
    for (uri, word) in [
        ("workspace:///gone", "gone"),
        ("workspace:///large", "1048576 bytes"),
        ("workspace:///..%2F..%2Fetc/passwd", "passwd"),
        ("workspace:///passwd", "passwd"),
        ("workspace:///d", "d"),
        ("file:///etc/passwd", "workspace:///PATH"),
    ] {
        let refused = client.step(json!({"do": "read", "uri": uri})).await;
        let message = refused["error"]["message"].as_str().unwrap_or_else(|| panic!("{uri}: {refused}"));
        assert!(message.contains(word), "{uri}: {message}");
    }
    client.leave().await;
    let receipts = run.clients.events(&run.run.run_id, "call_receipt").await;
    let of = |operation: &str| receipts.iter().filter(|event| event.record_json.contains(operation)).count();
    assert!(of("\"read\"") >= 7 && of("\"glob\"") == 2, "each is a call on record: {}", receipts.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_notified_when_other_tools_are_offered() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a", "x")]);
    let (mut run, token) = run_with_token(&daemon, "open", &workspace).await;
    let mut client = Client::connect(with(stdio(&daemon, &token, &[]), json!({"mode": "legacy"}))).await;
    assert_eq!(client.hello["capabilities"]["tools"]["listChanged"], true);
    client.step(json!({"do": "level", "level": "info"})).await;
    let offers = |listed: &Value| listed["tools"].to_string().contains("\"grep\"");
    assert!(offers(&client.step(json!({"do": "list"})).await));
    // It has looked once by then, as it does at its beginning.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let permission = v1::Permission {
        subject: Some(v1::permission::Subject::AgentId("tester".to_owned())),
        operation: "grep".to_owned(),
        reason: "a test".to_owned(),
        ..Default::default()
    };
    let what = Some(v1::revoke_permission_request::What::Permission(permission));
    let revoked = v1::RevokePermissionRequest { what, ..Default::default() };
    run.clients.permissions.revoke_permission(revoked).await.unwrap();
    let told = async {
        loop {
            let heard = client.step(json!({"do": "heard"})).await;
            if heard.to_string().contains("notifications/tools/list_changed") {
                return heard;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let heard = tokio::time::timeout(Duration::from_secs(30), told).await.expect("nobody told");
    assert!(heard.to_string().contains("other tools"), "{heard}");
    assert!(!offers(&client.step(json!({"do": "list"})).await));
    let refused = client.call("grep", json!({"pattern": "x"})).await;
    assert!(refused["isError"] == true && text(&refused).to_lowercase().contains("permission"), "{refused}");
    client.leave().await;
}
