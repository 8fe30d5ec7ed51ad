//! A process that waits to become a command: made and placed before there is one.
//!
//! Moving a process to another cgroup makes the kernel wait for a grace period of RCU, ten milliseconds and more on a
//! quiet host. That is no call's time when it has happened before.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use wire::worker::v1::{Cancel, Prepare, to_worker::Body};

use crate::client::shared::Shared;
use crate::client::table::Event;
use crate::client::{Client, LaneError, Placement};

/// For the worker to make it.
const MAKING: Duration = Duration::from_secs(5);

/// A process that waits, in its place. Dropping it ends it.
pub struct Prepared {
    shared: Arc<Shared>,
    id: u64,
    placement: Arc<dyn Placement>,
    /// Nobody else sees to its end.
    unused: bool,
}

impl Client {
    /// Has the worker make a process that waits, and puts it into its place.
    pub async fn prepare(&self, placement: Arc<dyn Placement>) -> Result<Prepared, LaneError> {
        let shared = &self.inner.shared;
        if shared.stop.is_cancelled() {
            return Err(shared.lost());
        }
        let id = shared.next_id();
        let mut events = shared.table(|table| table.prepare(id));
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
        // From here on its end is seen to, whatever happens.
        let prepared =
            Prepared { shared: Arc::clone(shared), id, placement: Arc::clone(&placement), unused: true };
        let placed = timeout(MAKING, placement.place(pid)).await;
        placed.map_err(|_| LaneError::TimedOut)?.map_err(LaneError::NotPlaced)?;
        Ok(prepared)
    }
}

impl Prepared {
    /// Whether it waits at the other end of this stream.
    pub(super) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// Gives it to a call, which owes its placement a finish.
    pub(super) fn used(mut self) -> Arc<dyn Placement> {
        self.unused = false;
        Arc::clone(&self.placement)
    }

    /// The number by which the worker knows it.
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
