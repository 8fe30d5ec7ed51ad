//! Processes that wait for the run's next commands, each in a separate leaf.
//!
//! Making and placing a process is the larger part of the cost of a short command. So they are made in advance. A command that finds none
//! waiting gets a new process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use containers::ContainerCgroup;
use parking_lot::Mutex;
use worker_protocol::client::{Client, Prepared};

use crate::placement::{LeafPlacement, unique};

/// Number of waiting processes: one for the next command, and one for a client that does not wait for its end.
const WAITING: usize = 2;

/// Number of processes for which the container must have free slots before one is made in advance.
///
/// Otherwise the kernel might refuse the process, and the refusal would be attributed to the command that runs meanwhile.
const LEFT_FREE: u64 = 4;

/// A process that waits.
pub(crate) struct Ready {
    pub(crate) prepared: Prepared,
    pub(crate) leaf: Arc<LeafPlacement>,
}

/// The waiting processes of one worker. They are dropped with it.
#[derive(Default)]
pub(crate) struct Prefork {
    ready: Mutex<VecDeque<Ready>>,
    /// True while processes are being made.
    making: AtomicBool,
}

impl Prefork {
    /// Takes the process that has waited longest, if there is one.
    pub(crate) fn take(&self) -> Option<Ready> {
        self.ready.lock().pop_front()
    }

    /// Makes the missing processes in a task, unless one does so already.
    pub(crate) fn refill(self: &Arc<Self>, client: Client, cgroup: ContainerCgroup, guest_host_pid: u32) {
        if self.ready.lock().len() >= WAITING || self.making.swap(true, Ordering::AcqRel) {
            return;
        }
        // The task ends by itself within seconds, and sooner with the worker.
        let place = Arc::downgrade(self);
        tokio::spawn(async move {
            let is_wanted =
                |prefork: &Arc<Self>| prefork.ready.lock().len() < WAITING && cgroup.can_start(LEFT_FREE);
            while let Some(prefork) = place.upgrade().filter(is_wanted) {
                drop(prefork);
                let leaf = Arc::new(LeafPlacement::new(cgroup.clone(), guest_host_pid, unique("prefork")));
                let made = client.prepare(leaf.clone()).await;
                let Some(prefork) = place.upgrade() else { return };
                match made {
                    Ok(prepared) => prefork.ready.lock().push_back(Ready { prepared, leaf }),
                    // The next command gets a new process instead.
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
}
