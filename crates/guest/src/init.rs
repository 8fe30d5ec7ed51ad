//! PID 1 of a container: keeps it alive and reaps what nobody else does, so that zombies never fill the pid limit.
//!
//! It shares its uid with the commands of the run, which may send it what they want. It ends with SIGKILL from outside of its pid
//! namespace and in no other way: the container's stop signal is that one.

use crate::sys::{self, ChildSignal};

/// Never returns. When it is killed the kernel ends everything else in the container.
pub(crate) fn run() -> ! {
    let children = ChildSignal::begin();
    loop {
        // Signals of one kind merge, and children may have been there before the first.
        while sys::reap().is_some() {}
        children.wait();
    }
}
