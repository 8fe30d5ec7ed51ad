//! The official Python client, driven line by line.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use harness::{Daemon, binary};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connected client.
pub(crate) struct Client {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    /// What the server said of itself.
    pub(super) hello: Value,
}

/// How a client that starts `coffer mcp` connects.
pub(super) fn stdio(daemon: &Daemon, token: &str, arguments: &[&str]) -> Value {
    let endpoint = format!("unix:{}", daemon.socket().display());
    let arguments: Vec<&str> = ["mcp"].iter().chain(arguments).copied().collect();
    json!({"stdio": {
        "command": binary("coffer"),
        "args": arguments,
        "env": {"COFFERDAM_ENDPOINT": endpoint, "COFFERDAM_TOKEN": token},
    }})
}

/// The same with more of the first line.
pub(super) fn with(mut setup: Value, more: Value) -> Value {
    let (Some(setup_map), Value::Object(more)) = (setup.as_object_mut(), more) else { panic!("no objects") };
    setup_map.extend(more);
    setup
}

impl Client {
    /// Connects as `setup` says.
    pub(crate) async fn connect(setup: Value) -> Self {
        let script = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/clients/python/mcp_client.py"));
        let mut child = Command::new(crate::tool_lists::python())
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let output = BufReader::new(output).lines();
        let mut client = Self { child, input, output, hello: Value::Null };
        client.hello = client.step(setup).await;
        client
    }

    /// Does one thing and says what came of it.
    pub(crate) async fn step(&mut self, step: Value) -> Value {
        self.begin(step).await;
        self.end().await
    }

    /// Begins to do one thing.
    pub(super) async fn begin(&mut self, step: Value) {
        self.input.write_all(format!("{step}\n").as_bytes()).await.unwrap();
    }

    /// What came of it.
    pub(super) async fn end(&mut self) -> Value {
        let line =
            tokio::time::timeout(PATIENCE, self.output.next_line()).await.expect("the client is silent");
        serde_json::from_str(&line.unwrap().expect("the client has ended")).unwrap()
    }

    /// Calls a tool.
    pub(crate) async fn call(&mut self, name: &str, arguments: Value) -> Value {
        self.step(json!({"do": "call", "name": name, "arguments": arguments})).await
    }

    /// Hangs up, in good order.
    pub(crate) async fn leave(self) {
        let Self { mut child, input, .. } = self;
        drop(input);
        let ended = tokio::time::timeout(PATIENCE, child.wait()).await.expect("the client does not end");
        assert!(ended.unwrap().success());
    }
}

/// The text that a model sees first.
pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}"))
}
