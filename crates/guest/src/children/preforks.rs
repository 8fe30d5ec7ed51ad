//! Processes that wait to become commands, by the number that the daemon gave to each.

use std::collections::HashMap;
use std::io;

use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::sync::oneshot;

use super::Children;
use crate::sys::{Exit, Plan, Prefork, Spawned};

/// Most that wait at the same time. The daemon keeps one.
const MOST: usize = 4;

#[derive(Default)]
pub(crate) struct Preforks(Mutex<HashMap<u64, Waiting>>);

/// A process that waits. It exits when this is dropped.
pub(crate) struct Waiting {
    prefork: Prefork,
    exited: oneshot::Receiver<Exit>,
}

impl Preforks {
    /// Makes a process that waits, and returns its pid.
    pub(crate) fn make(&self, id: u64, children: &Children) -> io::Result<i32> {
        let mut waiting = self.0.lock();
        if waiting.len() >= MOST || waiting.contains_key(&id) {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let (prefork, exited) = children.prefork()?;
        let pid = prefork.pid;
        waiting.insert(id, Waiting { prefork, exited });
        Ok(pid)
    }

    /// Ends a process that is no longer needed, if it exists.
    pub(crate) fn dismiss(&self, id: u64) {
        drop(self.take(id));
    }

    /// Takes a process out, for the command that it will become.
    pub(crate) fn take(&self, id: u64) -> Option<Waiting> {
        self.0.lock().remove(&id)
    }
}

impl Waiting {
    /// Turns the process into a command with pipes. Returns `None` if it is gone, or if the plan does not fit. The command has not begun
    /// then.
    pub(crate) fn become_command(
        mut self,
        plan: &Plan,
        children: &Children,
    ) -> Option<(Spawned, oneshot::Receiver<Exit>)> {
        if plan.terminal.is_some() || self.exited.try_recv().is_ok() {
            return None;
        }
        // A process of the container may have stopped it.
        children.signal(self.prefork.pid, Signal::CONT);
        Some((self.prefork.become_command(plan)?, self.exited))
    }
}
