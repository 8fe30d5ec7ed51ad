//! Ends all processes in a cgroup and below it.
//!
//! The cgroup is frozen first. A frozen process cannot fork, so the list of processes to signal is complete. A process in an
//! uninterruptible wait cannot be frozen before that wait is over. The daemon waits for it for a bounded time, then sends the signal anyway
//! and repeats it until no process is left.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use super::hierarchy::Hierarchy;
use super::{CgroupError, collect, failed};

/// Interval between two scans where the kernel offers nothing to wait on.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Interval between two kills of a cgroup v2.
const KILL_AGAIN: Duration = Duration::from_millis(2);
/// Time until the rest of a cgroup v1 is frozen again. A killed process dies only while it is thawed.
const FREEZE_AGAIN: Duration = Duration::from_millis(50);
/// Time that all processes have to freeze.
const FREEZE: Duration = Duration::from_millis(250);

/// Longest time for an end, even if processes keep ending.
const LONGEST: Duration = Duration::from_secs(30);

/// Deadline that moves with progress: the wait goes on as long as the number of processes falls.
///
/// A kernel with one free processor needs a second for several thousand processes.
pub(super) struct Patience {
    /// Time until at least one more process has to be gone.
    within: Duration,
    until: Instant,
    last: Instant,
    fewest: usize,
}

impl Patience {
    pub(super) fn new(within: Duration) -> Self {
        let now = Instant::now();
        Self { within, until: now + within, last: now + within.max(LONGEST), fewest: usize::MAX }
    }

    /// Records how many processes are left, and returns true if there was no progress for too long.
    pub(super) fn is_over(&mut self, left: usize) -> bool {
        let now = Instant::now();
        if left < self.fewest {
            self.fewest = left;
            self.until = self.last.min(now + self.within);
        }
        now >= self.until
    }
}

/// Mechanism that ended the processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillMethod {
    /// `cgroup.kill` of cgroup v2.
    CgroupKill,
    /// cgroup v1's freezer and SIGKILL.
    Freezer,
}

/// Result of ending a cgroup, for the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KillEvidence {
    /// Processes that were seen and are gone.
    pub ended: u32,
    /// Processes that were still there at the deadline. If this is not zero, the container has to be removed.
    pub left: u32,
    pub how: KillMethod,
    /// Duration of the end.
    pub took: Duration,
}

pub(super) struct Ending<'d> {
    hierarchy: Hierarchy,
    dir: &'d Path,
    /// Levels of cgroups below it that may contain processes.
    levels: u32,
    seen: BTreeSet<i32>,
    began: Instant,
}

impl<'d> Ending<'d> {
    pub(super) fn begin(hierarchy: Hierarchy, dir: &'d Path, levels: u32) -> Self {
        Self { hierarchy, dir, levels, seen: BTreeSet::new(), began: Instant::now() }
    }

    /// Returns the processes that are there now, and adds them to those seen.
    pub(super) fn note(&mut self) -> Result<Vec<Pid>, CgroupError> {
        let mut pids = Vec::new();
        collect(self.dir, self.levels, &mut pids)?;
        self.seen.extend(pids.iter().map(|pid| pid.as_raw_nonzero().get()));
        Ok(pids)
    }

    /// Sends SIGTERM to all processes while they are frozen, then thaws them. They handle it when they run again.
    pub(super) fn ask(&mut self) -> Result<Vec<Pid>, CgroupError> {
        self.still(Instant::now() + FREEZE, Self::ask_still)
    }

    /// Sends SIGTERM to all processes, which are frozen already.
    pub(super) fn ask_still(&mut self) -> Result<Vec<Pid>, CgroupError> {
        let pids = self.note()?;
        send(&pids, Signal::TERM);
        Ok(pids)
    }

    /// Ends all processes and leaves the cgroup thawed.
    pub(super) fn kill(&mut self, patience: &mut Patience) -> Result<(), CgroupError> {
        match self.hierarchy {
            Hierarchy::Unified => self.kill_unified(patience),
            Hierarchy::Freezer => self.kill_frozen(patience),
        }
    }

    /// Kills the processes that are there now, without freezing them first.
    pub(super) fn strike(&mut self) -> Result<(), CgroupError> {
        match self.hierarchy {
            Hierarchy::Unified => {
                fs::write(self.dir.join("cgroup.kill"), "1").map_err(failed("end the command"))
            }
            Hierarchy::Freezer => self.note().map(|pids| send_kill(&pids)),
        }
    }

    /// Returns the result so far.
    pub(super) fn evidence(mut self) -> Result<KillEvidence, CgroupError> {
        let left = self.note()?.len();
        let how = match self.hierarchy {
            Hierarchy::Unified => KillMethod::CgroupKill,
            Hierarchy::Freezer => KillMethod::Freezer,
        };
        let (ended, left) = (count(self.seen.len() - left), count(left));
        Ok(KillEvidence { ended, left, how, took: self.began.elapsed() })
    }

    /// Kills a cgroup of v2 repeatedly, because one kill is not enough if not all processes could be frozen.
    ///
    /// The kernel marks the cgroup, so that a fork in progress kills the child, and then sends each process its signal. A process that
    /// forks in between is past the mark and has not received its signal, and the walk does not see the child. (Linux 6.18: with all
    /// processors busy, 4 to 8 of 1,000 chains of forks survived one kill, and up to 7 more were needed.)
    fn kill_unified(&mut self, patience: &mut Patience) -> Result<(), CgroupError> {
        self.still(patience.until.min(Instant::now() + FREEZE), |this| {
            let mut left = this.note()?.len();
            // Frozen processes die without being thawed.
            loop {
                fs::write(this.dir.join("cgroup.kill"), "1").map_err(failed("end the command"))?;
                let again = Instant::now() + KILL_AGAIN;
                if events(this.dir, again, &["populated 0"])? || patience.is_over(left) {
                    return Ok(());
                }
                left = this.note()?.len();
            }
        })
    }

