//! A process that waits in a leaf of its own for the run's next command.
//!
//! Making one and moving it there is the larger part of what a short command costs: on a quiet host the kernel waits
//! ten milliseconds and more for each move. So one is made ahead of time, when nobody waits for it. A command that comes
//! before the next one is there gets a process of its own as ever.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use containers::ContainerCgroup;
use worker::client::{Client, Prepared};

use super::placement::LeafPlacement;

/// A process that waits.
pub(super) struct Ready {
    pub(super) prepared: Prepared,
    pub(super) leaf: Arc<LeafPlacement>,
}

/// The place for one. One for each worker: it goes with it.
#[derive(Default)]
pub(super) struct Spare {
    ready: Mutex<Option<Ready>>,
    /// One is being made.
    making: AtomicBool,
    made: AtomicU64,
}

impl Spare {
    /// Takes it, if it is there.
    pub(super) fn take(&self) -> Option<Ready> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Has one made, unless there is one or one is being made.
    pub(super) fn refill(self: &Arc<Self>, client: Client, cgroup: ContainerCgroup, agent_host_pid: u32) {
        let there = self.ready.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if there || self.making.swap(true, Ordering::AcqRel) {
            return;
        }
        // Ends by itself within seconds, and sooner with the worker.
        let place = Arc::downgrade(self);
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let leaf = Arc::new(LeafPlacement::new(cgroup, agent_host_pid, format!("spare-{number}")));
            let made = client.prepare(leaf.clone()).await;
            drop(client);
            let Some(place) = place.upgrade() else { return };
            match made {
                Ok(prepared) => {
                    let ready = Some(Ready { prepared, leaf });
                    *place.ready.lock().unwrap_or_else(PoisonError::into_inner) = ready;
                }
                // The next command does without.
                Err(error) => tracing::debug!(%error, "no process waits for the next command"),
            }
            place.making.store(false, Ordering::Release);
        });
    }
}
