//! The number of threads that search. All searches of a process share the processors that it may use.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

/// Most threads of a search. With more, the walk is the bottleneck, because one thread at a time does it.
const MAX_THREADS: usize = 8;

/// Threads that are free for searches, beyond those that called them.
static SPARE: LazyLock<AtomicUsize> = LazyLock::new(|| {
    let processors = available_parallelism().map_or(1, usize::from);
    AtomicUsize::new(processors.min(MAX_THREADS) - 1)
});

/// Threads that one search has claimed beyond its own. Dropping the value returns them.
pub(super) struct Threads(usize);

impl Threads {
    /// Returns no threads, for the work before another thread has begun.
    pub(super) const fn none() -> Self {
        Self(0)
    }

    /// Claims all free threads without waiting for any.
    pub(super) fn claim() -> Self {
        Self(SPARE.swap(0, Ordering::Relaxed))
    }

    pub(super) const fn count(&self) -> usize {
        self.0
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        SPARE.fetch_add(self.0, Ordering::Relaxed);
    }
}
