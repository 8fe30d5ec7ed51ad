//! Searches the files of a walk on several threads. Nothing waits for a thread: one that cannot be made is one less.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Builder};
use std::time::Duration;

use super::hands::Hands;
use super::queue::{Job, Queue, TAKEN, lock};
use super::seeker::{Order, Seeker, Sought};
use super::tally::{Sum, Tally};
use crate::read::helpers::{helped, thread_time};
use crate::read::pattern::Pattern;
use crate::read::walk::{Walk, Walked};

/// As much as the thread has on which the search was called.
const STACK: usize = 1024 * 1024;

/// Searches what is left of `walk`, or as much as the answer needs.
pub(super) fn search(
    order: Order<'_>,
    filter: Option<&Pattern>,
    walk: Walk<'_>,
    tally: Tally,
) -> (Sum, Walked) {
    let crew = Crew {
        order,
        queue: Queue::new(walk, filter, order.last),
        tally: Mutex::new(tally),
        helped: Mutex::default(),
    };
    let some = crew.queue.take();
    let hands = if some.len() < TAKEN { Hands::none() } else { Hands::claim() };
    thread::scope(|scope| {
        for _ in 0..hands.count() {
            let hand = Builder::new().name("grep".to_owned()).stack_size(STACK);
            let help = || {
                crew.work(crew.queue.take());
                // The thread has done nothing else.
                *crew.helped.lock().unwrap_or_else(PoisonError::into_inner) += thread_time();
            };
            if hand.spawn_scoped(scope, help).is_err() {
                break;
            }
        }
        crew.work(some);
    });
    helped(crew.helped.into_inner().unwrap_or_else(PoisonError::into_inner));
    let (count, walked) = crew.queue.finish();
    let tally = crew.tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    (tally.finish(count), walked)
}

struct Crew<'a> {
    order: Order<'a>,
    queue: Queue<'a>,
    tally: Mutex<Tally>,
    /// Processor time of the threads that help.
    helped: Mutex<Duration>,
}

impl Crew<'_> {
    fn work(&self, mut some: Vec<Job>) {
        if some.is_empty() {
            return;
        }
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
            some = self.queue.take();
        }
    }
}
