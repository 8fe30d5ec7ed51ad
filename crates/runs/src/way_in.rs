//! The network of a run, for connections from outside to its servers.

use std::os::fd::OwnedFd;

use containers::Boundary;
use executor::Lanes;
use operations::Reason;
use refusal::Refusal;

use crate::run::{Run, is_held_totally, is_resuming};

impl Run {
    /// Returns a pidfd of the container's first process, in whose network namespace the run's servers listen.
    ///
    /// A run that is paused, or that does not take calls, is refused.
    pub async fn network(&self) -> Result<OwnedFd, Refusal> {
        let lanes = self.lanes_resumed().await?;
        let refused = |why: &str| Refusal::new(Reason::PreconditionFailed, why);
        if lanes.guest().boundary() == Boundary::OwnKernel {
            return Err(refused(
                "the run has a kernel of its own (gVisor), and its network cannot be entered from this host: use a \
                 profile without `runtime: runsc` to forward ports",
            ));
        }
        network_of(&lanes, "the run's network cannot be entered")
    }

    /// Waits until something other than a call that waits for its approval holds the run.
    pub async fn paused(&self) {
        let mut record = self.record.clone();
        let held = record.wait_for(|record| is_held_totally(record) && !is_resuming(record)).await.is_ok();
        if !held {
            // The task of the run is over, which `ended` reports.
            std::future::pending::<()>().await;
        }
    }
}

/// Returns a pidfd of the first process of a container whose network namespace is on this host.
///
/// `what` is the consequence for the client if there is none.
pub(crate) fn network_of(lanes: &Lanes, what: &str) -> Result<OwnedFd, Refusal> {
    let first = lanes.guest().first_process().ok_or_else(|| {
        let message = format!(
            "the engine's processes are not visible to the daemon (a rootless or remote engine), so {what}"
        );
        Refusal::new(Reason::PreconditionFailed, message)
    })?;
    first.handle().map_err(|error| Refusal::internal("opening the run's network", &error))
}
