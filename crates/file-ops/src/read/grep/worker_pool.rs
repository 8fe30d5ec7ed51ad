//! Searches the files of a walk on several threads. If a thread cannot be created, the search continues with fewer.

use std::sync::atomic::Ordering;
use std::thread::{self, Builder};
use std::time::Duration;

use jail::SandboxPath;
use parking_lot::Mutex;

use super::queue::{Job, Queue, TAKEN};
use super::seeker::{Order, Seeker, Sought};
use super::tally::{Sum, Tally};
use super::threads::Threads;
use crate::read::helpers::{helped, thread_time};
use crate::read::walk::{Walk, Walked};

/// Stack of a thread, as large as that of the thread that called the search.
const STACK: usize = 1024 * 1024;

/// Searches the rest of `walk`, which began in `start`, until the answer is full.
pub(super) fn search(order: Order<'_>, start: &SandboxPath, walk: Walk<'_>, tally: Tally) -> (Sum, Walked) {
    let worker_pool = WorkerPool {
        order,
        start,
        queue: Queue::new(walk, order.last),
        tally: Mutex::new(tally),
        helped: Mutex::default(),
    };
    let some = worker_pool.queue.take();
    let threads = if some.len() < TAKEN { Threads::none() } else { Threads::claim() };
    thread::scope(|scope| {
        for _ in 0..threads.count() {
            let host_worker = Builder::new().name("grep".to_owned()).stack_size(STACK);
            let help = || {
                worker_pool.work(worker_pool.queue.take());
                // The thread has done no other work.
                *worker_pool.helped.lock() += thread_time();
            };
            if host_worker.spawn_scoped(scope, help).is_err() {
                break;
            }
        }
        worker_pool.work(some);
    });
    helped(worker_pool.helped.into_inner());
    let (count, walked) = worker_pool.queue.finish();
    let tally = worker_pool.tally.into_inner();
    (tally.finish(count), walked)
}

struct WorkerPool<'a> {
    order: Order<'a>,
    start: &'a SandboxPath,
    queue: Queue<'a>,
    tally: Mutex<Tally>,
    /// Processor time of the additional threads.
    helped: Mutex<Duration>,
}

impl WorkerPool<'_> {
    fn work(&self, mut some: Vec<Job>) {
        if some.is_empty() {
            return;
        }
        let mut seeker = Seeker::new(self.order);
        while !some.is_empty() {
            for job in some {
                let sought = match job.dir.open_file(&job.name) {
                    Ok(file) => seeker.file(job.number, &file, || self.start.shown(&job.shown)),
                    Err(_) => Sought::Unreadable,
                };
                if let Some(last) = self.tally.lock().add(job.number, sought) {
                    self.order.last.fetch_min(last, Ordering::Relaxed);
                }
            }
            some = self.queue.take();
        }
    }
}
