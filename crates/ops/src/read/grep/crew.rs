//! Searches the files of a walk on several threads.
//!
//! The walk hands out files, some at a time and numbered in path order, to whichever thread asks; so no more is open or
//! held than the threads work on. Nothing waits for a thread: one that cannot be made is one less.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder};

use jail::{Dir, EntryName};

use super::hands::Hands;
use super::seeker::{Order, Seeker, Sought};
use super::tally::{Sum, Tally};
use crate::read::pattern::Pattern;
use crate::read::walk::{Walk, Walked};

/// Files that a thread takes at once.
const TAKEN: usize = 16;
/// As much as the thread has on which the search was called.
const STACK: usize = 1024 * 1024;

/// Searches what is left of `walk`, or as much as the answer needs.
pub(super) fn search(
    order: Order<'_>,
    filter: Option<&Pattern>,
    walk: Walk<'_>,
    tally: Tally,
) -> (Sum, Walked) {
    let crew = Crew { order, filter, files: Mutex::new(Files { walk, count: 0 }), tally: Mutex::new(tally) };
    let some = crew.take();
    let hands = if some.len() < TAKEN { Hands::none() } else { Hands::claim() };
    thread::scope(|scope| {
        for _ in 0..hands.count() {
            let hand = Builder::new().name("grep".to_owned()).stack_size(STACK);
            if hand.spawn_scoped(scope, || crew.work(crew.take())).is_err() {
                break;
            }
        }
        crew.work(some);
    });
    let Files { walk, count } = crew.files.into_inner().unwrap_or_else(PoisonError::into_inner);
    let tally = crew.tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    (tally.finish(count), walk.finish())
}

/// The files that are still to come.
struct Files<'a> {
    walk: Walk<'a>,
    /// Handed out so far.
    count: u64,
}

/// A file to search.
struct Job {
    number: u64,
    dir: Arc<Dir>,
    name: EntryName,
    shown: String,
}

struct Crew<'a> {
    order: Order<'a>,
    filter: Option<&'a Pattern>,
    files: Mutex<Files<'a>>,
    tally: Mutex<Tally>,
}

impl Crew<'_> {
    fn take(&self) -> Vec<Job> {
        let mut files = lock(&self.files);
        let Files { walk, count } = &mut *files;
        let mut some = Vec::with_capacity(TAKEN);
        while some.len() < TAKEN
            && self.order.last.load(Ordering::Relaxed) >= *count
            && let Some(visit) = walk.next()
        {
            if self.filter.is_none_or(|filter| filter.matches(visit.shown)) {
                let (dir, shown) = (Arc::clone(visit.dir), visit.shown.to_owned());
                some.push(Job { number: *count, dir, name: visit.name, shown });
                *count += 1;
            }
        }
        some
    }

    fn work(&self, mut some: Vec<Job>) {
        let mut seeker = Seeker::new(self.order);
        while !some.is_empty() {
            for job in some {
                let sought = match job.dir.open_file(&job.name) {
                    Ok(file) => {
                        seeker.file(job.number, &file, || format!("{}/{}", self.order.grep.path, job.shown))
                    }
                    Err(_) => Sought::Skipped,
                };
                if let Some(last) = lock(&self.tally).add(job.number, sought) {
                    self.order.last.fetch_min(last, Ordering::Relaxed);
                }
            }
            some = self.take();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
