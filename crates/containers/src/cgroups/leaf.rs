//! The cgroup of one exec, and how it is ended.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::ending::{Ending, KillEvidence, LOOK_AGAIN, Patience, freeze, send_kill};
use super::hierarchy::Hierarchy;
use super::meter::{Meter, Meters};
use super::process::{self, HostProcess};
use super::{CgroupError, failed, pids_in};

/// A cgroup below a container's.
///
/// It is removed when the value is dropped if it is empty by then, otherwise with its container.
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

    /// Returns a leaf that an earlier instance of this daemon made.
    pub(super) fn existing(hierarchy: Hierarchy, dir: PathBuf) -> Self {
        Self { hierarchy, dir, meter: None }
    }

    /// Moves a process into the leaf. Its future children start there, too.
    ///
    /// Move it before it runs, because children that it started earlier stay outside. Returns [`CgroupError::NoSuchProcess`] if it ended in
    /// the meantime. Its pid may then have belonged to another process, so the leaf must be dropped and not killed.
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

    /// Returns the host pids of the processes in the leaf.
    pub fn pids(&self) -> Result<Vec<u32>, CgroupError> {
        Ok(pids_in(&self.dir)?.into_iter().map(raw).collect())
    }

    /// Returns the only process in the leaf, or `None` if there is none or more than one.
    pub fn only(&self) -> Option<HostProcess> {
        let [pid] = pids_in(&self.dir).ok()?[..] else { return None };
        let process = HostProcess::open(pid)?;
        // The pid was still in the list after the process was opened, so it was not reused in between.
        (pids_in(&self.dir).ok()? == [pid]).then_some(process)
    }

    /// Returns the only process in the leaf besides `known`.
    pub fn other(&self, known: &HostProcess) -> Option<HostProcess> {
        let others = || -> Option<Vec<Pid>> {
            Some(pids_in(&self.dir).ok()?.into_iter().filter(|pid| raw(*pid) != known.pid()).collect())
        };
        let [pid] = others()?[..] else { return None };
        let process = HostProcess::open(pid)?;
        (others()? == [pid]).then_some(process)
    }

    /// Sends a signal to every process in the leaf.
    pub fn signal_all(&self, number: i32) -> Result<(), CgroupError> {
        let Some(signal) = Signal::from_named_raw(number) else { return Ok(()) };
        for pid in pids_in(&self.dir)? {
            if let Some(process) = HostProcess::open(pid).filter(|_| self.has(pid)) {
                process.signal(signal);
            }
        }
        Ok(())
    }

    /// Moves every process to another leaf, and returns how many there were.
    ///
    /// A frozen process cannot fork, so the list is complete once all are frozen. The other leaf is frozen as well, so that a moved process
    /// cannot fork and end before it is counted. After an error the processes may be in either leaf. Blocks for `within` at most.
    pub fn move_all(&self, to: &mut Self, within: Duration) -> Result<u32, CgroupError> {
        let deadline = Instant::now() + within;
        if self.stands_still() {
            return self.move_still(to, deadline, || Ok(()));
        }
        let moved = (to.hierarchy.freeze(&to.dir, true)).and_then(|()| {
            self.move_still(to, deadline, || freeze(self.hierarchy, &self.dir, deadline).map(|_| ()))
        });
        let thawed = [self, to].map(|leaf| leaf.hierarchy.freeze(&leaf.dir, false));
        let moved = moved?;
        thawed.into_iter().collect::<Result<(), _>>()?;
        Ok(moved)
    }

    /// Moves all processes, which `stop` freezes before each scan.
    fn move_still(
        &self,
        to: &mut Self,
        deadline: Instant,
        stop: impl Fn() -> Result<(), CgroupError>,
    ) -> Result<u32, CgroupError> {
        let mut moved = BTreeSet::new();
        loop {
            stop()?;
            let pids = pids_in(&self.dir)?;
            if pids.is_empty() {
                return Ok(u32::try_from(moved.len()).unwrap_or(u32::MAX));
            }
            if Instant::now() >= deadline {
                return Err(CgroupError::Unavailable("a process could not be moved in time"));
            }
            for pid in pids {
                let Some(process) = HostProcess::open(pid).filter(|_| self.has(pid)) else { continue };
                match to.add(&process) {
                    Ok(()) => drop(moved.insert(raw(pid))),
                    // The process has ended.
                    Err(CgroupError::NoSuchProcess) => {}
                    Err(error) => tracing::debug!(%error, "a process was not moved"),
                }
            }
        }
    }

    fn has(&self, pid: Pid) -> bool {
        pids_in(&self.dir).is_ok_and(|pids| pids.contains(&pid))
    }

    /// Returns the user and system processor time used in the leaf so far.
    ///
    /// It includes all processes that were moved or started there, whatever their parent and their end. `None` if the kernel does not count
    /// it, or if the process could not be moved to the cgroup that counts.
    pub fn cpu_time(&self) -> Option<Duration> {
        self.meter.as_ref()?.read()
    }

    /// Returns the highest peak of resident memory of any single process in the leaf, in bytes, or 0 if there is none.
    ///
    /// This is `VmHWM` of proc(5), shared pages included. A process can reset its own figure to its present size (`/proc/PID/clear_refs`).
    pub fn peak_memory(&self) -> u64 {
        let Ok(pids) = pids_in(&self.dir) else { return 0 };
        let peaks: Vec<_> =
            pids.into_iter().filter_map(|pid| Some((pid, process::peak_memory(pid)?))).collect();
        if peaks.is_empty() {
            return 0;
        }
        // A pid that is in the list before and after the reading was not reused in between.
        let still = pids_in(&self.dir).unwrap_or_default();
        peaks.into_iter().filter(|(pid, _)| still.contains(pid)).map(|(_, peak)| peak).max().unwrap_or(0)
    }

    /// Asks every process to end (SIGTERM), all at the same moment, and returns their host pids. They may ignore it.
    pub fn terminate_all(&self) -> Result<Vec<u32>, CgroupError> {
        let asked = if self.stands_still() {
            // The caller that has frozen the cgroup above thaws them.
            self.ending().ask_still()
        } else {
            self.ending().ask()
        };
        Ok(asked?.into_iter().map(raw).collect())
    }

    /// Returns true if the leaf is frozen because a cgroup above it is ([`super::Commands::freeze`]).
    pub fn stands_still(&self) -> bool {
        let (file, still) = match self.hierarchy {
            Hierarchy::Unified => ("cgroup.events", "frozen 1"),
            Hierarchy::Freezer => ("freezer.parent_freezing", "1"),
        };
        fs::read_to_string(self.dir.join(file)).is_ok_and(|text| text.lines().any(|line| line == still))
    }

    /// Ends every process and waits until they are gone. Gives up when none has ended for `within`.
    ///
    /// This also works while they are frozen; they then end without running on. On cgroup v1, processes of a container that the *engine*
    /// has paused stay until it is resumed.
    pub fn kill_all(&self, within: Duration) -> Result<KillEvidence, CgroupError> {
        let mut ending = self.ending();
        // Common case at no cost: only a process in the leaf can add another one, so an empty leaf stays empty.
        if !ending.note()?.is_empty() {
            let mut patience = Patience::new(within);
            match self.hierarchy {
                Hierarchy::Freezer if self.stands_still() => self.kill_apart(&mut patience, &mut ending)?,
                Hierarchy::Freezer | Hierarchy::Unified => ending.kill(&mut patience)?,
            }
        }
        ending.evidence()
    }

    fn ending(&self) -> Ending<'_> {
        Ending::begin(self.hierarchy, &self.dir, 0)
    }

    /// Ends the processes of a leaf below a frozen cgroup of v1.
    ///
    /// A signal reaches a frozen process only when it is thawed, and a leaf cannot be thawed below a frozen cgroup. So each process gets
    /// SIGKILL and is then moved out, which thaws it: it dies before it runs on. No process can fork meanwhile.
    fn kill_apart(&self, patience: &mut Patience, ending: &mut Ending<'_>) -> Result<(), CgroupError> {
        let above = self.dir.parent().and_then(|commands| commands.parent());
        let name = self.dir.file_name().map(|name| name.to_string_lossy().into_owned());
        let (Some(above), Some(name)) = (above, name) else {
            return Err(CgroupError::Unavailable("the leaf has no path"));
        };
        // Removed with its last process, below.
        let apart = Self::make(self.hierarchy, above.join(format!("{name}-end")), &Meters::Nowhere)?;
        let procs = apart.dir.join("cgroup.procs");
        loop {
            let mut pids = ending.note()?;
            send_kill(&pids);
            for pid in &pids {
                // The next scan sees the only failure that matters.
                let _ = fs::write(&procs, pid.as_raw_nonzero().to_string());
            }
            pids.extend(pids_in(&apart.dir)?);
            if pids.is_empty() || patience.is_over(pids.len()) {
                return Ok(());
            }
            if !self.stands_still() {
                return ending.kill(patience);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        // Not empty if a process outlived `kill_all`; the cgroup is then removed with the container.
        if let Err(error) = fs::remove_dir(&self.dir) {
            tracing::debug!(error = %error, "a command's cgroup was left behind");
        }
    }
}

fn raw(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::process::{Command, Stdio};

    use leftovers::mountinfo;

    use super::*;
    use crate::cgroups::ending::KillMethod;

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

    /// Begins so many chains in a leaf: each of their processes makes the next one, and is gone. None ends by being asked to.
    pub(in crate::cgroups) fn begin_chains(leaf: &mut Leaf, chains: u32) {
        const LINK: &str = "sh -c \"$0\" \"$0\" &";
        let script =
            format!("trap '' TERM; read go; i=0; while [ $i -lt {chains} ]; do {LINK} i=$((i+1)); done");
        let mut shell = Command::new("sh").args(["-c", &script, LINK]).stdin(Stdio::piped()).spawn().unwrap();
        leaf.add(&HostProcess::of_engine(shell.id()).unwrap()).unwrap();
        shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
        assert!(shell.wait().unwrap().success());
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
            let evidence = leaf.kill_all(Duration::from_secs(30)).unwrap();
            let how = match hierarchy {
                Hierarchy::Unified => KillMethod::CgroupKill,
                Hierarchy::Freezer => KillMethod::Freezer,
            };
            assert_eq!((evidence.ended, evidence.left, evidence.how), (5, 0, how));
            shell.wait().unwrap();
            drop(leaf);
            assert!(!dir.exists());
        }
    }

    #[test]
    fn all_that_is_in_a_leaf_is_moved_signalled_and_ended_in_another() {
        for (hierarchy, root) in hierarchies() {
            let dir = |name: &str| root.join(format!("cofferdam-test-{name}-{}", std::process::id()));
            let mut from = Leaf::make(hierarchy, dir("from"), &Meters::Nowhere).expect(NEEDS_ROOT);
            let mut to = Leaf::make(hierarchy, dir("to"), &Meters::Nowhere).unwrap();
            // One that forks all the time beside one that only waits.
            let script = "read go; while :; do sleep 0.001; done & sleep 1000 & echo up; wait";
            let mut shell = Command::new("sh")
                .args(["-c", script])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            from.add(&HostProcess::of_engine(shell.id()).unwrap()).unwrap();
            shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
            let mut up = [0; 3];
            shell.stdout.take().unwrap().read_exact(&mut up).unwrap();
            let moved = from.move_all(&mut to, Duration::from_secs(10)).unwrap();
            assert!(moved >= 3, "{hierarchy:?}: {moved}");
            assert!(from.pids().unwrap().is_empty(), "{hierarchy:?}");
            assert!(!to.stands_still() && !to.pids().unwrap().is_empty(), "{hierarchy:?}");
            to.signal_all(15).unwrap();
            shell.wait().unwrap();
            let evidence = to.kill_all(Duration::from_secs(10)).unwrap();
            assert_eq!(evidence.left, 0, "{hierarchy:?}");
        }
    }

    #[test]
    fn a_chain_of_forks_is_counted_in_every_leaf() {
        const MOVES: usize = 50;
        for (hierarchy, root) in hierarchies() {
            let make = |name: &str| {
                let dir = root.join(format!("cofferdam-test-chain-{name}-{}", std::process::id()));
                Leaf::make(hierarchy, dir, &Meters::Nowhere).expect(NEEDS_ROOT)
            };
            let (mut here, mut there) = (make("here"), make("there"));
            begin_chains(&mut here, 1);
            let mut move_it = || {
                let moved = here.move_all(&mut there, Duration::from_secs(10))?;
                let seen = (moved > 0, here.pids()?.is_empty(), hierarchy.is_frozen(&there.dir)?);
                std::mem::swap(&mut here, &mut there);
                Ok(seen)
            };
            let moves: Vec<Result<_, CgroupError>> = (0..MOVES).map(|_| move_it()).collect();
            for leaf in [here, there] {
                assert_eq!(leaf.kill_all(Duration::from_secs(10)).unwrap().left, 0, "{hierarchy:?}");
            }
            for (counted, left, frozen) in moves.into_iter().map(Result::unwrap) {
                assert!(counted && left && !frozen, "{hierarchy:?}");
            }
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
        // Open at both ends, so that neither open waits for the other.
        let mut kills = fs::File::options().read(true).write(true).open(file("cgroup.kill")).unwrap();
        let leaf = Leaf::existing(Hierarchy::Unified, dir.path().to_owned());
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
        assert_eq!((evidence.ended, evidence.left, evidence.how), (1, 0, KillMethod::CgroupKill));
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
