//! Process 1 of a container. It keeps the container alive and reaps orphans, so that zombies never fill the pid limit.
//!
//! It has the uid of the run's commands, which may send it any signal. Only SIGKILL from outside its pid namespace ends it, and the
//! container's stop signal is SIGKILL.

use crate::sys::{self, ChildSignal};

/// Runs forever. When the process is killed, the kernel ends all other processes of the container.
pub(crate) fn run() -> ! {
    let children = ChildSignal::begin();
    loop {
        // Signals of one kind merge, and children may have existed before the first signal.
        while sys::reap().is_some() {}
        children.wait();
    }
}
