//! Starts the parts of the daemon in order, serves requests, and stops the parts in order.
//!
//! ```text
//!  Opened ──recover──► Recovered ──serve──► Serving ──signal──► stopped
//! ```

mod agent_checkpoints;
mod opened;
mod parts;
mod recovered;
mod services;
mod serving;

use std::path::Path;

use refusal::chain;
use store::StoreError;

use self::opened::Opened;
use crate::config::Config;
use crate::startup::Prepared;

/// Runs the daemon until it receives SIGTERM or SIGINT. `file` is its configuration.
pub(crate) async fn run(
    config: Config,
    file: &Path,
    workers: usize,
    prepared: Prepared,
) -> anyhow::Result<()> {
    let opened = Opened::open(config, prepared).await?;
    let recovered = Box::pin(opened.recover()).await?;
    recovered.serve(workers).await?.until_stopped(file).await
}

#[allow(clippy::needless_pass_by_value)] // as `map_err` passes it
fn broken_store(error: StoreError) -> anyhow::Error {
    anyhow::anyhow!("the store: {}", chain(&error))
}
