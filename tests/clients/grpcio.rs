//! The real grpcio, today's and that of two years ago, with default options.

use harness::{Certificates, Daemon, RunHandle, Setup, v1};

use crate::python_sdk::former_python;
use crate::tool_lists::python;

/// Each form of the client, with these arguments beside: how many runs it is shown, what it reads and what is streamed to it.
async fn lists_reads_and_streams(endpoint: &str, run: &RunHandle, secured: &[&str]) {
    let at = |path: &str| format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    let forms = [(python(), "sync"), (python(), "aio"), (former_python(), "sync"), (former_python(), "aio")];
    for (python, how) in forms {
        let client = tokio::process::Command::new(&python)
            .arg(at("clients/python/grpc_client.py"))
            .arg(at("../crates/wire/src/generated/descriptors.bin"))
            .args([endpoint, how, run.id()])
            .args(secured)
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(std::time::Duration::from_secs(60), client).await;
        let output = output.expect("it does not end").unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            said,
            format!("1\n{}streamed\n", "read\n".repeat(5)),
            "{} {how}: {}",
            python.display(),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grpcio_lists_calls_and_streams_by_socket() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "read\n")]);
    let run = daemon.run("open", &workspace).await;
    lists_reads_and_streams(&format!("unix:{}", daemon.socket().display()), &run, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grpcio_connects_over_tcp_with_token_or_certificate() {
    let certificates = Certificates::make(&["ci"]);
    let tcp = certificates.listen("tokens: {}");
    let config = "access: [{ certificate: ci, roles: [operator] }]\n".to_owned();
    let daemon = Daemon::start_with(Setup { tcp, config, ..Default::default() }).await;
    let workspace = daemon.workspace("w", &[("a.txt", "read\n")]);
    let run = daemon.run("open", &workspace).await;
    let token = v1::Token { name: "ci".into(), roles: vec!["operator".into()], ..Default::default() };
    let (_, secret) = daemon.token(token, None).await;
    let authority = certificates.authority().display().to_string();
    let endpoint = daemon.url("https").replace("https://", "");
    lists_reads_and_streams(&endpoint, &run, &[&authority, &secret]).await;
    let at = |name: &str| certificates.client("ci").join(name).display().to_string();
    lists_reads_and_streams(&endpoint, &run, &[&authority, "", &at("cert.pem"), &at("key.pem")]).await;
}
