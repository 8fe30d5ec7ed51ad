//! Starts the parts of the daemon in order, serves requests, and stops the parts in order.
//!
//! ```text
//!  Opened ──recover──► Recovered ──serve──► Serving ──signal──────► stopped
//!                                                  └─successor──► hands over
//! ```

mod agent_checkpoints;
mod hand_over;
mod opened;
mod parts;
mod recovered;
mod services;
mod serving;

use std::path::Path;
use std::sync::Arc;

use daemon_log::{Log, REPORT};
use refusal::chain;
use service_manager::ServiceManager;
use store::StoreError;
use take_over::{Heir, StopSignals};
use tokio::signal::unix::Signal;

use self::opened::Opened;
use crate::config::Config;
use crate::hand_over::Beginning;
use crate::startup::Prepared;

/// The end of a daemon. It has stopped in order in both cases.
pub(crate) enum Ended {
    Stopped,
    /// Another process waits to be the daemon, and all runs are left to it. A request to stop may have come since.
    HandsOver(Heir, StopSignals),
}

/// Things of the process that a daemon has from its first moment.
pub(crate) struct Process {
    pub(crate) log: Arc<Log>,
    pub(crate) manager: Arc<ServiceManager>,
    /// Requests to reload since the configuration was read.
    pub(crate) hangups: Signal,
    /// Requests to stop since the beginning, for a daemon that goes on after a hand-over that failed.
    ///
    /// Another daemon may be ended during its start.
    pub(crate) stops: Option<StopSignals>,
}

/// Runs the daemon until it receives SIGTERM or SIGINT, or until another process takes over. `file` is its configuration.
pub(crate) async fn run(
    (config, file): (Config, &Path),
    workers: usize,
    prepared: Prepared,
    process: Process,
    beginning: &mut Beginning,
) -> anyhow::Result<Ended> {
    let Process { log, manager, hangups, stops } = process;
    let lively = manager.clone();
    tokio::spawn(async move { lively.keep_alive().await });
    let reported = log.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(REPORT).await;
            reported.report();
        }
    });
    let opened = Opened::open(config, prepared, beginning.policy.take()).await?;
    let recovered = Box::pin(opened.recover(|| beginning.may_lose_runs())).await?;
    let own = (&log, &manager, stops);
    let mut serving = recovered.serve(workers, file, own, &beginning.listeners).await?;
    let heirs = serving.open_to_heirs(file, &beginning.listeners);
    let follows = beginning.follows();
    beginning.is_ready();
    // The service manager listens to the main process alone, which a successor is only now.
    serving.is_ready();
    if follows {
        serving.catch_up();
    }
    let ended = serving.until_stopped(hangups, &beginning.listeners, heirs).await;
    log.report_all();
    ended
}

#[allow(clippy::needless_pass_by_value)] // as `map_err` passes it
fn broken_store(error: StoreError) -> anyhow::Error {
    anyhow::anyhow!("the store: {}", chain(&error))
}
