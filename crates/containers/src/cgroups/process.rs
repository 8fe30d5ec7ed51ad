//! Resolves a pid that a container reports to a process of the host.

use std::fs;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open, pidfd_send_signal, setpriority_process,
};

use super::{CgroupError, failed};

/// Highest priority: 87 times the processor time of the others that share a processor (setpriority(2), sched(7)).
const FIRST: i32 = -20;

/// A process of the container, held by a pidfd so that a reused pid is noticed.
#[derive(Debug)]
pub struct HostProcess {
    pid: Pid,
    handle: OwnedFd,
}

impl HostProcess {
    /// Returns the process's pid on the host.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Returns a copy of its pidfd.
    pub fn handle(&self) -> std::io::Result<OwnedFd> {
        self.handle.try_clone()
    }

    /// Returns the children of its first thread.
    pub(super) fn children(&self) -> Vec<Self> {
        let listed = || -> Vec<Pid> {
            let pid = self.pid();
            let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            text.split_whitespace().filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw)).collect()
        };
        let held: Vec<Self> = listed().into_iter().filter_map(Self::open).collect();
        // A pid that is in the list after the process was opened was not reused in between.
        let still = listed();
        held.into_iter().filter(|child| still.contains(&child.pid)).collect()
    }

    /// Opens a process whose pid the engine itself reported, such as an exec's first.
    pub fn of_engine(host_pid: u32) -> Result<Self, CgroupError> {
        let pid = i32::try_from(host_pid).ok().and_then(Pid::from_raw).ok_or(CgroupError::NoSuchProcess)?;
        Self::open(pid).ok_or(CgroupError::NoSuchProcess)
    }

    /// Sends SIGKILL, which also ends a stopped process, and waits until it has ended, for `within` at most. Returns true if it has.
    pub fn kill(&self, within: Duration) -> bool {
        // The only possible failure is that the process has ended already.
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
        self.ends(within)
    }

    /// Waits until the process has ended, for `within` at most. Returns true if it has.
    pub fn ends(&self, within: Duration) -> bool {
        let wait = Timespec::try_from(within).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let mut fds = [PollFd::new(&self.handle, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&wait)), Ok(ended) if ended > 0)
    }

    /// Gives its threads, and the threads that they create, priority over all others of its container.
    ///
    /// They share the container's processor time; among thousands of busy processes a worker would get no turn for seconds. A process can
    /// always lower its own priority again.
    pub fn comes_first(&self) {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).into_iter().flatten().flatten();
        for task in tasks {
            let thread = task.file_name().to_str().and_then(|number| Pid::from_raw(number.parse().ok()?));
            if thread.is_some() && self.is_alive() {
                // The thread may have ended, or the kernel may not permit this to the daemon.
                let _ = setpriority_process(thread, FIRST);
            }
        }
    }

    /// Returns a copy of one of the process's descriptors, by its number there (`pidfd_getfd(2)`). It refers to the same open file.
    ///
    /// Closing the copy blocks if the open file is one that blocks on close.
    pub fn descriptor(&self, number: u32) -> Result<OwnedFd, CgroupError> {
        let number = i32::try_from(number).map_err(|_| CgroupError::NoSuchProcess)?;
        pidfd_getfd(&self.handle, number, PidfdGetfdFlags::empty())
            .map_err(failed("take a descriptor of the worker"))
    }

    /// Makes the process and its children the first victims when memory runs out, before the processes that supervise them.
    ///
    /// The process cannot undo this if the daemon has `CAP_SYS_RESOURCE`, which root has outside of some containers.
    pub fn goes_first(&self) -> Result<(), CgroupError> {
        let said = "mark the command as the first to be killed when memory runs out";
        let path = format!("/proc/{}/oom_score_adj", self.pid());
        let mut file = fs::File::options().write(true).open(path).map_err(failed(said))?;
        // Checked after opening, so that the file cannot be that of another process with the same pid.
        if !self.is_alive() {
            return Err(CgroupError::NoSuchProcess);
        }
        file.write_all(b"1000").map_err(failed(said))
    }

    pub(super) fn signal(&self, signal: Signal) {
        // The only possible failure is that the process has ended already.
        let _ = pidfd_send_signal(&self.handle, signal);
    }

    pub(super) fn open(pid: Pid) -> Option<Self> {
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        Some(Self { pid, handle })
    }

    /// Returns true until the process ends. A pidfd becomes readable at that moment.
    pub fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.handle, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
    }
}

