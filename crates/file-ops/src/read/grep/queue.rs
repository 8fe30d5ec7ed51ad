//! The files of a walk, queued a few ahead of the threads that search them.
//!
//! Only one thread at a time can walk. A thread that finds few files left continues the walk while the others search those. The number of
//! queued files is bounded, and with it the number of their open directories.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jail::{Dir, EntryName};
use parking_lot::Mutex;

use crate::read::walk::{Walk, Walked};

/// Files that a thread takes at once. With fewer files left, a thread fetches this many.
pub(super) const TAKEN: usize = 16;

/// File to search.
pub(super) struct Job {
    /// Number in path order, from 0.
    pub(super) number: u64,
    pub(super) dir: Arc<Dir>,
    pub(super) name: EntryName,
    pub(super) shown: String,
}

/// Files that are still to be searched.
pub(super) struct Queue<'a> {
    /// Number of the last file that can still matter.
    last: &'a AtomicU64,
    source: Mutex<Source<'a>>,
    ready: Mutex<VecDeque<Job>>,
}

struct Source<'a> {
    walk: Walk<'a>,
    /// Number of files numbered so far.
    count: u64,
    over: bool,
}

impl<'a> Queue<'a> {
    pub(super) fn new(walk: Walk<'a>, last: &'a AtomicU64) -> Self {
        let source = Mutex::new(Source { walk, count: 0, over: false });
        Self { last, source, ready: Mutex::default() }
    }

    /// Returns the next files, or none at the end.
    pub(super) fn take(&self) -> Vec<Job> {
        loop {
            let (some, left) = self.pop();
            if left < TAKEN
                && let Some(mut source) = self.source.try_lock()
            {
                self.fetch(&mut source);
            }
            if !some.is_empty() {
                return some;
            }
            // Wait until the thread that walks now has found more.
            if self.source.lock().over {
                return self.pop().0;
            }
        }
    }

    /// Returns the number of files and how far the walk came.
    pub(super) fn finish(self) -> (u64, Walked) {
        let Source { walk, count, .. } = self.source.into_inner();
        (count, walk.finish())
    }

    /// Takes some files and returns them with the number of files that are left.
    fn pop(&self) -> (Vec<Job>, usize) {
        let mut ready = self.ready.lock();
        let some = ready.len().min(TAKEN);
        (ready.drain(..some).collect(), ready.len())
    }

    fn fetch(&self, source: &mut Source<'_>) {
        let mut jobs = Vec::with_capacity(TAKEN);
        while jobs.len() < TAKEN && !source.over {
            // The answer may be full without the next files.
            let wanted = self.last.load(Ordering::Relaxed) >= source.count;
            let Some(visit) = wanted.then(|| source.walk.next()).flatten() else {
                source.over = true;
                break;
            };
            let (dir, shown) = (Arc::clone(visit.dir), visit.shown.to_owned());
            jobs.push(Job { number: source.count, dir, name: visit.name, shown });
            source.count += 1;
        }
        self.ready.lock().extend(jobs);
    }
}
