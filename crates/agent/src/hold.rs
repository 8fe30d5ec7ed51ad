//! PID 1 of a container: keeps it alive and reaps what nobody else does, so that zombies never fill the pid limit.

use std::process::ExitCode;

use crate::sys::{self, Sign, Vigil};

/// Runs until it is told to end. The kernel then ends everything else in the container.
pub(crate) fn run() -> ExitCode {
    let vigil = Vigil::begin();
    loop {
        // Signals of one kind merge, and children may have been there before the first.
        while sys::reap().is_some() {}
        if vigil.wait() == Sign::End {
            return ExitCode::SUCCESS;
        }
    }
}
