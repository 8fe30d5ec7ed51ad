//! The programs that a hand-over starts: the successor, and this program again.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::process::Pid;

use crate::channel::Channel;
use crate::{KEPT, TAKE_OVER, notify};

/// Link to this program, also after its file was replaced.
const SELF: &str = "/proc/self/exe";

/// Returns the reason that no process can take over from this one, if there is one.
pub fn hindrance() -> Option<&'static str> {
    let own_pid = std::process::id();
    let is_the_managers = env::var("SYSTEMD_EXEC_PID").is_ok_and(|pid| pid == own_pid.to_string());
    if own_pid == 1 {
        Some("it is the first process of its container, which ends with it: make the container anew")
    } else if is_the_managers && !is_managed() {
        Some("its systemd unit lacks `NotifyAccess=main`: systemd would end the successor with the service")
    } else {
        None
    }
}

/// Returns true if the service manager would take this process for one of its service: it has the same cgroups.
///
/// Without a service manager any process may be the daemon.
pub(crate) fn is_of_service(process: Pid) -> bool {
    let cgroups = |process: &str| std::fs::read(format!("/proc/{process}/cgroup")).ok();
    let (own, its) = (cgroups("self"), cgroups(&process.as_raw_nonzero().to_string()));
    !is_managed() || (own.is_some() && own == its)
}

/// Returns true if a service manager waits to be told of the state of this process.
fn is_managed() -> bool {
    env::var_os(notify::SOCKET).is_some_and(|named| !named.is_empty())
}

/// Starts the successor. It inherits the limits, the log and the environment of this process.
pub(crate) fn start(program: &Path, config: &Path) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.arg(TAKE_OVER).arg("--config").arg(config).stdin(Stdio::null());
    // The watchdog watches the main process, which the successor becomes.
    command.env_remove("WATCHDOG_PID").spawn()
}

/// Holds SIGHUP, SIGTERM and SIGINT back, over [`again`] too: neither a reload nor a stop may end a process that has no handler, and a stop
/// must not be lost.
pub(crate) fn hold_signals() -> io::Result<()> {
    Ok([hangup(), stops()].iter().try_for_each(SigSet::thread_block)?)
}

/// Asks this process to stop, for the time when signals are no longer held back.
pub(crate) fn ask_to_stop() -> io::Result<()> {
    Ok(raise(Signal::SIGTERM)?)
}

/// Returns true if a request to stop was held back. Takes it.
pub(crate) fn was_asked_to_stop() -> bool {
    let held = SignalFd::with_flags(&stops(), SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC);
    held.and_then(|held| held.read_signal()).is_ok_and(|signal| signal.is_some())
}

/// Lets requests to stop arrive that were held back. The caller has handlers for them by now.
pub(crate) fn release_stops() -> io::Result<()> {
    Ok(stops().thread_unblock()?)
}

/// Forgets a SIGHUP that was held back, and holds none back any longer. A daemon that starts reads its files anyway.
pub(crate) fn drop_held_reloads() -> io::Result<()> {
    let held = SignalFd::with_flags(&hangup(), SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    while held.read_signal()?.is_some() {}
    Ok(hangup().thread_unblock()?)
}

fn hangup() -> SigSet {
    Signal::SIGHUP.into()
}

/// Returns the signals that stop the daemon.
fn stops() -> SigSet {
    SigSet::from(Signal::SIGTERM) | Signal::SIGINT
}

/// Executes this program again, in this process, with a channel as its input. Returns only if that fails.
///
/// `kept` is a configuration in place of the one in the file `config`.
pub(crate) fn again(option: &str, config: &Path, kept: Option<&Path>, input: Channel) -> io::Error {
    let mut command = Command::new(own_path());
    let name = env::args_os().next().unwrap_or_else(|| OsStr::new("cofferd").to_owned());
    command.arg0(name).arg(option).arg("--config").arg(config);
    if let Some(kept) = kept {
        command.arg(KEPT).arg(kept);
    }
    command.stdin(std::os::fd::OwnedFd::from(input)).exec()
}

/// Returns the path of this program if its file is still there. The process keeps its name in that case.
fn own_path() -> PathBuf {
    let same = |path: &PathBuf| {
        let (there, own) = (std::fs::metadata(path).ok()?, std::fs::metadata(SELF).ok()?);
        ((there.dev(), there.ino()) == (own.dev(), own.ino())).then_some(())
    };
    env::current_exe().ok().filter(|path| same(path).is_some()).unwrap_or_else(|| SELF.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_during_a_hand_over_ends_no_process() {
        hold_signals().unwrap();
        raise(Signal::SIGHUP).unwrap();
        // An unhandled SIGHUP would end this process.
        drop_held_reloads().unwrap();
        assert!(!SigSet::thread_get_mask().unwrap().contains(Signal::SIGHUP));
    }

    #[test]
    fn a_stop_during_a_hand_over_is_noted_once() {
        hold_signals().unwrap();
        assert!(!was_asked_to_stop());
        for signal in [Signal::SIGTERM, Signal::SIGINT] {
            raise(signal).unwrap();
            assert!(was_asked_to_stop());
            assert!(!was_asked_to_stop());
        }
        // Nothing is held back that would end this process now.
        release_stops().unwrap();
    }

    #[test]
    fn this_program_is_found_by_its_path_and_processes_of_no_service_may_take_over() {
        assert_eq!(own_path(), std::fs::read_link(SELF).unwrap());
        assert!(is_managed() || is_of_service(rustix::process::getpid()));
    }
}
