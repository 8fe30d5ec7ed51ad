//! How host workers are started: everywhere the same program, with what the operator accepts where the kernel lets the daemon
//! have no jail.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::OnceLock;

use host_launch::{Launcher, PROGRAM, WeakerForm};

static SETTINGS: OnceLock<(OwnedFd, Option<WeakerForm>)> = OnceLock::new();

/// Says, once and before the first host worker, which file their program is, and what the configuration accepts.
pub fn set_host_worker(program: OwnedFd, accepts: Option<WeakerForm>) {
    // There is one configuration.
    let _ = SETTINGS.set((program, accepts));
}

pub fn launcher() -> Launcher {
    match SETTINGS.get() {
        Some((program, accepts)) => Launcher::opened(program.as_fd()).accepting(*accepts),
        // Starts nothing, and says so.
        None => Launcher::of(PROGRAM),
    }
}
