//! The interface that this crate needs from the program that uses it.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use policy::McpStdio;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_rustls::rustls::ClientConfig;
use tokio_util::sync::CancellationToken;

use super::fault::Fault;

/// Run that the servers belong to, for the time of one call.
#[async_trait]
pub trait Host: Send + Sync {
    /// Starts a server's program in the container where the run's commands run.
    ///
    /// `name` distinguishes its starts. If the program cannot be run, [`Output::Ended`] may report that later.
    fn start(&self, name: &str, program: &McpStdio, pipes: Pipes) -> Result<(), Fault>;

    /// Returns the TLS configuration that authenticates remote servers.
    fn tls(&self) -> Result<Arc<ClientConfig>, Fault>;

    /// Records an event. No call waits for the disk.
    async fn record(&self, subject: Subject, details: Value);
}

/// Other ends of a program's pipes.
#[derive(Debug)]
pub struct Pipes {
    /// Messages for its standard input, each to be written as one line.
    pub input: mpsc::Receiver<String>,
    /// Receives the program's output, and its end as the last item. When this channel is full, the output must not be read further.
    pub output: mpsc::Sender<Output>,
    /// When cancelled, the program has to end with everything that it started.
    pub end: CancellationToken,
}

#[derive(Debug)]
pub enum Output {
    /// Bytes of its standard output.
    Stdout(Bytes),
    /// Bytes of its standard error.
    Stderr(Bytes),
    /// End of the program, or failure to run it: [`Fault::Lost`] or [`Fault::Absent`].
    Ended(Fault),
}

/// Subject of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A server was started or reached, could not be, or has ended.
    Server,
    /// A tool's definition differs from the one that the run or the policy knows.
    ToolChanged,
}
