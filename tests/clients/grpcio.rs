//! The real grpcio, as the framework's users install it, with default options.

use harness::Daemon;

use crate::tool_lists::python;

#[tokio::test(flavor = "multi_thread")]
async fn it_connects_by_the_socket_and_calls_and_streams() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "read\n")]);
    let run = daemon.run("open", &workspace).await;
    let at = |path: &str| format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    for how in ["sync", "aio"] {
        let client = tokio::process::Command::new(python())
            .arg(at("clients/python/grpc_client.py"))
            .arg(at("../crates/wire/src/generated/descriptors.bin"))
            .args([&format!("unix:{}", daemon.socket().display()), how, run.id()])
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(std::time::Duration::from_secs(60), client).await;
        let output = output.expect("it does not end").unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            said,
            "read\n".repeat(5) + "streamed\n",
            "{how}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
