//! `coffer-guest sweep`: ends every other process that its user may end, where no cgroup separates them. The daemon runs it before it
//! replaces a guest, so that the processes of the previous guest are gone as well.
//!
//! PID 1 and relays have other users and stay. The result is the exit code, because other processes of the user could also write to its
//! output. A sweep that is killed has no result, and is repeated.

use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::children::look::{Process, look};

/// Time in which all processes have to end.
const WITHIN: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

pub(crate) fn run() -> ExitCode {
    crate::sys::ignore_signals();
    let until = Instant::now() + WITHIN;
    while Instant::now() < until {
        let look = look();
        let others: Vec<Pid> = look.processes.iter().filter_map(killable).collect();
        if others.is_empty() && look.is_whole {
            return ExitCode::SUCCESS;
        }
        for pid in others {
            // An error means that the process is already gone.
            let _ = kill_process(pid, Signal::KILL);
        }
        sleep(LOOK_AGAIN);
    }
    ExitCode::FAILURE
}

fn killable(process: &Process) -> Option<Pid> {
    let pid = Pid::from_raw(process.pid).filter(|pid| *pid != rustix::process::getpid())?;
    (process.is_alive() && test_kill_process(pid).is_ok()).then_some(pid)
}
