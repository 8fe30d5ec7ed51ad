//! How many threads search. All searches of a process share the processors that it may use.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

/// Beyond this the walk, which one thread does at a time, is what takes the time.
const MAX_THREADS: usize = 8;

/// Threads that the process may have beside those that the searches were called on.
static SPARE: LazyLock<AtomicUsize> = LazyLock::new(|| {
    let processors = available_parallelism().map_or(1, usize::from);
    AtomicUsize::new(processors.min(MAX_THREADS) - 1)
});

/// Threads that one search may have beside its own. They are given back with the value.
pub(super) struct Threads(usize);

impl Threads {
    /// For what is done before another thread has begun.
    pub(super) const fn none() -> Self {
        Self(0)
    }

    /// All that are free. None is ever waited for.
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
