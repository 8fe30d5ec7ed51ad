//! What the servers of a run need from the program that uses this crate.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use gateway::McpStdio;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_rustls::rustls::ClientConfig;
use tokio_util::sync::CancellationToken;

use super::fault::Fault;

/// The run that servers belong to, as it is during one call.
#[async_trait]
pub trait Host: Send + Sync {
    /// Starts a server's program where the run's commands run. `name` tells its starts apart. Whether the program can be
    /// run at all may also be said later, by [`Output::Ended`].
    fn start(&self, name: &str, program: &McpStdio, pipes: Pipes) -> Result<(), Fault>;

    /// How servers elsewhere prove who they are.
    fn tls(&self) -> Result<Arc<ClientConfig>, Fault>;

    /// Records an event. No call waits for the disk.
    async fn record(&self, subject: Subject, details: Value);
}

/// The other ends of a program's pipes.
#[derive(Debug)]
pub struct Pipes {
    /// Messages for its standard input, to be written a line each.
    pub input: mpsc::Receiver<String>,
    /// Gets what the program writes, and its end as the last. A program whose output waits here is read no further.
    pub output: mpsc::Sender<Output>,
    /// When cancelled, the program has to end with everything that it started.
    pub end: CancellationToken,
}

#[derive(Debug)]
pub enum Output {
    /// It wrote to its standard output.
    Stdout(Bytes),
    /// It wrote to its standard error.
    Stderr(Bytes),
    /// It ended, or could not be run: [`Fault::Lost`] or [`Fault::Absent`].
    Ended(Fault),
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A server: it was started or reached, could not be, or has ended.
    Server,
    /// A tool whose definition is not what the run, or the policy, knows it by.
    ToolChanged,
}
