//! The files of a walk, a few ahead of the threads that search them.
//!
//! One thread at a time can walk, so whoever finds that few files are left walks on while the others take those. What is
//! held is bounded, and so are the directories that are open for it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use jail::{Dir, EntryName};

use crate::read::walk::{Walk, Walked};

/// Files that a thread takes at once, and that are fetched at once when there are fewer.
pub(super) const TAKEN: usize = 16;

/// A file to search.
pub(super) struct Job {
    /// In path order, from 0.
    pub(super) number: u64,
    pub(super) dir: Arc<Dir>,
    pub(super) name: EntryName,
    pub(super) shown: String,
}

/// The files that are still to come.
pub(super) struct Queue<'a> {
    /// The number of the last file that can still matter.
    last: &'a AtomicU64,
    source: Mutex<Source<'a>>,
    ready: Mutex<VecDeque<Job>>,
}

struct Source<'a> {
    walk: Walk<'a>,
    /// Files that have a number.
    count: u64,
    over: bool,
}

impl<'a> Queue<'a> {
    pub(super) fn new(walk: Walk<'a>, last: &'a AtomicU64) -> Self {
        let source = Mutex::new(Source { walk, count: 0, over: false });
        Self { last, source, ready: Mutex::default() }
    }

    /// The next files; none when there are no more.
    pub(super) fn take(&self) -> Vec<Job> {
        loop {
            let (some, left) = self.pop();
            if left < TAKEN
                && let Some(mut source) = try_lock(&self.source)
            {
                self.fetch(&mut source);
            }
            if !some.is_empty() {
                return some;
            }
            // Nothing to do until whoever walks now has found more.
            if lock(&self.source).over {
                return self.pop().0;
            }
        }
    }

    /// How many files there were, and how far the walk came.
    pub(super) fn finish(self) -> (u64, Walked) {
        let Source { walk, count, .. } = self.source.into_inner().unwrap_or_else(PoisonError::into_inner);
        (count, walk.finish())
    }

    /// Some files, and how many are left.
    fn pop(&self) -> (Vec<Job>, usize) {
        let mut ready = lock(&self.ready);
        let some = ready.len().min(TAKEN);
        (ready.drain(..some).collect(), ready.len())
    }

    fn fetch(&self, source: &mut Source<'_>) {
        let mut jobs = Vec::with_capacity(TAKEN);
        while jobs.len() < TAKEN && !source.over {
            // The answer may be full without what comes now.
            let wanted = self.last.load(Ordering::Relaxed) >= source.count;
            let Some(visit) = wanted.then(|| source.walk.next()).flatten() else {
                source.over = true;
                break;
            };
            let (dir, shown) = (Arc::clone(visit.dir), visit.shown.to_owned());
            jobs.push(Job { number: source.count, dir, name: visit.name, shown });
            source.count += 1;
        }
        lock(&self.ready).extend(jobs);
    }
}

/// Whoever panicked with it left it whole: it is only ever changed by single steps.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
