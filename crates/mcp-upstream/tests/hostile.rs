//! Programs that are spoken with over pipes, and are hostile: each test is the program, at the other ends.

#![allow(clippy::unwrap_used)] // a program that cannot speak fails its test

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use cofferdam_mcp_upstream::{Fault, Host, Output, Pipes, Servers, Subject};
use operations::{Mcp, McpTool, Outcome, Reason};
use policy::{McpServer, McpStdio, McpTransport};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio_rustls::rustls::ClientConfig;
use tokio_util::sync::CancellationToken;

/// A program that says hello, lists one tool, and does with calls what the test says.
struct Program {
    starts: AtomicUsize,
    called: fn(u64, mpsc::Sender<Output>),
    /// Gets each message that is no request for tools.
    seen: mpsc::UnboundedSender<Value>,
}

#[async_trait]
impl Host for Program {
    fn start(&self, _: &str, _: &McpStdio, mut pipes: Pipes) -> Result<(), Fault> {
        self.starts.fetch_add(1, Ordering::Relaxed);
        let (called, seen) = (self.called, self.seen.clone());
        tokio::spawn(async move {
            while let Some(line) = pipes.input.recv().await {
                let message: Value = serde_json::from_str(&line).unwrap();
                let id = message["id"].as_u64().unwrap_or_default();
                let result = match message["method"].as_str().unwrap_or_default() {
                    "initialize" => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}),
                    "tools/list" => json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}),
                    "tools/call" => {
                        called(id, pipes.output.clone());
                        let _ = seen.send(message);
                        continue;
                    }
                    method => {
                        let is_ping = method == "ping";
                        let _ = seen.send(message);
                        if !is_ping {
                            continue;
                        }
                        json!({})
                    }
                };
                say(&pipes.output, &json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
            }
        });
        Ok(())
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, Fault> {
        Err(Fault::Absent("there is no TLS here".to_owned()))
    }

    async fn record(&self, _: Subject, _: Value) {}
}

async fn say(output: &mpsc::Sender<Output>, message: &Value) -> bool {
    output.send(Output::Stdout(format!("{message}\n").into())).await.is_ok()
}

fn program(called: fn(u64, mpsc::Sender<Output>)) -> (Program, mpsc::UnboundedReceiver<Value>) {
    let (seen, messages) = mpsc::unbounded_channel();
    (Program { starts: AtomicUsize::new(0), called, seen }, messages)
}

async fn call(servers: &Servers, program: &Program, cancel: &CancellationToken) -> Outcome {
    let definition = McpServer {
        description: String::new(),
        transport: McpTransport::Stdio(McpStdio { command: vec!["x".into()], env: [].into() }),
        start_timeout_s: 10,
        call_timeout_s: 60,
        max_result_bytes: 1_024,
        max_tools: 8,
        pins: [].into(),
    };
    let mcp = Mcp { tool: McpTool::new("s", "t").unwrap(), arguments: Map::new() };
    servers.call(program, &definition, &mcp, None, cancel).await.0
}

async fn kind_of_failure(called: fn(u64, mpsc::Sender<Output>)) -> String {
    let (program, _messages) = program(called);
    let failure = call(&Servers::default(), &program, &CancellationToken::new()).await.unwrap_err();
    assert_eq!(failure.reason, Reason::UpstreamFailed, "{failure:?}");
    failure.details["kind"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_and_endless_lines_end_the_server() {
    let flood = kind_of_failure(|_, output| {
        tokio::spawn(async move {
            let text = "x".repeat(4_096);
            while say(&output, &json!({"jsonrpc": "2.0", "method": "notifications/message", "params": text}))
                .await
            {}
        });
    });
    assert_eq!(flood.await, "protocol");
    let line = kind_of_failure(|_, output| {
        tokio::spawn(
            async move { while output.send(Output::Stdout(vec![b'x'; 65_536].into())).await.is_ok() {} },
        );
    });
    assert_eq!(line.await, "protocol");
    let end = kind_of_failure(|_, output| {
        tokio::spawn(async move { output.send(Output::Ended(Fault::Lost("it ended".to_owned()))).await });
    });
    assert_eq!(end.await, "lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_is_cancelled_at_its_server_which_is_then_pinged() {
    let (program, mut messages) = program(|_, _| {});
    let (servers, cancel) = (Servers::default(), CancellationToken::new());
    let watch = async {
        let mut next = async || messages.recv().await.unwrap();
        assert_eq!(next().await["method"], "notifications/initialized");
        let called = next().await;
        assert_eq!(called["params"], json!({"name": "t", "arguments": {}}));
        cancel.cancel();
        let cancelled = next().await;
        assert_eq!(
            (&cancelled["method"], &cancelled["params"]["requestId"]),
            (&json!("notifications/cancelled"), &called["id"])
        );
        assert_eq!(next().await["method"], "ping");
    };
    let (outcome, ()) = tokio::join!(call(&servers, &program, &cancel), watch);
    assert_eq!(outcome.unwrap_err().reason, Reason::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_calls_are_bounded_and_one_server_may_use_all() {
    let (program, mut messages) = program(|_, _| {});
    let (servers, cancel) = (Servers::default(), CancellationToken::new());
    let calls = futures_util::future::join_all((0..70).map(|_| call(&servers, &program, &cancel)));
    let watch = async {
        for _ in 0..65 {
            tokio::time::timeout(Duration::from_secs(30), messages.recv()).await.unwrap().unwrap();
        }
        cancel.cancel();
    };
    let (outcomes, ()) = tokio::join!(calls, watch);
    let busy =
        outcomes.iter().filter(|outcome| outcome.as_ref().unwrap_err().reason == Reason::Overloaded).count();
    assert_eq!((busy, program.starts.load(Ordering::Relaxed)), (6, 1));
}
