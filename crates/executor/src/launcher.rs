//! How host workers are started: everywhere the same, with what the operator accepts where the kernel lets the daemon have no jail.

use std::sync::OnceLock;

use host_worker::{Launcher, WeakerForm};

static ACCEPTED: OnceLock<Option<WeakerForm>> = OnceLock::new();

/// Says, once and before the first host worker, what the configuration accepts.
pub fn accept(weaker: Option<WeakerForm>) {
    // There is one configuration.
    let _ = ACCEPTED.set(weaker);
}

pub fn launcher() -> Launcher {
    Launcher::default().accepting(ACCEPTED.get().copied().flatten())
}
