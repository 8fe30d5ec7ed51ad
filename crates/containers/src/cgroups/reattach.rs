//! What an earlier life of this program has left running in a container.
//!
//! Nobody waits for it any more, and nobody would see what it does: all of it ends. The container's first process only
//! keeps the container, and stays.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::commands::Commands;
use super::ending::KillEvidence;
use super::leaf::Leaf;
use super::process::HostProcess;
use super::{CgroupError, ContainerCgroup, Group, LEAF, collect_but, failed, pids_in};

/// The wait between two scans.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// A leaf that was there, and is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerLeaf {
    pub name: String,
    pub evidence: KillEvidence,
}

/// What came of [`ContainerCgroup::end_former`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FormerEnded {
    pub leaves: Vec<FormerLeaf>,
    /// Processes in no leaf that were ended: the guest, and what was not placed yet.
    pub others: u32,
    /// Processes besides the first that were still there at the deadline. Zero, or the container has to go.
    pub left: u32,
}

impl ContainerCgroup {
    /// Ends every process of the container but `first`, and removes the leaves. What keeps the processes that `spared` names,
    /// and they themselves, stay. Blocks, `within` at the longest for each leaf and once for the rest.
    pub fn end_former(
        &self,
        first: &HostProcess,
        spared: &BTreeSet<String>,
        within: Duration,
    ) -> Result<FormerEnded, CgroupError> {
        let mut seen = BTreeSet::new();
        // The guest before the leaves, because it is what puts processes there.
        self.end_outside(first, &mut seen, Instant::now() + within)?;
        let mut leaves = Vec::new();
        let mut groups = Vec::new();
        // A keeper before its process, which it would see the end of.
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
            // Goes with the value, when it is empty.
            let leaf = Leaf::former(self.hierarchy, entry.path());
            leaves.push(FormerLeaf { name: name.to_owned(), evidence: leaf.kill_all(within)? });
        }
        leaves.sort_by(|a, b| a.name.cmp(&b.name));
        // Again, for what came out of them meanwhile.
        self.end_outside(first, &mut seen, Instant::now() + within)?;
        self.meters.remove_former();
        let others = u32::try_from(seen.len()).unwrap_or(u32::MAX);
        Ok(FormerEnded { leaves, others, left: self.left(first, &|path| stay.contains(path))? })
    }

    /// Ends every process of the container but `first`, those that outlive a worker, and their keepers, for a worker that was lost:
    /// what it had started is nobody's to wait for, and would be there to end the next one. The leaves stay, for those who have made them. Returns how many processes are left.
    /// Blocks, for about three times `within` at the longest.
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

    /// Whether what is in these leaves is no worker's.
    fn outlives(&self, commands: &Commands) -> bool {
        [self.keepers(), self.commands(Group::Processes)].iter().any(|those| those.dir() == commands.dir())
    }

    /// Processes besides the first, without those in the cgroups that stay: a process that stays may make others at any moment.
    fn left(&self, first: &HostProcess, stays: &dyn Fn(&Path) -> bool) -> Result<u32, CgroupError> {
        let mut pids = Vec::new();
        // Leaves are two levels below.
        collect_but(&self.dir, 2, stays, &mut pids)?;
        let left = pids.into_iter().filter(|pid| raw(*pid) != first.pid()).count();
        Ok(u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// Ends what is in the container's own cgroup, outside of any leaf.
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
            // What is in the list after it was opened is what was opened: its number cannot have been given anew.
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
