//! Processes that wait to become commands, by the number under which the daemon asked for them.

use std::collections::HashMap;
use std::io;

use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::sync::oneshot;

use super::Children;
use crate::sys::{Exit, Plan, Prefork, Spawned};

/// As many as wait at the same time. The daemon keeps one.
const MOST: usize = 4;

#[derive(Default)]
pub(crate) struct Preforks(Mutex<HashMap<u64, Waiting>>);

/// One of them. Dropping it makes it exit.
pub(crate) struct Waiting {
    prefork: Prefork,
    exited: oneshot::Receiver<Exit>,
}

impl Preforks {
    /// Makes one, and says its pid.
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

    /// It is not needed any more, if it is there at all.
    pub(crate) fn dismiss(&self, id: u64) {
        drop(self.take(id));
    }

    /// For the command that it is to become.
    pub(crate) fn take(&self, id: u64) -> Option<Waiting> {
        self.0.lock().remove(&id)
    }
}

impl Waiting {
    /// Makes it a command with pipes. `None` where it is gone, or the plan does not fit: it has not begun then.
    pub(crate) fn become_command(
        mut self,
        plan: &Plan,
        children: &Children,
    ) -> Option<(Spawned, oneshot::Receiver<Exit>)> {
        if plan.terminal.is_some() || self.exited.try_recv().is_ok() {
            return None;
        }
        // What runs beside it may have stopped it.
        children.signal(self.prefork.pid, Signal::CONT);
        Some((self.prefork.become_command(plan)?, self.exited))
    }
}
