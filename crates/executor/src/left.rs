//! Background processes that a command left running, if its profile keeps them.
//!
//! They are moved to a leaf among the processes that outlive their calls before the command's end is reported. From then on, the end of a
//! worker or of a daemon spares them, and they are ended through their leaf.

use std::io;
use std::time::Duration;

use containers::{CgroupError, ContainerCgroup, Group, HostProcess, Leaf};
use operations::KillEvidence;
use refusal::chain;

use crate::ending::{end, nothing_left};
use crate::metered::Metered;

/// Time in which all of them have to be moved.
const MOVING: Duration = Duration::from_secs(2);
/// Interval between two checks whether any is left, each of which reads one small file. cgroup v1 offers nothing to wait on.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// All background processes of one command. Dropping the value leaves them running for the next daemon.
pub struct Left {
    cgroup: ContainerCgroup,
    leaf: Option<Leaf>,
    /// Number of processes when they were moved.
    pub processes: u32,
}

impl Left {
    /// Finds the processes that an earlier daemon kept under this name.
    pub(crate) fn find(cgroup: ContainerCgroup, name: &str, processes: u32) -> Self {
        let (leaf, _) = cgroup.process_leaves(name).unwrap_or_default();
        Self { cgroup, leaf, processes }
    }

    /// Moves all processes of a command's leaf, or returns `None` if there are none.
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

    /// Adds the process that reads their output.
    pub(crate) fn add(&mut self, reader: &HostProcess) -> Result<(), CgroupError> {
        self.leaf.as_mut().map_or(Ok(()), |leaf| leaf.add(reader))
    }

    /// Waits until none of them is left.
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

/// Returns the name of the leaf for a call's background processes.
pub(crate) fn name(call: &str) -> String {
    format!("process-{call}")
}

/// Logs why background processes of a command are ended after all.
pub(crate) fn not_kept(error: &CgroupError) {
    tracing::warn!(error = %chain(error), "the background processes of a command could not be registered and are ended");
}
