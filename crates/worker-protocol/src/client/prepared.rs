//! A process that is made and placed before its command is known.
//!
//! Moving a process to another cgroup makes the kernel wait for an RCU grace period, ten milliseconds and more on an idle host. Doing it in
//! advance saves this time in the call.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use wire::worker::v1::{Cancel, Prepare, to_worker::Body};

use crate::client::shared::Shared;
use crate::client::table::Event;
use crate::client::{Client, LaneError, Placement};

/// Time that the worker has to make it.
const MAKING: Duration = Duration::from_secs(5);

/// A placed process that waits. Dropping it ends the process.
pub struct Prepared {
    shared: Arc<Shared>,
    id: u64,
    placement: Arc<dyn Placement>,
    /// True while the drop has to end the process.
    unused: bool,
}

impl Client {
    /// Asks the worker for a waiting process, and places it.
    pub async fn prepare(&self, placement: Arc<dyn Placement>) -> Result<Prepared, LaneError> {
        let shared = &self.inner.shared;
        if shared.stop.is_cancelled() {
            return Err(shared.lost());
        }
        let id = shared.next_id();
        let mut events = shared.table(|table| table.prepare(id));
        // From here on, dropping the value ends the process, even if the worker makes it only later.
        let prepared =
            Prepared { shared: Arc::clone(shared), id, placement: Arc::clone(&placement), unused: true };
        shared.say(id, Body::Prepare(Prepare {})).await?;
        let pid = match timeout(MAKING, events.recv()).await {
            Ok(Some(Event::Spawned(pid))) => pid,
            Ok(Some(_)) => return Err(LaneError::NotPlaced("no process could be made".to_owned())),
            Ok(None) => return Err(shared.lost()),
            Err(_) => {
                shared.table(|table| table.abandon(id));
                return Err(LaneError::TimedOut);
            }
        };
        let placed = timeout(MAKING, placement.place(pid)).await;
        placed.map_err(|_| LaneError::TimedOut)?.map_err(LaneError::NotPlaced)?;
        Ok(prepared)
    }
}

impl Prepared {
    /// Returns true if the process belongs to this stream.
    pub(super) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// Gives the process to a call, which has to call its placement's `finish`.
    pub(super) fn used(mut self) -> Arc<dyn Placement> {
        self.unused = false;
        Arc::clone(&self.placement)
    }

    /// Returns the id by which the worker knows it.
    pub(super) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if !self.unused {
            return;
        }
        let (shared, id, placement) = (Arc::clone(&self.shared), self.id, Arc::clone(&self.placement));
        let drivers = shared.drivers.clone();
        drivers.spawn_on(
            async move {
                let _ = shared.say(id, Body::Cancel(Cancel {})).await;
                placement.finish(true).await;
            },
            &runtime,
        );
    }
}