/// Returns the process among `candidates`, all from the container's cgroup, that has this pid in the guest's pid namespace.
pub(super) fn find(
    candidates: &[Pid],
    guest_host_pid: u32,
    pid_inside: u32,
) -> Result<HostProcess, CgroupError> {
    let namespace =
        fs::read_link(format!("/proc/{guest_host_pid}/ns/pid")).map_err(|_| CgroupError::NoSuchProcess)?;
    candidates
        .iter()
        .find_map(|&pid| {
            // Opened first: the data read afterwards is about this process if it is still alive then.
            let process = HostProcess::open(pid)?;
            let raw = process.pid();
            let status = fs::read_to_string(format!("/proc/{raw}/status")).ok()?;
            let same_namespace =
                fs::read_link(format!("/proc/{raw}/ns/pid")).is_ok_and(|found| found == namespace);
            (innermost_pid(&status) == Some(pid_inside) && same_namespace && process.is_alive())
                .then_some(process)
        })
        .ok_or(CgroupError::NoSuchProcess)
}

/// Returns the process's peak of resident memory in bytes, or `None` if it has ended.
pub(super) fn peak_memory(pid: Pid) -> Option<u64> {
    high_water_mark(&fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?)
}

/// Returns `VmHWM:` in bytes. A zombie has no such line.
fn high_water_mark(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// Returns the last number of `NSpid:`, the pid in the process's own namespace.
///
/// A process can choose its name, but `Name:` escapes line ends, so it cannot forge another line.
fn innermost_pid(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_pid_is_the_last() {
        assert_eq!(innermost_pid("Name:\tNSpid:\\n\nNSpid:\t4711\t23\t7\nNSpgid:\t1\n"), Some(7));
        assert_eq!(innermost_pid("NSpid:\t42\n"), Some(42));
        assert_eq!(innermost_pid("Name:\tx\n"), None);
        assert_eq!(innermost_pid("NSpid:\n"), None);
    }

    #[test]
    fn the_high_water_mark_is_in_bytes() {
        assert_eq!(
            high_water_mark("Name:\tVmHWM:\\n\nVmPeak:\t9 kB\nVmHWM:\t    1292 kB\n"),
            Some(1292 << 10)
        );
        for text in ["", "Name:\tx\n", "VmHWM:\t12\n", "VmHWM:\t-1 kB\n", "VmHWM:\t18446744073709551615 kB\n"]
        {
            assert_eq!(high_water_mark(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_process_is_found_only_by_its_own_number_and_namespace() {
        let me = std::process::id();
        let own = Pid::from_raw(i32::try_from(me).unwrap()).unwrap();
        let inside = innermost_pid(&fs::read_to_string("/proc/self/status").unwrap()).unwrap();
        assert_eq!(find(&[own], me, inside).unwrap().pid(), me);
        assert!(matches!(find(&[own], me, inside + 1), Err(CgroupError::NoSuchProcess)));
        assert!(matches!(find(&[], me, inside), Err(CgroupError::NoSuchProcess)));
    }

    #[test]
    fn a_stopped_process_can_be_ended() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let process = HostProcess::of_engine(child.id()).unwrap();
        pidfd_send_signal(&process.handle, Signal::STOP).unwrap();
        assert!(process.is_alive());
        assert!(process.kill(Duration::from_secs(10)));
        assert!(!process.is_alive());
        child.wait().unwrap();
        assert!(process.kill(Duration::ZERO), "one that is gone counts as ended");
    }

    #[test]
    fn goes_first_sets_oom_score() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let process = HostProcess::of_engine(child.id()).unwrap();
        process.goes_first().unwrap();
        let said = fs::read_to_string(format!("/proc/{}/oom_score_adj", child.id())).unwrap();
        assert_eq!(said.trim(), "1000");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(process.goes_first().is_err());
    }

    #[test]
    fn an_ended_process_is_not_alive() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let process = HostProcess::of_engine(child.id()).unwrap();
        assert!(process.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.is_alive());
        assert!(matches!(HostProcess::of_engine(0), Err(CgroupError::NoSuchProcess)));
    }
}
