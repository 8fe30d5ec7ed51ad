//! The public conformance suite against the HTTP endpoint of a real daemon. What it says is printed.
//!
//! Most of its scenarios for servers call tools, prompts and resources that the suite wants a server to have for the purpose
//! (`test_simple_text` and the like). A server with a purpose of its own has none of them: what they look at (content of all
//! kinds, logging, progress, elicitation) the tests beside this one look at with the official client. So here are those that need
//! nothing but a server.

use std::path::{Path, PathBuf};
use std::process::Output;

use tokio::process::Command;

use super::http::daemon;
use super::run_with_token;

/// Need no fixture of the suite.
const APPLY: [&str; 7] = [
    "server-initialize",
    "logging-set-level",
    "ping",
    "tools-list",
    "resources-list",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
];

/// Need tools, prompts or resources that the suite brings along, and features that a run's tools have not: sampling, prompts,
/// completion, subscriptions to resources.
const NEED_FIXTURES: [&str; 25] = [
    "completion-complete",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-with-logging",
    "tools-call-error",
    "tools-call-with-progress",
    "tools-call-sampling",
    "tools-call-elicitation",
    "json-schema-2020-12",
    "elicitation-sep1034-defaults",
    "server-sse-polling",
    "elicitation-sep1330-enums",
    "resources-read-text",
    "resources-read-binary",
    "resources-templates-read",
    "resources-subscribe",
    "resources-unsubscribe",
    "prompts-list",
    "prompts-get-simple",
    "prompts-get-with-args",
    "prompts-get-embedded-resource",
    "prompts-get-with-image",
];

/// `COFFERDAM_MCP_CONFORMANCE`, or where `tests/run.sh` installs it.
fn installed() -> PathBuf {
    let usual = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/tools/conformance"));
    let place = std::env::var_os("COFFERDAM_MCP_CONFORMANCE").map_or_else(usual, PathBuf::from);
    assert!(
        place.join("node_modules").exists() && place.join("bin/node").exists(),
        "MCP's conformance suite is not installed: tests/run.sh does it, or set COFFERDAM_MCP_CONFORMANCE"
    );
    place
}

fn suite(place: &Path) -> Command {
    let mut command = Command::new(place.join("bin/node"));
    command.arg(place.join("node_modules/@modelcontextprotocol/conformance/dist/index.js"));
    command.kill_on_drop(true);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_scenario_that_needs_no_fixture_passes() {
    let place = installed();
    let (daemon, port) = daemon("").await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let (_run, token) = run_with_token(&daemon, "open", &workspace).await;
    let preload = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/conformance/token.cts");
    let mut failed = Vec::new();
    for scenario in APPLY {
        let mut command = suite(&place);
        command.args(["server", "--url", &format!("http://localhost:{port}/mcp"), "--scenario", scenario]);
        command.env("COFFERDAM_TOKEN", &token).env("CONFORMANCE_MODULES", place.join("node_modules"));
        command.env("NODE_OPTIONS", format!("--require {preload}"));
        let output = command.output().await.unwrap();
        let said = said(&output);
        println!("{said}");
        if !output.status.success() || !said.contains("0 failed") {
            failed.push(scenario);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

/// So that a scenario that is new in another version is not left out unseen.
#[tokio::test]
async fn every_scenario_is_run_or_left_out_by_name() {
    let output = suite(&installed()).arg("list").output().await.unwrap();
    let said = said(&output);
    let (servers, _) = said.split_once("Client scenarios").expect("it lists them");
    let mut listed: Vec<&str> =
        servers.lines().filter_map(|line| line.trim().strip_prefix("- ")?.split(' ').next()).collect();
    let mut known: Vec<&str> = APPLY.iter().chain(&NEED_FIXTURES).copied().collect();
    listed.sort_unstable();
    known.sort_unstable();
    assert_eq!(listed, known);
}
