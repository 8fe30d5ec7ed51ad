//! `coffer-guest sweep`: ends every other process that its user may end, where no cgroup tells them apart. The daemon has
//! it run before it starts a guest in place of another one, so what that one has started is gone as well.
//!
//! PID 1 and relays have a user of their own and stay. The exit code says how it went: what a process writes, others of
//! its user could write, too. A sweep that is killed says nothing, and is repeated.

use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::children::look::{Process, look};

/// Until everything has to be gone.
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
            // One that is gone is what was wanted.
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
