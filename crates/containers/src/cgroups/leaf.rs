//! One exec's cgroup, and its end.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use super::hierarchy::Hierarchy;
use super::meter::{Meter, Meters};
use super::process::{self, HostProcess};
use super::{CgroupError, failed, pids_in};

/// Between two looks where the kernel offers nothing to wait on.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Between two kills of a cgroup v2.
const KILL_AGAIN: Duration = Duration::from_millis(2);

/// How the processes were ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillMethod {
    /// cgroup v2's `cgroup.kill`.
    CgroupKill,
    /// cgroup v1's freezer and SIGKILL.
    Freezer,
}

/// What came of [`Leaf::kill_all`], for the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KillEvidence {
    /// Processes that were seen and are gone.
    pub ended: u32,
    /// Processes that were still there at the deadline. Zero, or the container has to go.
    pub left: u32,
    /// By which means.
    pub how: KillMethod,
}

/// A cgroup below a container's. Removed when dropped, if it is empty by then; else with its container.
#[derive(Debug)]
pub struct Leaf {
    hierarchy: Hierarchy,
    dir: PathBuf,
    meter: Option<Meter>,
}

impl Leaf {
    pub(super) fn make(hierarchy: Hierarchy, dir: PathBuf, meters: &Meters) -> Result<Self, CgroupError> {
        fs::create_dir(&dir).map_err(failed("make a cgroup for the command"))?;
        let meter = meters.meter(&dir);
        Ok(Self { hierarchy, dir, meter })
    }

    /// One that is there already, from an earlier life of this program.
    pub(super) fn former(hierarchy: Hierarchy, dir: PathBuf) -> Self {
        Self { hierarchy, dir, meter: None }
    }

