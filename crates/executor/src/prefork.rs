//! Processes that wait, each in a leaf of its own, for the run's next commands.
//!
//! Making one and putting it there is the larger part of what a short command costs. So they are made ahead of time, when
//! nobody waits. A command that comes while none is there gets a process of its own as ever.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use containers::ContainerCgroup;
use worker_protocol::client::{Client, Prepared};

use crate::placement::{LeafPlacement, unique};

/// As many wait: one for the next command, and one for who does not wait for that to end.
const WAITING: usize = 2;

/// Processes that the container must have room for before one is made ahead. One that the kernel refused would look like the
/// doing of the command that runs meanwhile.
const LEFT_FREE: u64 = 4;

/// A process that waits.
pub(crate) struct Ready {
    pub(crate) prepared: Prepared,
    pub(crate) leaf: Arc<LeafPlacement>,
}

/// The place for them. One for each worker: they go with it.
#[derive(Default)]
pub(crate) struct Prefork {
    ready: Mutex<VecDeque<Ready>>,
    /// Some are being made.
    making: AtomicBool,
}

impl Prefork {
    /// Takes the one that has waited longest, if there is one.
    pub(crate) fn take(&self) -> Option<Ready> {
        self.ready().pop_front()
    }

    /// Has those made that are missing, unless that is being done.
    pub(crate) fn refill(self: &Arc<Self>, client: Client, cgroup: ContainerCgroup, guest_host_pid: u32) {
        if self.ready().len() >= WAITING || self.making.swap(true, Ordering::AcqRel) {
            return;
        }
        // Ends by itself within seconds, and sooner with the worker.
        let place = Arc::downgrade(self);
        tokio::spawn(async move {
            let is_wanted =
                |prefork: &Arc<Self>| prefork.ready().len() < WAITING && cgroup.has_room(LEFT_FREE);
            while let Some(prefork) = place.upgrade().filter(is_wanted) {
                drop(prefork);
                let leaf = Arc::new(LeafPlacement::new(cgroup.clone(), guest_host_pid, unique("prefork")));
                let made = client.prepare(leaf.clone()).await;
                let Some(prefork) = place.upgrade() else { return };
                match made {
                    Ok(prepared) => prefork.ready().push_back(Ready { prepared, leaf }),
                    // The next command does without.
                    Err(error) => {
                        tracing::debug!(%error, "no process waits for the next command");
                        break;
                    }
                }
            }
            drop(client);
            if let Some(prefork) = place.upgrade() {
                prefork.making.store(false, Ordering::Release);
            }
        });
    }

    fn ready(&self) -> MutexGuard<'_, VecDeque<Ready>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
