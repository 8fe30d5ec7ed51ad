//! `coffer mcp` as the server of the official Python client.

use std::process::Stdio;

use harness::{Daemon, binary};
use serde_json::{Value, json};

use super::python::{Client, stdio, text, with};
use super::run_with_token;

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_listed_with_their_hints_and_read_edit_and_run() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\ntwo\n")]);
    let (mut run, token) = run_with_token(&daemon, "open", &workspace).await;
    for (mode, protocol) in [("auto", "2026-07-28"), ("legacy", "2025-11-25")] {
        let setup = with(stdio(&daemon, &token, &["--run", run.id()]), json!({"mode": mode}));
        let mut client = Client::connect(setup).await;
        assert_eq!(client.hello["protocol"], protocol);
        assert_eq!(client.hello["server"], "cofferdam");
        assert!(client.hello["instructions"].as_str().unwrap().contains("PENDING_APPROVAL"));

        let listed = client.step(json!({"do": "list"})).await;
        let tools = listed["tools"].as_array().unwrap();
        let hints = |name: &str| {
            let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
            (tool["annotations"]["readOnlyHint"].clone(), tool["annotations"]["destructiveHint"].clone())
        };
        assert_eq!(hints("read"), (json!(true), json!(false)));
        assert_eq!(hints("edit"), (json!(false), json!(true)));

        let read = client.call("read", json!({"file_path": "a.txt"})).await;
        assert!(text(&read).contains("     1\tone\n     2\ttwo") && read["isError"] == false, "{read}");
        let edit = json!({"file_path": "a.txt", "old_string": "two", "new_string": mode});
        let edited = client.call("edit", edit).await;
        assert_eq!(edited["isError"], false, "{edited}");
        let counted = client.call("bash", json!({"command": "wc -l a.txt"})).await;
        assert!(text(&counted).contains("2 a.txt"), "{counted}");

        // A tool that fails is a result that says why, one that is none an error of the protocol.
        let gone = client.call("read", json!({"file_path": "gone"})).await;
        assert_eq!(gone["isError"], true, "{gone}");
        let unknown = client.call("no_such_tool", json!({})).await;
        assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
        let wrong = client.call("read", json!({"file_path": 7})).await;
        assert!(wrong["isError"] == true && text(&wrong).contains("path"), "{wrong}");
        client.leave().await;
        let back = json!({"path": "a.txt", "content": "one\ntwo\n"});
        let write = harness::calls::write("a.txt", back["content"].as_str().unwrap());
        run.ok(write).await;
    }
    let intents = run.clients.events(&run.run.run_id, "call_intent").await;
    assert!(intents.iter().any(|intent| intent.record_json.contains("\"via\":\"run_token\"")), "{intents:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_structured_where_the_dialect_has_a_schema() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let (_run, token) = run_with_token(&daemon, "open", &workspace).await;
    let mut client = Client::connect(stdio(&daemon, &token, &["--dialect", "fs"])).await;
    // The client itself holds them to the schema that is listed.
    client.step(json!({"do": "list"})).await;
    let read = client.call("fs.read", json!({"path": "@project/a.txt"})).await;
    assert_eq!(read["structuredContent"]["ok"], true, "{read}");
    assert_eq!(serde_json::from_str::<Value>(text(&read)).unwrap(), read["structuredContent"]);
    let gone = client.call("fs.read", json!({"path": "gone"})).await;
    assert_eq!(gone["structuredContent"]["error"]["code"], "ENOENT", "{gone}");
    client.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_good_token_nothing_is_served_and_standard_output_stays_empty() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let (mut run, token) = run_with_token(&daemon, "open", &workspace).await;
    let refused = async |token: Option<&str>, arguments: &[&str]| {
        let mut command = tokio::process::Command::new(binary("coffer"));
        command.args(["mcp"]).args(arguments).stdin(Stdio::null());
        command.env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display()));
        match token {
            Some(token) => command.env("COFFERDAM_TOKEN", token),
            None => command.env_remove("COFFERDAM_TOKEN"),
        };
        let output = command.output().await.unwrap();
        assert!(output.stdout.is_empty(), "{output:?}");
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = refused(None, &[]).await;
    assert!(code == 2 && said.contains("--issue-token"), "{code} {said}");
    let mut forged = token.clone();
    forged.replace_range(token.len() - 4.., "AAAA");
    let (code, said) = refused(Some(&forged), &[]).await;
    assert!(code == 3 && !said.contains(&forged), "{code} {said}");
    let (code, _) = refused(Some(&token), &["--run", "ffffffff"]).await;
    assert_eq!(code, 2);
    run.stop().await;
    let (code, said) = refused(Some(&token), &[]).await;
    assert!(code == 3 && said.contains("ends with"), "{code} {said}");
}
