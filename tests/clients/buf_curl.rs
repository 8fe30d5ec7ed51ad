//! The real `buf curl`, which learns the API by reflection.

use std::path::{Path, PathBuf};

use harness::{Certificates, Daemon, RunHandle, Setup, v1};
use serde_json::{Value, json};

/// `COFFERDAM_BUF`, or the one that `tests/run.sh` installs.
fn binary() -> PathBuf {
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/python/bin/buf");
    let buf = std::env::var_os("COFFERDAM_BUF").map_or_else(usual, PathBuf::from);
    assert!(buf.exists(), "buf is not installed: tests/run.sh does it, or set COFFERDAM_BUF");
    buf
}

async fn asked(way: &[&str], url: &str, method: &str, request: &Value) -> Value {
    let client = tokio::process::Command::new(binary())
        .args(["curl", "--protocol", "grpc", "--data", &request.to_string()])
        .args(way)
        .arg(format!("{url}/cofferdam.v1.{method}"))
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(std::time::Duration::from_secs(60), client).await;
    let output = output.expect("it does not end").unwrap();
    assert!(output.status.success(), "{method}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

async fn lists_and_reads(way: &[&str], url: &str, run: &RunHandle) {
    let listed = asked(way, url, "RunService/ListRuns", &json!({})).await;
    assert_eq!(listed["runs"][0]["runId"], run.id(), "{listed}");
    let read = json!({"runId": run.id(), "operation": {"read": {"path": "a.txt"}}});
    let answer = asked(way, url, "ToolService/Call", &read).await;
    assert_eq!(answer["result"]["read"]["content"], "read\n", "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn buf_curl_connects_by_socket_and_tcp() {
    let certificates = Certificates::make(&[]);
    let tcp = certificates.listen("tokens: {}");
    let daemon = Daemon::start_with(Setup { tcp, ..Default::default() }).await;
    let workspace = daemon.workspace("w", &[("a.txt", "read\n")]);
    let run = daemon.run("open", &workspace).await;
    let socket = daemon.socket().display().to_string();
    let by_socket = ["--http2-prior-knowledge", "--unix-socket", &socket];
    lists_and_reads(&by_socket, "http://localhost", &run).await;
    let token = v1::Token { name: "ci".into(), roles: vec!["operator".into()], ..Default::default() };
    let (_, secret) = daemon.token(token, None).await;
    let authority = certificates.authority().display().to_string();
    let shown = format!("authorization: Bearer {secret}");
    let by_tls = ["--cacert", &authority, "--header", &shown, "--reflect-header", "*"];
    lists_and_reads(&by_tls, &daemon.url("https"), &run).await;
}
