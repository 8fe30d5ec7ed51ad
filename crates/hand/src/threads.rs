//! The threads of one operation's process, beside its first.
//!
//! They are made when the process knows its operation and has looked at nothing yet; afterwards it cannot make any
//! (`setup/seccomp.rs`). They wait for something to do, which is nothing but system calls that look at files: libgit2 and
//! all that is shared by chance stays with the first thread. Where one cannot be made, there are fewer, and the work is the
//! same. They end with their process.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;

use crate::sys;

/// Threads of an operation, the first included, at most.
pub(crate) const MOST: usize = 4;
/// Bytes of a stack.
const STACK: usize = 256 * 1024;

/// Something for all threads: each calls it once, and they divide it among themselves.
pub(crate) trait Shared: Send + Sync {
    /// Does what is left of it.
    fn work(&self);
}

/// A task, and what is dropped when the thread is done with it.
type Order = (Arc<dyn Shared>, Sender<Infallible>);

/// The threads.
pub(crate) struct Threads(Vec<Sender<Order>>);

impl Threads {
    /// Only the one that there is.
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    /// Makes them, up to `count` with the one that there is.
    pub(crate) fn start(count: usize) -> Self {
        if count > 1 {
            sys::one_heap();
        }
        let others = (1..count.min(MOST)).map_while(|_| {
            let (orders, received) = channel();
            Builder::new().stack_size(STACK).spawn(move || obey(&received)).ok()?;
            Some(orders)
        });
        Self(others.collect())
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        1 + self.0.len()
    }

    /// All but this one begin.
    pub(crate) fn begin(&self, task: Arc<dyn Shared>) -> Begun {
        let (working, finished) = channel();
        for thread in &self.0 {
            // One that is gone has left its share to the others.
            let _ = thread.send((Arc::clone(&task), working.clone()));
        }
        Begun { task, finished }
    }
}

/// What the other threads are at.
pub(crate) struct Begun {
    task: Arc<dyn Shared>,
    finished: Receiver<Infallible>,
}

impl Begun {
    /// Takes part, and returns when it is done.
    pub(crate) fn finish(self) {
        self.task.work();
        // An error when the last of them has dropped its end, be it in a panic.
        let _ = self.finished.recv();
    }
}

fn obey(orders: &Receiver<Order>) {
    while let Ok((task, _working)) = orders.recv() {
        task.work();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::{ThreadId, current};

    use super::*;

    /// Tells who came, and lets the last go on when all have.
    struct Meeting {
        expected: usize,
        came: Mutex<Vec<ThreadId>>,
        left: AtomicUsize,
    }

    impl Shared for Meeting {
        fn work(&self) {
            self.came.lock().unwrap().push(current().id());
            while self.came.lock().unwrap().len() < self.expected {
                std::thread::yield_now();
            }
            self.left.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn all_take_part_and_all_are_waited_for() {
        for count in 1..=MOST {
            let threads = Threads::start(count);
            assert_eq!(threads.count(), count);
            for _ in 0..20 {
                let meeting = Arc::new(Meeting {
                    expected: count,
                    came: Mutex::default(),
                    left: AtomicUsize::default(),
                });
                threads.begin(meeting.clone()).finish();
                assert_eq!(meeting.left.load(Ordering::Relaxed), count);
                let mut came: Vec<_> =
                    meeting.came.lock().unwrap().iter().map(|id| format!("{id:?}")).collect();
                came.sort();
                came.dedup();
                assert_eq!(came.len(), count, "each once");
            }
        }
    }

    struct Panics(ThreadId);

    impl Shared for Panics {
        fn work(&self) {
            assert_eq!(current().id(), self.0, "as it should");
        }
    }

    #[test]
    fn one_that_panics_is_not_waited_for() {
        let threads = Threads::start(3);
        for _ in 0..3 {
            threads.begin(Arc::new(Panics(current().id()))).finish();
        }
    }
}
