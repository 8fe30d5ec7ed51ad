//! What an earlier life of this program has left running in a container.
//!
//! Nobody waits for it any more, and nobody would see what it does: all of it ends. The container's first process only
//! keeps the container, and stays.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::ending::KillEvidence;
use super::leaf::Leaf;
use super::process::HostProcess;
use super::{CgroupError, ContainerCgroup, Group, LEAF, failed, pids_in};

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
    /// Ends every process of the container but `first`, and removes the leaves. Blocks, `within` at the longest for each
    /// leaf and once for the rest.
    pub fn end_former(&self, first: &HostProcess, within: Duration) -> Result<FormerEnded, CgroupError> {
        let mut seen = BTreeSet::new();
        // The guest before the leaves, because it is what puts processes there.
        self.end_outside(first, &mut seen, Instant::now() + within)?;
        let mut leaves = Vec::new();
        let mut groups = Vec::new();
        for group in Group::ALL {
            match fs::read_dir(self.commands(group).dir()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                read => groups.push(read.map_err(failed("list the leaves"))?),
            }
        }
        for entry in groups.into_iter().flatten() {
            let entry = entry.map_err(failed("list the leaves"))?;
            let name = entry.file_name();
            let Some(name) = name.to_str().and_then(|name| name.strip_prefix(LEAF)) else { continue };
            // Goes with the value, when it is empty.
            let leaf = Leaf::former(self.hierarchy, entry.path());
            leaves.push(FormerLeaf { name: name.to_owned(), evidence: leaf.kill_all(within)? });
        }
        leaves.sort_by(|a, b| a.name.cmp(&b.name));
        // Again, for what came out of them meanwhile.
        self.end_outside(first, &mut seen, Instant::now() + within)?;
        self.meters.remove_former();
        let others = u32::try_from(seen.len()).unwrap_or(u32::MAX);
        Ok(FormerEnded { leaves, others, left: self.left(first)? })
    }

    /// Ends every process of the container but `first`, for a worker that was lost: what it had started is nobody's to wait for, and
    /// would be there to end the next one. The leaves stay, for those who have made them. Returns how many processes are left.
    /// Blocks, for about three times `within` at the longest.
    pub fn end_others(&self, first: &HostProcess, within: Duration) -> Result<u32, CgroupError> {
        let mut seen = BTreeSet::new();
        self.end_outside(first, &mut seen, Instant::now() + within)?;
        for group in Group::ALL {
            self.commands(group).end(within)?;
        }
        self.end_outside(first, &mut seen, Instant::now() + within)?;
        self.left(first)
    }

    fn left(&self, first: &HostProcess) -> Result<u32, CgroupError> {
        let left = self.all_pids()?.into_iter().filter(|pid| raw(*pid) != first.pid()).count();
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
