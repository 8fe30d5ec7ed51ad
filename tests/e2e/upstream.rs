//! Upstream MCP servers in the run's own container: listed, called, approved, recorded, and hostile.

use std::os::unix::fs::PermissionsExt as _;

use harness::v1::call_response::Status;
use harness::v1::list_tools_request::Format;
use harness::v1::node_service_client::NodeServiceClient;
use harness::v1::operation::Kind as Operation;
use harness::v1::result::Kind as Answer;
use harness::v1::{self, McpRequest};
use harness::{Daemon, RunHandle, Setup, calls, reason, requests};
use serde_json::{Value, json};

const SERVER: &str = "/pkg/mcp-server";

fn policy() -> String {
    format!(
        "mcp_servers:
  db: {{stdio: {{command: [{SERVER}]}}, call_timeout_s: 6, max_result_bytes: 4096}}
  other: {{stdio: {{command: [{SERVER}]}}, call_timeout_s: 60}}
  gone: {{stdio: {{command: [/pkg/nothing]}}}}
  secret: {{stdio: {{command: [{SERVER}]}}}}
aliases: {{database_read: mcp.db.echo, read_file: mcp.db.sum}}
profiles:
  p:
    workspace: read-write
    operations: {{read: allow, list: allow, \"mcp.db.*\": allow, mcp.db.count: ask, mcp.db.fail: deny, \"mcp.other.*\": allow,
                 \"mcp.gone.*\": allow, \"mcp.secret.*\": allow}}
    rate_limits:
      operations: {{default: {{minute: 1000, hour: 1000, day: 1000}}, mcp.other: {{minute: 2, hour: 2, day: 2}}}}
roles:
  director: {{allow: [read, list, \"mcp.db.*\", \"mcp.other.*\", \"mcp.gone.*\"]}}
"
    )
}

async fn start() -> (Daemon, RunHandle) {
    let policy = vec![("p.yaml", policy())];
    let daemon = Daemon::start_with(Setup { policy, ..Default::default() }).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let package = daemon.workspace("pkg", &[]);
    let program = package.join("mcp-server");
    std::fs::copy(harness::mcp_server(), &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let pkg_path = package.display().to_string();
    let run = daemon.run_on(v1::CreateRunRequest { pkg_path, ..requests::bind("p", &workspace) }).await;
    (daemon, run)
}

fn call(server: &str, tool: &str, arguments: &Value) -> Operation {
    let (server, tool) = (server.to_owned(), tool.to_owned());
    Operation::Mcp(McpRequest { server, tool, arguments_json: arguments.to_string() })
}

fn db(tool: &str) -> Operation {
    call("db", tool, &json!({}))
}

async fn text(run: &mut RunHandle, operation: Operation) -> String {
    let Answer::Mcp(result) = run.ok(operation).await else { panic!("no answer of a server") };
    result.content.into_iter().map(|item| item.data).collect()
}

async fn tools(run: &mut RunHandle, dialect: &str, format: Format) -> (Vec<Value>, Vec<v1::McpServerStatus>) {
    let request = v1::ListToolsRequest {
        run_id: run.id().to_owned(),
        dialect: dialect.to_owned(),
        format: format.into(),
    };
    let listed = run.clients.tools.list_tools(request).await.unwrap().into_inner();
    (serde_json::from_str(&listed.tools_json).unwrap(), listed.mcp_servers)
}

async fn dialect(run: &mut RunHandle, dialect: &str, name: &str, arguments: &Value) -> Value {
    let operation = v1::DialectCall {
        dialect: dialect.to_owned(),
        name: name.to_owned(),
        arguments_json: arguments.to_string(),
    };
    serde_json::from_str(&run.call(operation).await.unwrap().rendered).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_a_server_are_listed_called_and_recorded() {
    let (_daemon, mut run) = start().await;

    let (listed, servers) = tools(&mut run, "gateway", Format::Mcp).await;
    let names: Vec<&str> = listed.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"mcp.db.strict.args") && names.contains(&"database_read"), "{names:?}");
    // A tool of the dialect keeps its name, and what is denied is not there.
    assert!(names.contains(&"mcp.db.sum") && !names.contains(&"mcp.db.fail"), "{names:?}");
    let echo = listed.iter().find(|tool| tool["name"] == "database_read").unwrap();
    assert!(echo["description"].as_str().unwrap().contains("MCP server `db`"), "{echo}");
    assert_eq!(echo.get("annotations"), None, "what a server says of its harmlessness counts for nothing");
    let states: Vec<_> = servers.iter().map(|server| (server.name.as_str(), server.available)).collect();
    assert_eq!(states, [("db", true), ("gone", false), ("other", true)], "{servers:?}");
    let (listed, _) = tools(&mut run, "native", Format::Anthropic).await;
    assert!(listed.iter().any(|tool| tool["name"] == "mcp__db__strict--args"), "{listed:?}");

    assert_eq!(text(&mut run, call("db", "echo", &json!({"a": 1}))).await, r#"{"a":1}"#);
    let Answer::Mcp(sum) = run.ok(db("sum")).await else { panic!() };
    assert_eq!(sum.structured_content_json, r#"{"sum":3}"#);
    let answer =
        dialect(&mut run, "gateway", "database_read", &json!({"token": "planted-secret-value"})).await;
    assert_eq!((&answer["status"], &answer["data"]["tool"]), (&json!("success"), &json!("echo")), "{answer}");
    let answer = dialect(&mut run, "fs", "mcp__db__strict--args", &json!({"n": "x"})).await;
    assert_eq!(answer["error"]["code"], "E_SCHEMA_VALIDATION", "{answer}");

    let id = run.id().to_owned();
    let intents = run.clients.events(&id, "call_intent").await;
    let receipts = run.clients.events(&id, "call_receipt").await;
    assert_eq!(intents.len(), receipts.len());
    let all = format!("{intents:?}{receipts:?}");
    assert!(all.contains("mcp.db.echo") && !all.contains("planted-secret-value"), "{all}");
    let started = run.clients.events(&id, "mcp_server").await;
    assert!(started.len() >= 3, "{started:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_needs_consent_runs_once_when_it_is_given() {
    let (daemon, mut run) = start().await;
    let asked = run.asks(db("count")).await;
    let id = run.id().to_owned();
    let approval = run.clients.pending_approval(&id).await;
    assert!(
        approval.preview.contains("MCP server: db") && approval.preview.contains("tool: count"),
        "{approval:?}"
    );
    let counted = daemon.roots().join("w/count");
    assert!(!counted.exists());
    run.clients.approve(&asked.approval_id).await.unwrap();
    assert_eq!(run.outcome(&asked.call_id).await.status(), Status::Succeeded);
    assert_eq!(std::fs::read_to_string(&counted).unwrap(), "once\n");
    assert!(run.clients.approve(&asked.approval_id).await.is_err());
    assert_eq!(std::fs::read_to_string(&counted).unwrap(), "once\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_limits_callers_tools_and_rates() {
    let (_daemon, mut run) = start().await;
    assert_eq!(reason(&run.call(db("fail")).await.unwrap_err()), "PERMISSION_DENIED");
    assert_eq!(reason(&run.call(call("secret", "echo", &json!({}))).await.unwrap_err()), "PERMISSION_DENIED");
    assert_eq!(reason(&run.call(call("nobody", "echo", &json!({}))).await.unwrap_err()), "PERMISSION_DENIED");
    assert_eq!(reason(&run.call(call("db", "no such", &json!({}))).await.unwrap_err()), "INVALID_ARGUMENT");
    assert_eq!(run.fails(db("unlisted")).await.reason, "NOT_FOUND");
    assert_eq!(run.fails(call("gone", "echo", &json!({}))).await.reason, "UPSTREAM_FAILED");
    text(&mut run, call("other", "echo", &json!({}))).await;
    run.ok(call("other", "sum", &json!({}))).await;
    assert_eq!(reason(&run.call(call("other", "echo", &json!({}))).await.unwrap_err()), "RATE_LIMITED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_server_fails_only_its_own_calls() {
    let (daemon, mut run) = start().await;
    // A neighbour that is called all the while.
    text(&mut run, call("other", "echo", &json!({}))).await;
    for (tool, expected, kind) in [
        ("liar", "UPSTREAM_FAILED", "schema"),
        ("flood", "UPSTREAM_FAILED", "protocol"),
        ("line", "UPSTREAM_FAILED", "protocol"),
        ("garbage", "UPSTREAM_FAILED", "protocol"),
        ("die", "UPSTREAM_FAILED", "lost"),
        ("hang", "TIMED_OUT", "timed_out"),
        ("wrong-id", "TIMED_OUT", "timed_out"),
        ("freeze", "TIMED_OUT", "timed_out"),
    ] {
        let working = run.waits(db(tool));
        assert_eq!(text_of_read(&mut run).await, "one\n", "{tool}: the run goes on");
        let response = working.await.unwrap().unwrap();
        let failure = response.error.unwrap();
        assert_eq!(
            (failure.reason.as_str(), failure.details["kind"].as_str()),
            (expected, kind),
            "{tool}: {failure:?}"
        );
        assert!(!failure.message.contains("planted"), "{failure:?}");
        // The server is there again, at once or when it has been left alone for a while.
        let again = async {
            loop {
                let response = run.call(db("sum")).await.unwrap();
                if response.status() == Status::Succeeded {
                    return;
                }
                let error = response.error.unwrap();
                assert!(
                    ["absent", "lost", "timed_out"].contains(&error.details["kind"].as_str()),
                    "{tool}: {error:?}"
                );
                tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), again)
            .await
            .unwrap_or_else(|_| panic!("{tool}"));
    }
    let Answer::Mcp(huge) = run.ok(db("huge")).await else { panic!() };
    assert!(huge.truncated && huge.content[0].data.len() == 4_096);
    assert_eq!(huge.omitted_bytes, 3_000_000 - 4_096);
    let refused = text(&mut run, db("ask")).await;
    assert!(refused.contains("-32601"), "{refused}");

    // What the neighbour counts as: it was neither restarted nor ended.
    run.ok(call("other", "sum", &json!({}))).await;
    let id = run.id().to_owned();
    let servers = run.clients.events(&id, "mcp_server").await;
    let of_other = servers.iter().filter(|event| format!("{event:?}").contains("other")).count();
    assert_eq!(of_other, 1, "{servers:?}");
    drop(daemon);
}

async fn text_of_read(run: &mut RunHandle) -> String {
    let Answer::Read(read) = run.ok(calls::read("a.txt")).await else { panic!() };
    read.content
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_whose_definition_changes_is_withheld() {
    let (_daemon, mut run) = start().await;
    text(&mut run, db("echo")).await;
    text(&mut run, db("change")).await;
    // The server is asked for its tools again a few seconds after it was asked last.
    let withheld = async {
        loop {
            let response = run.call(db("echo")).await.unwrap();
            if let Some(failure) = response.error {
                return failure;
            }
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        }
    };
    let failure = tokio::time::timeout(std::time::Duration::from_secs(30), withheld).await.unwrap();
    assert_eq!(
        (failure.reason.as_str(), failure.details["kind"].as_str()),
        ("PRECONDITION_FAILED", "changed")
    );
    run.ok(db("sum")).await;
    let (listed, servers) = tools(&mut run, "native", Format::Mcp).await;
    assert!(!listed.iter().any(|tool| tool["name"] == "database_read"), "{listed:?}");
    assert!(
        servers.iter().any(|server| server.withheld.iter().any(|why| why.starts_with("echo: "))),
        "{servers:?}"
    );
    let id = run.id().to_owned();
    assert_eq!(run.clients.events(&id, "mcp_tool_changed").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_end_with_their_run_and_a_call_can_be_cancelled() {
    let (_daemon, mut run) = start().await;
    let mut other = run.clone();
    let hanging = tokio::spawn(async move {
        let request = v1::CallRequest {
            request: Some(db("hang").into()),
            request_id: "h".into(),
            ..Default::default()
        };
        other.call_with(request).await
    });
    let id = run.id().to_owned();
    let call_id = loop {
        let intents = run.clients.events(&id, "call_intent").await;
        if let Some(intent) = intents.into_iter().find(|intent| format!("{intent:?}").contains("mcp.db.hang"))
        {
            break intent.call_id;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let request = v1::CancelCallRequest { call_id };
    assert!(run.clients.tools.cancel_call(request).await.unwrap().into_inner().cancelled);
    let failure = hanging.await.unwrap().unwrap().error.unwrap();
    assert_eq!(failure.reason, "CANCELLED", "{failure:?}");
    run.ok(db("sum")).await;
    run.stop().await;
    assert!(run.call(db("sum")).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_a_drain_cuts_off_is_lost_to_the_infrastructure() {
    let (daemon, mut run) = start().await;
    // The server is up.
    run.ok(call("other", "sum", &json!({}))).await;
    let hanging = run.waits(call("other", "hang", &json!({})));
    let id = run.id().to_owned();
    harness::until("the call is not on record", async || {
        let intents = run.clients.events(&id, "call_intent").await;
        intents.iter().any(|intent| format!("{intent:?}").contains("mcp.other.hang"))
    })
    .await;
    let deadline = Some(prost_types::Duration { seconds: 1, nanos: 0 });
    let request = v1::DrainNodeRequest { reason: "the host is replaced".to_owned(), deadline };
    let mut nodes = NodeServiceClient::new(daemon.connect().await.channel);
    nodes.drain_node(request).await.unwrap();
    let failure = hanging.await.unwrap().unwrap().error.unwrap();
    assert_eq!(
        (failure.reason.as_str(), failure.fault(), failure.retry_safe),
        ("RUN_LOST", v1::Fault::Infrastructure, false),
        "{failure:?}"
    );
    let fact = v1::Evidence { what: "run.end_cause".to_owned(), value: "node_drained".to_owned() };
    assert_eq!(failure.evidence, [fact]);
}
