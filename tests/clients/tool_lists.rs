//! The tool lists of a real run, held to the types of the vendors' own Python packages; no network is used.

use std::path::PathBuf;
use std::process::Stdio;

use harness::v1::list_tools_request::Format;
use harness::{Daemon, RunHandle, v1};
use serde_json::{Map, Value, json};
use tokio::io::AsyncWriteExt as _;

const DIALECTS: [&str; 7] = ["code", "native", "fs", "exec", "gateway", "forge", "editor"];

/// `COFFERDAM_VENDOR_PYTHON`, or where `tests/run.sh` installs the packages.
pub(crate) fn python() -> PathBuf {
    let installed =
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/tools/vendors/bin/python"));
    let python = std::env::var_os("COFFERDAM_VENDOR_PYTHON").map_or_else(installed, PathBuf::from);
    assert!(
        python.exists(),
        "the packages of openai, anthropic, mcp and OCSF are not installed: tests/run.sh does it, or set COFFERDAM_VENDOR_PYTHON"
    );
    python
}

/// Whether all of it fits, and what was said.
async fn check(lists: &Value) -> (bool, String) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/python/tool_lists.py");
    let mut child = tokio::process::Command::new(python())
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(lists.to_string().as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), said)
}

async fn list(run: &mut RunHandle, dialect: &str, format: Format) -> Value {
    let request = v1::ListToolsRequest {
        run_id: run.id().to_owned(),
        dialect: dialect.to_owned(),
        format: format.into(),
    };
    let listed = run.clients.tools.list_tools(request).await.unwrap().into_inner();
    serde_json::from_str(&listed.tools_json).unwrap()
}

async fn lists(run: &mut RunHandle) -> Value {
    let mut all = Map::new();
    for (format, vendor) in
        [(Format::Openai, "openai"), (Format::Anthropic, "anthropic"), (Format::Mcp, "mcp")]
    {
        let mut by_dialect = Map::new();
        for dialect in DIALECTS {
            by_dialect.insert(dialect.to_owned(), list(run, dialect, format).await);
        }
        all.insert(vendor.to_owned(), by_dialect.into());
    }
    all.insert("results".to_owned(), json!([]));
    all.insert("misfits".to_owned(), json!([]));
    all.into()
}

/// What a call is rendered as, with the schema that MCP's list has for it.
async fn result(run: &mut RunHandle, lists: &Value, dialect: &str, tool: &str, arguments: Value) -> Value {
    let call = v1::DialectCall {
        dialect: dialect.to_owned(),
        name: tool.to_owned(),
        arguments_json: arguments.to_string(),
    };
    let call = run.call(call).await.unwrap();
    let tools = lists["mcp"][dialect].as_array().unwrap();
    let listed = tools.iter().find(|listed| listed["name"] == tool).unwrap();
    json!({"tool": tool, "schema": listed["outputSchema"], "rendered": call.rendered})
}

#[tokio::test(flavor = "multi_thread")]
async fn every_list_fits_the_types_of_its_vendor() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n"), ("b.md", "---\ntitle: b\n---\n\nbody\n")]);
    let mut run = daemon.run("open", &workspace).await;
    let mut lists = lists(&mut run).await;
    let front_matter = json!({"operation": "updateFrontmatter", "update": {"currentNodeId": {"set": "x"}}});
    let mut results = Vec::new();
    for (dialect, tool, arguments) in [
        ("fs", "fs.list", json!({"path": "@project"})),
        ("fs", "fs.read", json!({"path": "a.txt"})),
        ("fs", "fs.read", json!({"path": "a.txt", "startLine": 9})),
        ("fs", "fs.read", json!({"path": "gone"})),
        ("fs", "fs.read", json!({"path": "../gone"})),
        ("fs", "fs.search", json!({"path": ".", "pattern": "one"})),
        ("fs", "fs.write", json!({"path": "c", "content": "x"})),
        ("fs", "fs.write", json!({"path": "c"})),
        ("fs", "fs.apply_patch", json!({"path": "b.md", "patch": front_matter})),
        ("exec", "exec", json!({"command": "cat", "args": ["a.txt"]})),
        ("exec", "exec", json!({"command": "cat", "args": ["gone"]})),
        ("exec", "exec", json!({"command": "rm", "args": ["a.txt"]})),
        ("gateway", "read_file", json!({"path": "a.txt"})),
        ("gateway", "list_directory", json!({})),
        ("gateway", "search_code", json!({"pattern": "one"})),
        ("gateway", "write_file", json!({"path": "d", "content": "x"})),
        ("gateway", "delete_file", json!({"path": "d"})),
        ("gateway", "run_command", json!({"command": "sudo"})),
    ] {
        results.push(result(&mut run, &lists, dialect, tool, arguments).await);
    }
    lists["results"] = results.into();
    let (fits, said) = check(&lists).await;
    println!("{said}");
    assert!(fits, "{said}");
    assert_eq!(said.matches(" tools fit\n").count(), 21, "{said}");
    assert!(said.contains("18 results fit"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_does_not_fit_is_found() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run("open", &daemon.workspace("w", &[])).await;
    let mut lists = lists(&mut run).await;
    let mut misfits = Vec::new();
    for (vendor, dialect, pointer, key, value) in [
        ("openai", "fs", "/0/function", "parameter", json!({})),
        ("openai", "fs", "/0", "type", json!("tool")),
        ("openai", "fs", "/1/function", "strict", json!(true)),
        ("anthropic", "exec", "/0", "input_schema", json!("object")),
        ("anthropic", "exec", "/0", "parameters", json!({})),
        ("mcp", "native", "/0", "inputSchema", Value::Null),
        ("mcp", "native", "/0/annotations", "readOnlyHint", json!("perhaps")),
        ("mcp", "exec", "/0", "outputSchema", json!({"type": "list"})),
    ] {
        let mut tools = lists[vendor][dialect].clone();
        tools.pointer_mut(pointer).unwrap()[key] = value;
        misfits.push(json!({"vendor": vendor, "dialect": dialect, "tools": tools}));
    }
    let count = misfits.len();
    lists["misfits"] = misfits.into();
    let (found, said) = check(&lists).await;
    assert!(found, "{said}");
    assert_eq!(said.matches("a misfit is found: ").count(), count, "{said}");
}
