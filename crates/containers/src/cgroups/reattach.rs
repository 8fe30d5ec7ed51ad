//! Ends the processes that an earlier instance of this daemon left running in a container.
//!
//! No client waits for them and no client would see their output, so all of them are ended. The container's first process only keeps the
//! container alive, and stays.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::commands::Commands;
use super::companion::COMPANION;
use super::ending::KillEvidence;
use super::leaf::Leaf;
use super::process::HostProcess;
use super::{CgroupError, ContainerCgroup, Group, LEAF, collect_but, failed, pids_in};

/// Interval between two scans.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// A leaf that was found and removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftoverLeaf {
    pub name: String,
    pub evidence: KillEvidence,
}

/// Result of [`ContainerCgroup::end_leftovers`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftoversEnded {
    pub leaves: Vec<LeftoverLeaf>,
    /// Ended processes that were in no leaf: the guest, and processes not yet moved to a leaf.
    pub others: u32,
    /// Processes besides the first that were still there at the deadline. If this is not zero, the container has to be removed.
    pub left: u32,
}

impl ContainerCgroup {
    /// Ends every process of the container but `first`, and removes the leaves.
    ///
    /// The processes that `spared` names and their keepers stay. Blocks for `within` at most for each leaf, and once more for the rest.
    pub fn end_leftovers(
        &self,
        first: &HostProcess,
        spared: &BTreeSet<String>,
        within: Duration,
    ) -> Result<LeftoversEnded, CgroupError> {
        let mut seen = BTreeSet::new();
        // The guest ends before the leaves, because it adds processes to them.
        self.end_outside(first, &mut seen, Instant::now() + within)?;
        let mut leaves = Vec::new();
        let mut groups = Vec::new();
        // A keeper ends before its process, whose end it would otherwise report.
        for commands in [self.keepers()].into_iter().chain(Group::ALL.map(|group| self.commands(group))) {
            match fs::read_dir(commands.dir()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                read => groups.push((commands, read.map_err(failed("list the leaves"))?)),
            }
        }
        let mut stay: BTreeSet<PathBuf> = BTreeSet::new();
        for (commands, entry) in
            groups.into_iter().flat_map(|(commands, read)| read.map(move |entry| (commands.clone(), entry)))
        {
            let entry = entry.map_err(failed("list the leaves"))?;
            let name = entry.file_name();
            let Some(name) = name.to_str().and_then(|name| name.strip_prefix(LEAF)) else { continue };
            if spared.contains(name) && self.outlives(&commands) {
                stay.insert(entry.path());
                continue;
            }
            // The value removes the leaf when it is dropped, if it is empty.
            let leaf = Leaf::existing(self.hierarchy, entry.path());
            leaves.push(LeftoverLeaf { name: name.to_owned(), evidence: leaf.kill_all(within)? });
        }
        leaves.sort_by(|a, b| a.name.cmp(&b.name));
        // Once more, for processes that left the leaves meanwhile.
        self.end_outside(first, &mut seen, Instant::now() + within)?;
        self.meters.remove_leftovers();
        let others = u32::try_from(seen.len()).unwrap_or(u32::MAX);
        Ok(LeftoversEnded { leaves, others, left: self.left(first, &|path| stay.contains(path))? })
    }

    /// Ends every process of the container for a worker that was lost, and returns how many are left.
    ///
    /// It spares `first`, the processes that outlive a worker, and their keepers. A lost worker's processes have no waiter, and they could
    /// end the next worker. The leaves stay for the code that made them. Blocks for about three times `within` at most.
    pub fn end_others(&self, first: &HostProcess, within: Duration) -> Result<u32, CgroupError> {
        let mut seen = BTreeSet::new();
        self.end_outside(first, &mut seen, Instant::now() + within)?;
        for group in Group::OF_WORKER {
            self.commands(group).end(within)?;
        }
        self.end_outside(first, &mut seen, Instant::now() + within)?;
        let stay = [self.keepers(), self.commands(Group::Processes)];
        self.left(first, &|path| stay.iter().any(|commands| commands.dir() == path))
    }

    /// Returns true if the processes in these leaves belong to no worker.
    fn outlives(&self, commands: &Commands) -> bool {
        [self.keepers(), self.commands(Group::Processes)].iter().any(|those| those.dir() == commands.dir())
    }

    /// Counts the processes besides the first, except in the cgroups that stay: a process there may fork at any moment. A companion is
    /// not the container's.
    fn left(&self, first: &HostProcess, stays: &dyn Fn(&Path) -> bool) -> Result<u32, CgroupError> {
        let mut pids = Vec::new();
        let companion = self.dir.join(COMPANION);
        // Leaves are two levels below.
        collect_but(&self.dir, 2, &|path| stays(path) || path == companion, &mut pids)?;
        let left = pids.into_iter().filter(|pid| raw(*pid) != first.pid()).count();
        Ok(u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// Ends the processes in the container's own cgroup, outside of any leaf.
    fn end_outside(
        &self,
        first: &HostProcess,
        seen: &mut BTreeSet<u32>,
        deadline: Instant,
    ) -> Result<(), CgroupError> {
        loop {
            let held: Vec<_> = self.others(first)?.into_iter().filter_map(HostProcess::open).collect();
            if held.is_empty() {
                return Ok(());
            }
            // A pid that is in the list after the process was opened was not reused in between.
            let still: BTreeSet<_> = self.others(first)?.into_iter().map(raw).collect();
            for process in held.iter().filter(|process| still.contains(&process.pid())) {
                seen.insert(process.pid());
                process.kill(deadline.saturating_duration_since(Instant::now()));
            }
            if Instant::now() >= deadline {
                return Ok(());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn others(&self, first: &HostProcess) -> Result<Vec<Pid>, CgroupError> {
        Ok(pids_in(&self.dir)?.into_iter().filter(|pid| raw(*pid) != first.pid()).collect())
    }
}

fn raw(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}
