//! A scripted model mends a program through `coffer mcp`, with the tools that it is offered and no others.

use harness::{Daemon, RunHandle, Setup, dev_image, git, requests, v1};
use serde_json::{Value, json};

use super::python::{Client, stdio, text};

const PROGRAM: &str = "def mean(values):\n    return sum(values) / (len(values) - 1)\n";
const TEST: &str = "from stats import mean\n\n\ndef test_mean():\n    assert mean([1, 2, 3]) == 2\n";

/// What the model reads after a call that succeeds.
async fn reads(client: &mut Client, tool: &str, arguments: Value) -> String {
    let result = client.call(tool, arguments).await;
    assert_eq!(result["isError"], false, "{tool}: {result}");
    text(&result).to_owned()
}

async fn tools(client: &mut Client) -> Vec<Value> {
    client.step(json!({"do": "list"})).await["tools"].as_array().unwrap().clone()
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

/// Finds what fails, mends it, sees that it passes, and commits it.
async fn repair(client: &mut Client) {
    let found = reads(client, "grep", json!({"pattern": "def test_", "type": "py"})).await;
    assert_eq!(found, "/workspace/test_stats.py\n");
    let shown = reads(client, "read", json!({"file_path": "/workspace/test_stats.py"})).await;
    assert!(shown.contains("     5\t    assert mean([1, 2, 3]) == 2\n"), "{shown}");
    let check =
        json!({"command": "python3 -m pytest -q -p no:cacheprovider", "description": "Run the tests"});
    let failed = reads(client, "bash", check.clone()).await;
    assert!(failed.contains("assert 3.0 == 2") && failed.ends_with("[exit code 1]"), "{failed}");

    let places = json!({"pattern": "len\\(values\\) - 1", "output_mode": "content", "-n": true});
    let place = reads(client, "grep", places).await;
    // Python has compiled the two modules meanwhile.
    let line = "/workspace/stats.py:2:    return sum(values) / (len(values) - 1)\n";
    assert_eq!(place, format!("{line}[2 files or directories not searched: 2 binary]\n"));
    let edit = json!({
        "file_path": "/workspace/stats.py",
        "old_string": "(len(values) - 1)",
        "new_string": "len(values)",
    });
    let edited = reads(client, "edit", edit).await;
    assert!(edited.contains("     2\t    return sum(values) / len(values)\n"), "{edited}");
    let passed = reads(client, "bash", check).await;
    assert!(passed.contains("1 passed") && passed.ends_with("[exit code 0]"), "{passed}");

    reads(client, "git", json!({"operation": "add", "args": ["stats.py"]})).await;
    let committed =
        reads(client, "git", json!({"operation": "commit", "args": ["-m", "Divide by all"]})).await;
    assert!(committed.contains("Divide by all"), "{committed}");
}

async fn start(profile: &str) -> (Daemon, RunHandle, Client) {
    let config = "harness_on_bind: allow\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Setup::default() }).await;
    let workspace = daemon.repository("w", &[("stats.py", PROGRAM), ("test_stats.py", TEST)]);
    let request =
        v1::CreateRunRequest { issue_token: true, image: dev_image(), ..requests::bind(profile, &workspace) };
    let mut clients = daemon.connect().await;
    let created = clients.runs.create_run(request).await.unwrap().into_inner();
    let client = Client::connect(stdio(&daemon, &created.token, &[])).await;
    (daemon, RunHandle { run: Box::new(created.run.unwrap()), clients }, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_mends_a_program_under_a_profile_that_asks_for_scripts() {
    let (daemon, mut run, mut client) = start("build").await;
    let listed = tools(&mut client).await;
    assert_eq!(names(&listed), ["bash", "read", "write", "edit", "patch", "grep", "glob", "git"]);
    let bash = &listed[0];
    let described = bash["description"].as_str().unwrap();
    for said in ["approve first: more than one plain command", "never run: rm, ", "16,384 bytes"] {
        assert!(described.contains(said), "{said}: {described}");
    }
    assert!(bash["inputSchema"]["properties"]["run_in_background"].is_null(), "{bash}");

    repair(&mut client).await;

    // What the description says asks, asks.
    let waits = client.call("bash", json!({"command": "ls | wc -l"})).await;
    assert!(waits["content"].to_string().contains("PENDING_APPROVAL"), "{waits}");
    let denied = client.call("bash", json!({"command": "rm stats.py"})).await;
    assert!(denied["isError"] == true && text(&denied).contains("Command not allowed: rm"), "{denied}");
    let hidden = client.call("process", json!({"action": "start", "command": "ls"})).await;
    assert!(hidden["isError"] == true && text(&hidden).contains("`process`"), "{hidden}");
    client.leave().await;
    run.stop().await;
    let workspace = daemon.roots().join("w");
    assert_eq!(git(&workspace, &["log", "--format=%s"]), "Divide by all\nfirst\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_starts_a_process_communicates_with_it_and_stops_it() {
    let (_daemon, mut run, mut client) = start("harness").await;
    let listed = tools(&mut client).await;
    let all = ["bash", "read", "write", "edit", "patch", "grep", "glob", "git", "process"];
    assert_eq!(names(&listed), all);
    assert!(!listed.iter().any(|tool| tool.to_string().contains("approve")), "{listed:?}");
    repair(&mut client).await;

    // In the background, whose output comes when it comes.
    let serve = "i=0; while true; do i=$((i+1)); echo line $i; sleep 0.2; done";
    let started = reads(&mut client, "bash", json!({"command": serve, "run_in_background": true})).await;
    let server = process_id(&started);
    let output = json!({"action": "output", "process_id": server, "wait": 10_000});
    let first = reads(&mut client, "process", output).await;
    assert!(first.contains("line 1\n") && first.contains("is running"), "{first}");
    let after = first.rsplit_once("after \"").unwrap().1.split('"').next().unwrap();
    let more = json!({"action": "output", "process_id": server, "after": after, "wait": 10_000});
    let next = reads(&mut client, "process", more).await;
    assert!(next.starts_with("line ") && !next.contains("line 1\n"), "{next}");
    let listed = reads(&mut client, "process", json!({"action": "list"})).await;
    assert!(listed.starts_with(&format!("{server} is running: i=0; ")), "{listed}");
    let stopped = reads(&mut client, "process", json!({"action": "stop", "process_id": server})).await;
    assert!(stopped.contains("was ended by signal 15"), "{stopped}");

    // One that is spoken with.
    let start =
        json!({"action": "start", "command": "python3 -u -c 'print(int(input()) * 2); print(input())'"});
    let asks = process_id(&reads(&mut client, "process", start).await);
    let input = |text: &str| json!({"action": "input", "process_id": asks, "input": text});
    let answer = reads(&mut client, "process", input("21\n")).await;
    assert!(answer.starts_with("42\n[process "), "{answer}");
    let answer = reads(&mut client, "process", input("bye\n")).await;
    assert!(answer.starts_with("bye\n"), "{answer}");
    let wait = json!({"action": "output", "process_id": asks, "wait": 10_000, "after": "7:0"});
    let ended = reads(&mut client, "process", wait).await;
    assert!(ended.contains("has ended with exit code 0"), "{ended}");
    let none = client.call("process", json!({"action": "stop", "process_id": "none"})).await;
    assert!(none["isError"] == true && text(&none).contains("no such process"), "{none}");
    client.leave().await;

    // Each of it is a call on record, and what a process was given is not in it.
    let id = run.id().to_owned();
    let intents = run.clients.events(&id, "call_intent").await;
    let of = |name: &str| {
        let named = format!("\"operation\":\"{name}\"");
        intents.iter().filter(|intent| intent.record_json.contains(&named)).count()
    };
    let counts = ["process", "process.output", "process.input", "process.stop", "process.list"].map(of);
    assert_eq!(counts, [2, 3, 2, 2, 1]);
    assert!(!intents.iter().any(|intent| intent.record_json.contains("bye\\n")), "{intents:?}");
    let receipts = run.clients.events(&id, "call_receipt").await;
    assert_eq!(receipts.len(), intents.len());
}

fn process_id(started: &str) -> String {
    let rest = started.strip_prefix("Started process ").unwrap_or_else(|| panic!("{started}"));
    rest.split('.').next().unwrap().to_owned()
}
