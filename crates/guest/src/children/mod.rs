//! The commands that are this process's children, and the only place that makes and reaps them.
//!
//! Invariant: a child is in the table from before anybody else can see it until it is reaped. Making and entering it
//! happens under one lock. To look at the table, at `/proc`, and at the table again takes no command for an orphan: one
//! that is new is in the second look, and one that is reaped meanwhile is in the first.

mod filter;
pub(crate) mod look;
mod own_kernel;
mod preforks;
mod tree;

use std::collections::{HashMap, HashSet};
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use seccompiler::BpfProgram;
use tokio::sync::oneshot;

pub(crate) use filter::{Kernel, programs as filters};
pub(crate) use preforks::Preforks;

use crate::sys::{self, Exit, Plan, Prefork, Spawned};

/// At the end of the guest, everything has to be gone by then.
const END: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

pub(crate) struct Children {
    /// The parent of orphans.
    orphanage: i32,
    live: Mutex<HashMap<i32, oneshot::Sender<Exit>>>,
    filters: Vec<BpfProgram>,
}

impl Children {
    /// For a guest whose commands' orphans get this parent.
    pub(crate) fn new(orphanage: i32) -> Result<Self, seccompiler::BackendError> {
        let kernel = if orphanage == own_pid() { Kernel::Linux } else { Kernel::Own };
        Ok(Self { orphanage, live: Mutex::default(), filters: filters(kernel)? })
    }

    /// Makes one. The receiver gets its end.
    pub(crate) fn spawn(&self, plan: &Plan) -> io::Result<(Spawned, oneshot::Receiver<Exit>)> {
        let (exit, exited) = oneshot::channel();
        let mut live = self.live.lock();
        let spawned = sys::spawn(plan, &self.filters)?;
        live.insert(spawned.pid, exit);
        Ok((spawned, exited))
    }

    /// Makes a process that waits to become one. The receiver gets its end.
    pub(crate) fn prefork(&self) -> io::Result<(Prefork, oneshot::Receiver<Exit>)> {
        let (exit, exited) = oneshot::channel();
        let mut live = self.live.lock();
        let prefork = Prefork::fork(&self.filters)?;
        live.insert(prefork.pid, exit);
        Ok((prefork, exited))
    }

    /// Reaps everything that is over, orphans too.
    pub(crate) fn reap(&self) {
        let mut live = self.live.lock();
        while let Some((pid, exit)) = sys::reap() {
            if let Some(waiting) = live.remove(&pid) {
                let _ = waiting.send(exit);
            }
        }
    }

    /// Sends a command a signal, unless it is reaped already and its number perhaps another's.
    pub(crate) fn signal(&self, pid: i32, wanted: Signal) {
        if self.live.lock().contains_key(&pid) {
            signal(pid, wanted);
        }
    }

    /// The commands that live now.
    pub(crate) fn live(&self) -> HashSet<i32> {
        self.live.lock().keys().copied().collect()
    }

    /// Of these processes, what belongs to `command` alone. `before` lived before they were looked at.
    pub(crate) fn doomed(
        &self,
        processes: &[look::Process],
        command: i32,
        before: &HashSet<i32>,
    ) -> Vec<i32> {
        let live = self.live.lock();
        tree::doomed(processes, self.orphanage, command, |pid| {
            before.contains(&pid) || live.contains_key(&pid)
        })
    }

    /// Ends every process below the guest, and orphans. Blocks; for when the guest itself ends.
    pub(crate) fn end_all(&self) {
        let until = Instant::now() + END;
        loop {
            self.reap();
            let look = look::look();
            let all = tree::below(&look.processes, [own_pid(), self.orphanage]);
            if (all.is_empty() && look.is_whole) || Instant::now() > until {
                return;
            }
            for pid in all {
                signal(pid, Signal::KILL);
            }
            sleep(LOOK_AGAIN);
        }
    }
}

/// Sends a signal; a process that is gone already is what was wanted.
pub(crate) fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

pub(crate) fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_reaped_during_a_look_is_no_orphan() {
        let children = Children::new(own_pid()).unwrap();
        let mut other = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(other.id()).unwrap();
        let look = look::look();
        let doomed = |before| children.doomed(&look.processes, 0, &before).contains(&pid);
        let (orphan, command) = (doomed(HashSet::new()), doomed(HashSet::from([pid])));
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(orphan && !command);
    }
}
