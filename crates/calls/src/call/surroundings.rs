//! What is known of a command beside its lane: its run, the disk quota, and where processes that it leaves running are kept.

use std::sync::Arc;
use std::time::Instant;

use executor::{CommandContext, Left};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use operations::KillEvidence;
use processes::{LeftBy, Processes};
use runs::Run;

/// Refused connections that a hint names.
const REFUSED: usize = 3;

/// The surroundings of a call's command.
pub(super) struct Surroundings<'c> {
    pub(super) processes: &'c Processes,
    pub(super) run: &'c Arc<Run>,
    /// Data for the processes that it leaves running, where the profile keeps them.
    pub(super) by: Option<LeftBy<'c>>,
    pub(super) began: Instant,
    pub(super) offers_processes: bool,
}

impl CommandContext for Surroundings<'_> {
    fn keep(&self, left: Left) -> BoxFuture<'_, Result<(), KillEvidence>> {
        async move {
            match &self.by {
                Some(by) => self.processes.keep_left(self.run, by, left).await,
                None => Err(processes::end_left(left).await),
            }
        }
        .boxed()
    }

    fn over_quota(&self) -> bool {
        self.run.disk.ended_since(self.began)
    }

    fn is_disk_of_host(&self) -> bool {
        self.run.disk.ended_for_disk()
    }

    fn memory_limit(&self) -> u64 {
        self.run.spec().limits.memory_bytes
    }

    fn run_ended(&self) -> bool {
        self.run.ended.is_cancelled()
    }

    fn offers_processes(&self) -> bool {
        self.offers_processes
    }

    fn refused(&self) -> Vec<String> {
        let Some(egress) = self.run.egress() else { return Vec::new() };
        let refused = egress.view().refused_since(self.began);
        refused.into_iter().take(REFUSED).map(|refused| refused.for_agent()).collect()
    }
}
