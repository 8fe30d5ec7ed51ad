//! Starts host workers, always from the same program.
//!
//! If the kernel gives the daemon no jail, the operator's setting decides about a weaker one.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::OnceLock;

use host_launch::{Launcher, PROGRAM, WeakerForm};

static SETTINGS: OnceLock<(OwnedFd, Option<WeakerForm>)> = OnceLock::new();

/// Sets the program of host workers, and the weaker jail that the configuration accepts. Called once, before the first host worker.
pub fn set_host_worker(program: OwnedFd, accepts: Option<WeakerForm>) {
    // There is only one configuration.
    let _ = SETTINGS.set((program, accepts));
}

pub fn launcher() -> Launcher {
    match SETTINGS.get() {
        Some((program, accepts)) => Launcher::opened(program.as_fd()).accepting(*accepts),
        // Fails to start anything, with an error.
        None => Launcher::of(PROGRAM),
    }
}
