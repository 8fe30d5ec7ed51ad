//! Threads for work that may block: files, and reading `/proc`.
//!
//! The runtime has such threads, but panics if it cannot make one. A command can cause that, because the run's limit of processes counts
//! threads as well. So the first thread here is made before there is any command, and stays. Others are made when there is more work and
//! end soon after. If none can be made, the work waits for the first. After a time without work, freed memory goes back to the system: a
//! run is idle most of the time.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

/// Most threads at the same time. More work waits.
const MOST: usize = 8;
/// Stack of a thread: enough for the deepest walk and for compiling the largest pattern.
const STACK: usize = 1024 * 1024;
/// Time after which an idle thread ends.
const IDLE: Duration = Duration::from_secs(2);

type Work = Box<dyn FnOnce() + Send>;

/// The threads of this process. Clones share the same threads.
#[derive(Clone)]
pub(crate) struct Threads(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Work>,
    threads: usize,
    idle: usize,
    /// True if work was done since memory was last given back.
    used: bool,
}

impl Threads {
    /// Makes the first thread.
    pub(crate) fn start() -> io::Result<Self> {
        let state = Mutex::new(State { threads: 1, ..State::default() });
        let shared = Arc::new(Shared { state, news: Condvar::new() });
        let first = Arc::clone(&shared);
        Builder::new().stack_size(STACK).spawn(move || first.serve(true))?;
        Ok(Self(shared))
    }

    /// Runs the work on one of the threads. The receiver gets its result, or an error if it panics.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (done, result) = oneshot::channel();
        let mut state = self.0.state.lock();
        state.waiting.push_back(Box::new(move || {
            // An error means that the receiver is gone.
            let _ = done.send(work());
        }));
        if state.waiting.len() > state.idle && state.threads < MOST {
            let one_more = Arc::clone(&self.0);
            let made = Builder::new().stack_size(STACK).spawn(move || one_more.serve(false));
            state.threads += usize::from(made.is_ok());
        }
        self.0.news.notify_one();
        result
    }

    /// Records work on another thread, so that the memory that it freed goes back to the system in the same way.
    pub(crate) fn used(&self) {
        if !std::mem::replace(&mut self.0.state.lock().used, true) {
            self.0.news.notify_one();
        }
    }
}

impl Shared {
    /// Works until there was no work for a while, or forever if the thread `stays`.
    fn serve(&self, stays: bool) {
        let mut state = self.state.lock();
        loop {
            if let Some(work) = state.waiting.pop_front() {
                state.used = true;
                drop(state);
                // The work belongs to one call, but the thread belongs to all calls.
                let _ = catch_unwind(AssertUnwindSafe(work));
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            let mut late = false;
            if stays && !state.used {
                self.news.wait(&mut state);
            } else {
                late = self.news.wait_for(&mut state, IDLE).timed_out();
            }
            state.idle -= 1;
            if late && state.waiting.is_empty() {
                if std::mem::take(&mut state.used) {
                    crate::sys::give_memory_back();
                }
                if !stays {
                    state.threads -= 1;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn work_beyond_the_thread_limit_waits() {
        let threads = Threads::start().unwrap();
        let together = Arc::new(Barrier::new(MOST));
        let results: Vec<_> = (0..3 * MOST)
            .map(|number| {
                let together = Arc::clone(&together);
                threads.run(move || {
                    together.wait();
                    number
                })
            })
            .collect();
        for (number, result) in results.into_iter().enumerate() {
            assert_eq!(result.blocking_recv(), Ok(number));
        }
        assert!(threads.0.state.lock().threads <= MOST);
    }

    #[test]
    fn a_panic_ends_only_its_own_task() {
        let threads = Threads::start().unwrap();
        for _ in 0..2 * MOST {
            assert!(threads.run(|| panic!("as a test")).blocking_recv().is_err());
        }
        assert_eq!(threads.run(|| 1).blocking_recv(), Ok(1));
    }

    #[test]
    fn the_first_one_stays() {
        let threads = Threads::start().unwrap();
        let shared = Arc::clone(&threads.0);
        // Two at once, so that a second thread comes, and goes again.
        let together = Arc::new(Barrier::new(2));
        let pair = [(); 2].map(|()| {
            let together = Arc::clone(&together);
            threads.run(move || together.wait().is_leader())
        });
        let leaders = pair.into_iter().map(|one| one.blocking_recv().unwrap());
        assert_eq!(leaders.filter(|leader| *leader).count(), 1);
        while shared.state.lock().threads > 1 {
            std::thread::yield_now();
        }
        assert_eq!(threads.run(|| 2).blocking_recv(), Ok(2));
    }

    /// Waits until no more is resident than so many pages.
    fn await_return(pages: u64) {
        while resident() > pages {
            std::thread::yield_now();
        }
    }

    /// Pages of memory that the process has resident.
    fn resident() -> u64 {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// 32 MiB of which only the last piece stays, so that freeing alone cannot make the heap shorter.
    fn fragments() -> Option<Box<[u8; 1024]>> {
        let mut pieces: Vec<_> = (0..32 * 1024).map(|_| Box::new([1_u8; 1024])).collect();
        pieces.pop()
    }

    #[test]
    fn memory_of_other_threads_is_returned() {
        let threads = Threads::start().unwrap();
        let before = resident();
        let last = fragments();
        threads.used();
        await_return(before + 2048);
        assert!(last.is_some());
    }

    #[test]
    fn idle_threads_keep_no_memory() {
        let threads = Threads::start().unwrap();
        let before = resident();
        let last = threads.run(fragments).blocking_recv().unwrap();
        await_return(before + 2048);
        assert!(last.is_some());
    }
}
