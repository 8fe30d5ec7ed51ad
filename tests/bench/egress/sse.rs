//! Memory of `coffer-egress` with many streams of events whose tokens count.

use std::time::Duration;

use harness::v1::signal_process_request::Signal;
use harness::{process, requests};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{NAME, SETTLED, daemon, memory};
use crate::program;
use crate::report::mib;
use crate::stage::install;
use crate::table::Row;

const STREAMS: &str = "500";
/// Most memory of `coffer-egress` with these.
const MEMORY: u64 = 60 << 20;
/// Time between two events of a stream.
const EVERY: Duration = Duration::from_millis(500);
const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
const EVENT: &str = "data: {\"type\":\"message_start\",\"message\":{\"model\":\"m\",\"usage\":{\"input_tokens\":7,\"output_tokens\":1}}}\n\n";

/// Measures the memory with the streams. `other` is the memory before.
pub(crate) async fn measure() -> Row {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(stream_events(stream));
        }
    });
    let daemon = daemon(
        &format!(
            "{{ networks: [\"127.0.0.0/8\"], connections_per_minute: 100000, rules: [\
             {{ host: {NAME}, ports: [{port}], scheme: http, meter: tokens, decision: allow }}] }}"
        ),
        "",
    )
    .await;
    let workspace = daemon.workspace("streams", &[]);
    install(&program::compile("caller", daemon.outside()), &workspace.join("caller"));
    let mut run = daemon.run_on(requests::bind("out", &workspace)).await;
    let before = memory(&daemon);
    let held = process::command(&["/workspace/caller", "streams", NAME, &port, STREAMS]);
    let id = run.start(held).await.process_id;
    run.until(&id, "held").await;
    tokio::time::sleep(SETTLED).await;
    let after = memory(&daemon);
    run.send(&id, Signal::Kill).await.unwrap();
    run.waited(&id).await;
    eprintln!("streams of events: done");
    Row {
        what: format!("memory, {STREAMS} streams of events with tokens"),
        other: mib(before),
        ours: mib(after),
        difference: format!("+{}", mib(after.saturating_sub(before))),
        target: format!("≤ {}", mib(MEMORY)),
        met: Some(after <= MEMORY),
    }
}

/// Sends an event after the other, until the client leaves.
async fn stream_events(mut stream: TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let mut text = format!("{HEAD}{EVENT}");
    while stream.write_all(text.as_bytes()).await.is_ok() {
        EVENT.clone_into(&mut text);
        tokio::time::sleep(EVERY).await;
    }
}