    /// Moves a process in, and with it all that it starts from now on.
    ///
    /// Move it before it runs: what it started earlier stays outside. [`CgroupError::NoSuchProcess`] when it ended in
    /// the meantime; the number may then have been another process's, and the leaf must not be killed but dropped.
    pub fn add(&mut self, process: &HostProcess) -> Result<(), CgroupError> {
        if !process.is_alive() {
            return Err(CgroupError::NoSuchProcess);
        }
        fs::write(self.dir.join("cgroup.procs"), process.pid().to_string()).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::ESRCH) => CgroupError::NoSuchProcess,
                _ => failed("move the command into its cgroup")(error),
            }
        })?;
        if let Some(Err(error)) = self.meter.as_ref().map(|meter| meter.add(process)) {
            tracing::debug!(%error, "the processor time of a command is not metered");
            self.meter = None;
        }
        if process.is_alive() { Ok(()) } else { Err(CgroupError::NoSuchProcess) }
    }

    /// Host pids of the processes in it.
    pub fn pids(&self) -> Result<Vec<u32>, CgroupError> {
        let raw = |pid: Pid| pid.as_raw_nonzero().get().unsigned_abs();
        Ok(pids_in(&self.dir)?.into_iter().map(raw).collect())
    }

    /// Processor time, user and system, that was used in it until now: by all that was moved in or started there, whoever
    /// its parent is and however it ended. `None` where the kernel does not count that, or the process could not be moved
    /// to where it counts.
    pub fn cpu_time(&self) -> Option<Duration> {
        self.meter.as_ref()?.read()
    }

    /// The most resident memory that any one of the processes in it ever had, bytes: `VmHWM` of proc(5), pages that it
    /// shares with others included. 0 when there are none. A process can take its own figure back to what it has now
    /// (`/proc/PID/clear_refs`).
    pub fn peak_memory(&self) -> u64 {
        let Ok(pids) = pids_in(&self.dir) else { return 0 };
        let peaks: Vec<_> =
            pids.into_iter().filter_map(|pid| Some((pid, process::peak_memory(pid)?))).collect();
        if peaks.is_empty() {
            return 0;
        }
        // What is in the list before and after has been read: its number cannot have been given anew.
        let still = pids_in(&self.dir).unwrap_or_default();
        peaks.into_iter().filter(|(pid, _)| still.contains(pid)).map(|(_, peak)| peak).max().unwrap_or(0)
    }

    /// Asks every process to end (SIGTERM) and returns how many were asked. A polite question: they may ignore it.
    pub fn terminate_all(&self) -> Result<u32, CgroupError> {
        let pids = pids_in(&self.dir)?;
        send(&pids, Signal::TERM);
        Ok(count(pids.len()))
    }

    /// Whether it stands still because what is above it was frozen ([`super::Commands::freeze`]).
    pub fn stands_still(&self) -> bool {
        let (file, still) = match self.hierarchy {
            Hierarchy::Unified => ("cgroup.events", "frozen 1"),
            Hierarchy::Freezer => ("freezer.parent_freezing", "1"),
        };
        fs::read_to_string(self.dir.join(file)).is_ok_and(|text| text.lines().any(|line| line == still))
    }

    /// Ends every process and waits until they are gone, `within` at the longest.
    ///
    /// Also while they stand still; then they end without running on. In a container that the *engine* has paused they
    /// stay, on cgroup v1, until it is resumed.
    pub fn kill_all(&self, within: Duration) -> Result<KillEvidence, CgroupError> {
        let deadline = Instant::now() + within;
        let mut seen: BTreeSet<i32> = BTreeSet::new();
        let how = match self.hierarchy {
            Hierarchy::Unified => KillMethod::CgroupKill,
            Hierarchy::Freezer => KillMethod::Freezer,
        };
        // Only a process that is in it can put another one there: an empty leaf stays empty. The common case, at no cost.
        if self.note(&mut seen)?.is_empty() {
            return Ok(KillEvidence { ended: 0, left: 0, how });
        }
        match self.hierarchy {
            Hierarchy::Unified => self.kill_unified(deadline)?,
            Hierarchy::Freezer if self.stands_still() => self.kill_apart(deadline, &mut seen)?,
            Hierarchy::Freezer => self.kill_frozen(deadline, &mut seen)?,
        }
        let left = self.note(&mut seen)?.len();
        Ok(KillEvidence { ended: count(seen.len() - left), left: count(left), how })
    }

    fn note(&self, seen: &mut BTreeSet<i32>) -> Result<Vec<Pid>, CgroupError> {
        let pids = pids_in(&self.dir)?;
        seen.extend(pids.iter().map(|pid| pid.as_raw_nonzero().get()));
        Ok(pids)
    }

    /// Once is not enough: the kernel marks the cgroup, so that forks under way end with the child's death, and then sends
    /// each process its signal. A process that forks in between is behind the mark and has its signal still to come, and the
    /// walk does not see the child (Linux 6.18; with every processor busy, 4 to 8 of 1,000 chains of forks survived one
    /// kill, and up to 7 more were needed).
    fn kill_unified(&self, deadline: Instant) -> Result<(), CgroupError> {
        loop {
            fs::write(self.dir.join("cgroup.kill"), "1").map_err(failed("end the command"))?;
            let again = deadline.min(Instant::now() + KILL_AGAIN);
            if self.is_emptied(again)? || again == deadline {
                return Ok(());
            }
        }
    }

    /// Waits until it has no processes: whether that came in time.
    fn is_emptied(&self, deadline: Instant) -> Result<bool, CgroupError> {
        let path = self.dir.join("cgroup.events");
        loop {
            // Opened anew each time: reading arms the notice, which comes as an exceptional condition.
            let events = fs::File::open(&path).map_err(failed("watch the command end"))?;
            let text = std::io::read_to_string(&events).map_err(failed("watch the command end"))?;
            if text.lines().any(|line| line == "populated 0") {
                return Ok(true);
            }
            let Some(rest) = deadline.checked_duration_since(Instant::now()) else { return Ok(false) };
            let wait = Timespec::try_from(rest).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 1_000_000 });
            let mut fds = [PollFd::from_borrowed_fd(events.as_fd(), PollFlags::PRI)];
            match poll(&mut fds, Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(failed("watch the command end")(error)),
            }
        }
    }

    /// While all are frozen none can fork, so that the list of pids is complete when they are killed.
    fn kill_frozen(&self, deadline: Instant, seen: &mut BTreeSet<i32>) -> Result<(), CgroupError> {
        // A process in an uninterruptible wait cannot be frozen: do not spend the whole time on it.
        let freeze_until = Instant::now() + deadline.saturating_duration_since(Instant::now()) / 4;
        let frozen = self.freeze(freeze_until);
        let killed = self.note(seen).map(|pids| send(&pids, Signal::KILL));
        // Thaw whatever happened: nothing is to stay frozen.
        self.state("THAWED")?;
        frozen.and(killed)?;
        loop {
            let pids = self.note(seen)?;
            if pids.is_empty() || Instant::now() >= deadline {
                return Ok(());
            }
            send(&pids, Signal::KILL);
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// On v1 a signal reaches a frozen process only when it is thawed, and a leaf cannot be thawed below a frozen cgroup.
    /// So each process gets its SIGKILL and is then moved out, which thaws it: it dies before it runs on. None can fork
    /// meanwhile.
    fn kill_apart(&self, deadline: Instant, seen: &mut BTreeSet<i32>) -> Result<(), CgroupError> {
        let above = self.dir.parent().and_then(|commands| commands.parent());
        let name = self.dir.file_name().map(|name| name.to_string_lossy().into_owned());
        let (Some(above), Some(name)) = (above, name) else {
            return Err(CgroupError::Unavailable("the leaf has no place"));
        };
        // Goes with its last process, below.
        let apart = Self::make(self.hierarchy, above.join(format!("{name}-end")), &Meters::Nowhere)?;
        let procs = apart.dir.join("cgroup.procs");
        loop {
            let mut pids = self.note(seen)?;
            send(&pids, Signal::KILL);
            for pid in &pids {
                // The only failure that matters is seen by the next look.
                let _ = fs::write(&procs, pid.as_raw_nonzero().to_string());
            }
            pids.extend(pids_in(&apart.dir)?);
            if pids.is_empty() || Instant::now() >= deadline {
                return Ok(());
            }
            if !self.stands_still() {
                return self.kill_frozen(deadline, seen);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn freeze(&self, until: Instant) -> Result<(), CgroupError> {
        let path = self.dir.join("freezer.state");
        loop {
            self.state("FROZEN")?;
            let state = fs::read_to_string(&path).map_err(failed("see the command frozen"))?;
            if state.trim() == "FROZEN" || Instant::now() >= until {
                return Ok(());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn state(&self, state: &str) -> Result<(), CgroupError> {
        fs::write(self.dir.join("freezer.state"), state).map_err(failed("freeze or thaw the command"))
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        // Occupied when a process outlived `kill_all`; the container's end takes it along.
        if let Err(error) = fs::remove_dir(&self.dir) {
            tracing::debug!(error = %error, "a command's cgroup was left behind");
        }
    }
}

pub(super) fn kill(pids: &[Pid]) {
    send(pids, Signal::KILL);
}

fn send(pids: &[Pid], signal: Signal) {
    for &pid in pids {
        // The only failure is that it has ended already.
        let _ = kill_process(pid, signal);
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::process::{Command, Stdio};

    use super::*;
    use crate::mounts::mountinfo;

    pub(in crate::cgroups) const NEEDS_ROOT: &str = "these tests make cgroups: run them as root";

    /// Roots of the hierarchies of this host that a leaf can be in.
    pub(in crate::cgroups) fn hierarchies() -> Vec<(Hierarchy, PathBuf)> {
        let table = fs::read("/proc/self/mountinfo").unwrap();
        mountinfo::entries(&table)
            .filter_map(|entry| match entry.file_system.as_str() {
                "cgroup2" => Some((Hierarchy::Unified, entry.mount_point)),
                "cgroup" if entry.super_options.split(',').any(|option| option == "freezer") => {
                    Some((Hierarchy::Freezer, entry.mount_point))
                }
                _ => None,
            })
            .collect()
    }

    #[test]
    fn every_hierarchy_of_this_host_can_end_a_tree() {
        let found = hierarchies();
        assert!(!found.is_empty(), "no cgroup file system is mounted");
        for (hierarchy, root) in found {
            let dir = root.join(format!("cofferdam-test-{}", std::process::id()));
            let mut leaf = Leaf::make(hierarchy, dir.clone(), &Meters::Nowhere).expect(NEEDS_ROOT);
            let script = "read go; for i in 1 2 3 4; do \
                setsid sh -c 'trap \"\" TERM; echo up; exec sleep 1000' & done; wait";
            let mut shell = Command::new("sh")
                .args(["-c", script])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            leaf.add(&HostProcess::of_engine(shell.id()).unwrap()).unwrap();
            shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
            let lines = BufReader::new(shell.stdout.take().unwrap()).lines().take(4);
            assert_eq!(lines.map(Result::unwrap).collect::<Vec<_>>(), ["up"; 4]);

            assert_eq!(leaf.pids().unwrap().len(), 5);
            let evidence = leaf.kill_all(Duration::from_secs(2)).unwrap();
            let how = match hierarchy {
                Hierarchy::Unified => KillMethod::CgroupKill,
                Hierarchy::Freezer => KillMethod::Freezer,
            };
            assert_eq!(evidence, KillEvidence { ended: 5, left: 0, how });
            shell.wait().unwrap();
            drop(leaf);
            assert!(!dir.exists());
        }
    }

    /// A kernel whose first kill misses one, as it does now and then.
    #[test]
    fn a_kill_is_repeated_while_something_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        fs::write(file("cgroup.procs"), "4000001\n").unwrap();
        fs::write(file("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        assert!(Command::new("mkfifo").arg(file("cgroup.kill")).status().unwrap().success());
        // Open at both ends, so that nobody waits for the other one.
        let mut kills = fs::File::options().read(true).write(true).open(file("cgroup.kill")).unwrap();
        let leaf = Leaf::former(Hierarchy::Unified, dir.path().to_owned());
        let evidence = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut twice = [0; 2];
                kills.read_exact(&mut twice).unwrap();
                assert_eq!(&twice, b"11");
                fs::write(file("cgroup.procs"), "").unwrap();
                fs::write(file("cgroup.events"), "populated 0\nfrozen 0\n").unwrap();
            });
            leaf.kill_all(Duration::from_secs(10)).unwrap()
        });
        assert_eq!(evidence, KillEvidence { ended: 1, left: 0, how: KillMethod::CgroupKill });
    }

    #[test]
    fn an_ended_process_is_not_moved() {
        let (hierarchy, root) = hierarchies().remove(0);
        let dir = root.join(format!("cofferdam-test-ended-{}", std::process::id()));
        let mut leaf = Leaf::make(hierarchy, dir, &Meters::Nowhere).expect(NEEDS_ROOT);
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = HostProcess::of_engine(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(leaf.add(&process), Err(CgroupError::NoSuchProcess)));
        assert_eq!(leaf.kill_all(Duration::from_secs(1)).unwrap().ended, 0);
    }
}