    /// Kills a cgroup of v1, where a signal reaches a frozen process when it is thawed, before it runs on.
    fn kill_frozen(&mut self, patience: &mut Patience) -> Result<(), CgroupError> {
        loop {
            self.still(patience.until.min(Instant::now() + FREEZE), |this| {
                this.note().map(|pids| send_kill(&pids))
            })?;
            let again = Instant::now() + FREEZE_AGAIN;
            loop {
                let pids = self.note()?;
                if pids.is_empty() || patience.is_over(pids.len()) {
                    return Ok(());
                }
                if Instant::now() >= again {
                    break;
                }
                send_kill(&pids);
                std::thread::sleep(LOOK_AGAIN);
            }
        }
    }

    /// Runs `job` while as many processes as possible are frozen, and thaws them whatever the result.
    fn still<T>(
        &mut self,
        until: Instant,
        job: impl FnOnce(&mut Self) -> Result<T, CgroupError>,
    ) -> Result<T, CgroupError> {
        let frozen = freeze(self.hierarchy, self.dir, until);
        let done = job(self);
        self.hierarchy.freeze(self.dir, false)?;
        frozen.and(done)
    }
}

/// Freezes all processes in the cgroup and below it, and waits until they are frozen or gone. Returns false if `until` comes first.
pub(super) fn freeze(hierarchy: Hierarchy, dir: &Path, until: Instant) -> Result<bool, CgroupError> {
    hierarchy.freeze(dir, true)?;
    match hierarchy {
        Hierarchy::Unified => events(dir, until, &["frozen 1", "populated 0"]),
        Hierarchy::Freezer => loop {
            if hierarchy.is_frozen(dir)? {
                return Ok(true);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
            std::thread::sleep(LOOK_AGAIN);
            // Writing again freezes processes that were forked meanwhile.
            hierarchy.freeze(dir, true)?;
        },
    }
}

/// Waits until `cgroup.events` of cgroup v2 contains one of these lines. Returns false if the deadline comes first.
fn events(dir: &Path, deadline: Instant, lines: &[&str]) -> Result<bool, CgroupError> {
    let path = dir.join("cgroup.events");
    loop {
        // Opened anew each time: reading arms the notification, which arrives as an exceptional condition.
        let events = fs::File::open(&path).map_err(failed("watch the commands"))?;
        let text = std::io::read_to_string(&events).map_err(failed("watch the commands"))?;
        if text.lines().any(|line| lines.contains(&line)) {
            return Ok(true);
        }
        let Some(rest) = deadline.checked_duration_since(Instant::now()) else { return Ok(false) };
        let wait = Timespec::try_from(rest).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 1_000_000 });
        let mut fds = [PollFd::from_borrowed_fd(events.as_fd(), PollFlags::PRI)];
        match poll(&mut fds, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failed("watch the commands")(error)),
        }
    }
}

pub(super) fn send_kill(pids: &[Pid]) {
    send(pids, Signal::KILL);
}

fn send(pids: &[Pid], signal: Signal) {
    for &pid in pids {
        // The only possible failure is that the process has ended already.
        let _ = kill_process(pid, signal);
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroups::leaf::Leaf;
    use crate::cgroups::leaf::tests::{NEEDS_ROOT, begin_chains, hierarchies};
    use crate::cgroups::meter::Meters;

    #[test]
    fn an_end_that_progresses_is_awaited_and_a_stuck_one_is_given_up() {
        let mut patience = Patience::new(Duration::from_millis(40));
        for left in (0..20).rev() {
            std::thread::sleep(Duration::from_millis(10));
            assert!(!patience.is_over(left), "{left} are left");
        }
        let mut patience = Patience::new(Duration::from_secs(2));
        assert!(!patience.is_over(2) && !patience.is_over(3));
        std::thread::sleep(Duration::from_millis(2_100));
        assert!(patience.is_over(2), "nothing has become of it");
    }

    #[test]
    fn chains_of_forks_are_frozen_and_ended() {
        const CHAINS: u32 = 16;
        for (hierarchy, root) in hierarchies() {
            let dir = root.join(format!("cofferdam-test-chains-{}", std::process::id()));
            let mut leaf = Leaf::make(hierarchy, dir.clone(), &Meters::Nowhere).expect(NEEDS_ROOT);
            begin_chains(&mut leaf, CHAINS);
            let asked = leaf.terminate_all().unwrap();
            assert!(!asked.is_empty() && !hierarchy.is_frozen(&dir).unwrap(), "{hierarchy:?}");
            let evidence = leaf.kill_all(Duration::from_secs(10)).unwrap();
            assert_eq!(evidence.left, 0, "{hierarchy:?}: {evidence:?}");
            assert!(evidence.ended > 0 && evidence.took > Duration::ZERO, "{hierarchy:?}: {evidence:?}");
            assert!(!hierarchy.is_frozen(&dir).unwrap(), "nothing stays frozen");
            drop(leaf);
            assert!(!dir.exists());
        }
    }
}
