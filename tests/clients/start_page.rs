//! The examples of the book's start page for `grpcurl`, copied as they stand; only the socket is another one.

use harness::{Daemon, binary};

const PAGE: &str = include_str!("../../docs/src/start.md");
const SOCKET: &str = "/run/cofferdam/cofferd.sock";

/// The block of commands that speaks of `grpcurl` and the socket.
fn examples() -> &'static str {
    let blocks = PAGE.split("```").skip(1).step_by(2);
    let block = blocks.into_iter().find(|block| block.contains("grpcurl ") && block.contains(SOCKET));
    let block = block.expect("the page shows grpcurl");
    block.split_once('\n').expect("a block begins with a line of its own").1
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_of_the_start_page_work_as_they_stand() {
    let daemon = Daemon::start().await;
    let script = examples().replace(SOCKET, &daemon.socket().display().to_string());
    let tools = [super::grpcurl::binary(), binary("coffer")];
    let tools: Vec<_> = tools.iter().map(|tool| tool.parent().unwrap().display().to_string()).collect();
    let path = format!("{}:{}", tools.join(":"), std::env::var("PATH").unwrap());
    let mut command = tokio::process::Command::new("bash");
    command.args(["-euo", "pipefail", "-c", &script]).env("PATH", path).kill_on_drop(true);
    let output = tokio::time::timeout(std::time::Duration::from_secs(60), command.output()).await;
    let output = output.expect("the examples do not end").unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}\n{out}\n{err}");
    for word in ["cofferdam.v1.ToolService", "SUCCEEDED", "\"exec\"", "call_receipt"] {
        assert!(out.contains(word), "{word}: {out}");
    }
    assert!(!out.contains("FAILED") && !out.contains("DENIED"), "{out}");
}
