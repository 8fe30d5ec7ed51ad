//! Tests the real grpclib, which implements HTTP/2 without gRPC's own library, with default options.

use harness::{Certificates, Daemon, RunHandle, Setup, v1};

use crate::tool_lists::python;

/// Lists the runs, reads a file and streams the output of a command.
async fn lists_reads_and_streams(endpoint: &str, run: &RunHandle, secured: &[&str]) {
    let at = |path: &str| format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    let client = tokio::process::Command::new(python())
        .arg(at("clients/python/grpclib_client.py"))
        .arg(at("../crates/wire/src/generated/descriptors.bin"))
        .args([endpoint, run.id()])
        .args(secured)
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(std::time::Duration::from_secs(60), client).await;
    let output = output.expect("it does not end").unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = format!("1\n{}streamed\n", "read\n".repeat(5));
    assert_eq!(said, expected, "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn grpclib_connects_by_socket_and_tcp() {
    let certificates = Certificates::make(&[]);
    let tcp = certificates.listen("tokens: {}");
    let daemon = Daemon::start_with(Setup { tcp, ..Default::default() }).await;
    let workspace = daemon.workspace("w", &[("a.txt", "read\n")]);
    let run = daemon.run("open", &workspace).await;
    lists_reads_and_streams(&format!("unix:{}", daemon.socket().display()), &run, &[]).await;
    let token = v1::Token { name: "ci".into(), roles: vec!["operator".into()], ..Default::default() };
    let (_, secret) = daemon.token(token, None).await;
    let authority = certificates.authority().display().to_string();
    let endpoint = daemon.url("https").replace("https://", "");
    lists_reads_and_streams(&endpoint, &run, &[&authority, &secret]).await;
}
