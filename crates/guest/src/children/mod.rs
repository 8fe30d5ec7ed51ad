//! The commands, which are children of this process. No other code makes or reaps them.
//!
//! Invariant: a child is in the table before any other code can see it, until it is reaped. One lock covers the fork and the entry in the
//! table. So code that reads the table, then `/proc`, then the table again never takes a command for an orphan. A new command is in the
//! second read, and a command that is reaped in between is in the first.

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

/// Time in which all processes have to end when the guest ends.
const END: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

pub(crate) struct Children {
    /// The process that becomes the parent of orphans.
    orphanage: i32,
    live: Mutex<HashMap<i32, oneshot::Sender<Exit>>>,
    filters: Vec<BpfProgram>,
}

impl Children {
    /// Makes the table for a guest whose commands' orphans get this parent.
    pub(crate) fn new(orphanage: i32) -> Result<Self, seccompiler::BackendError> {
        let kernel = if orphanage == own_pid() { Kernel::Linux } else { Kernel::Own };
        Ok(Self { orphanage, live: Mutex::default(), filters: filters(kernel)? })
    }

    /// Starts a command. The receiver gets its exit.
    pub(crate) fn spawn(&self, plan: &Plan) -> io::Result<(Spawned, oneshot::Receiver<Exit>)> {
        let (exit, exited) = oneshot::channel();
        let mut live = self.live.lock();
        let spawned = sys::spawn(plan, &self.filters)?;
        live.insert(spawned.pid, exit);
        Ok((spawned, exited))
    }

    /// Makes a process that waits to become a command. The receiver gets its exit.
    pub(crate) fn prefork(&self) -> io::Result<(Prefork, oneshot::Receiver<Exit>)> {
        let (exit, exited) = oneshot::channel();
        let mut live = self.live.lock();
        let prefork = Prefork::fork(&self.filters)?;
        live.insert(prefork.pid, exit);
        Ok((prefork, exited))
    }

    /// Reaps all children that have ended, including orphans.
    pub(crate) fn reap(&self) {
        let mut live = self.live.lock();
        while let Some((pid, exit)) = sys::reap() {
            if let Some(waiting) = live.remove(&pid) {
                let _ = waiting.send(exit);
            }
        }
    }

    /// Sends a signal to a command, unless it is reaped: its number may belong to another process by then.
    pub(crate) fn signal(&self, pid: i32, wanted: Signal) {
        if self.live.lock().contains_key(&pid) {
            signal(pid, wanted);
        }
    }

    /// Returns the commands that are alive now.
    pub(crate) fn live(&self) -> HashSet<i32> {
        self.live.lock().keys().copied().collect()
    }

    /// Returns those of these processes that belong only to `command`. `before` are the commands that were alive before the look.
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

    /// Ends every process below the guest, and orphans. Blocks, because the guest itself is ending.
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

/// Sends a signal. If the process is already gone, that is no error.
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
    fn command_reaped_during_a_scan_is_not_an_orphan() {
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
