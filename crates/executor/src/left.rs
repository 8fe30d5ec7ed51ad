//! Processes that a command left running, where its profile keeps them.
//!
//! They are moved to a leaf among the processes that stay before anything is said of the command's end. From then on they are
//! spared by the end of a worker and of a daemon, and ended by their leaf.

use std::io;
use std::time::Duration;

use containers::{CgroupError, ContainerCgroup, Group, HostProcess, Leaf};
use ops::{KillEvidence, Operation};
use refusal::chain;
use wire::v1::ProcessRequest;
use wire::v1::operation::Kind;

use crate::ending::{end, nothing_left};
use crate::metered::Metered;

/// For all of them to be moved.
const MOVING: Duration = Duration::from_secs(2);
/// Between two looks whether any is there, each of which reads one small file. cgroup v1 has nothing to wait on.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// All processes that one command left running. Dropped, they stay, for the next daemon.
pub struct Left {
    cgroup: ContainerCgroup,
    leaf: Option<Leaf>,
    /// Number of processes when they were moved.
    pub processes: u32,
}

impl Left {
    /// Finds the processes that an earlier daemon kept under this name.
    pub(crate) fn find(cgroup: ContainerCgroup, name: &str, processes: u32) -> Self {
        let (leaf, _) = cgroup.former_process(name).unwrap_or_default();
        Self { cgroup, leaf, processes }
    }

    /// Moves all processes of a command's leaf; returns `None` if there are none.
    ///
    /// After an error all of them have been ended, except those that are still in the command's leaf. Blocks.
    pub(crate) fn take(
        cgroup: &ContainerCgroup,
        from: &Leaf,
        name: &str,
    ) -> Result<Option<Self>, CgroupError> {
        let mut leaf = cgroup.leaf(Group::Processes, name)?;
        match from.move_all(&mut leaf, MOVING) {
            Ok(0) => Ok(None),
            Ok(processes) => Ok(Some(Self { cgroup: cgroup.clone(), leaf: Some(leaf), processes })),
            Err(error) => {
                end(&leaf, cgroup, false);
                Err(error)
            }
        }
    }

    /// Adds the process that reads what they write.
    pub(crate) fn add(&mut self, reader: &HostProcess) -> Result<(), CgroupError> {
        self.leaf.as_mut().map_or(Ok(()), |leaf| leaf.add(reader))
    }

    /// Waits until none of them is there.
    pub async fn over(&self) {
        let Some(leaf) = &self.leaf else { return };
        while leaf.pids().is_ok_and(|pids| !pids.is_empty()) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Sends a signal to each of them. Blocks.
    pub fn signal(&self, number: i32) -> io::Result<()> {
        let sent = self.leaf.as_ref().map_or(Ok(()), |leaf| leaf.signal_all(number));
        sent.map_err(io::Error::other)
    }

    /// Ends all of them. Blocks.
    pub fn end(&self) -> (KillEvidence, Metered) {
        let Some(leaf) = &self.leaf else { return (nothing_left(), Metered::default()) };
        let (evidence, peak_memory_bytes) = end(leaf, &self.cgroup, false);
        (evidence, Metered { cpu_time: leaf.cpu_time(), peak_memory_bytes })
    }
}

/// The name of the leaf in which what a call left is kept.
pub(crate) fn name(call: &str) -> String {
    format!("process-{call}")
}

/// The command as the list of processes shows it.
pub fn request_of(operation: &Operation) -> ProcessRequest {
    match operation.message().kind {
        Some(Kind::Exec(exec)) => ProcessRequest {
            command: exec.command,
            args: exec.args,
            cwd: exec.cwd,
            ..ProcessRequest::default()
        },
        Some(Kind::Shell(shell)) => {
            ProcessRequest { script: shell.script, cwd: shell.cwd, ..ProcessRequest::default() }
        }
        _ => ProcessRequest::default(),
    }
}

/// Says in the log why what a command left is ended after all.
pub(crate) fn not_kept(error: &CgroupError) {
    tracing::warn!(error = %chain(error), "what a command left running could not be kept and is ended");
}
