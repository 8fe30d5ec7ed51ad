//! Limit on the output and recordings of a run's processes, sessions and terminals on the host. Each run has one account in bytes.
//!
//! ```text
//!  0 ───────────────── 3/4 ────── 7/8 ────── all
//!  more output of a process │ the least of a new one │ recordings
//! ```
//!
//! Bytes are taken before they are written. A process that writes without end cannot use the last quarter. So it does not keep a process
//! from receiving input, or another process from starting while its minimum fits. A file counts with the space that the file system
//! allocates for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Block size in which file systems allocate space, in bytes.
const BLOCK: u64 = 4 * 1024;

/// Purpose of the bytes, which determines the part of the whole that is available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Output beyond the minimum of each process.
    Output,
    /// Minimum of a new process.
    Start,
    Recording,
}

/// The account of one run.
#[derive(Debug)]
pub struct Allowance {
    most: u64,
    used: AtomicU64,
}

impl Allowance {
    /// Makes the account of a run that may keep `most` bytes.
    pub fn new(most: u64) -> Arc<Self> {
        Arc::new(Self { most, used: AtomicU64::new(0) })
    }

    /// Returns the limit in bytes.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Returns the bytes that are taken.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    /// Takes all of these bytes or none. Returns true if they may be written.
    #[must_use]
    pub fn take(&self, purpose: Purpose, bytes: u64) -> bool {
        let most = match purpose {
            Purpose::Output => self.most - self.most / 4,
            Purpose::Start => self.most - self.most / 8,
            Purpose::Recording => self.most,
        };
        let more = |used: u64| used.checked_add(bytes).filter(|after| *after <= most);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Adds bytes that an earlier daemon left on the disk, even beyond the limit.
    pub fn enter(&self, bytes: u64) {
        let more = |used: u64| Some(used.saturating_add(bytes));
        let _ = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
    }

    /// Returns bytes that were taken and are not, or no longer, on the disk.
    pub fn give_back(&self, bytes: u64) {
        let less = |used: u64| Some(used.saturating_sub(bytes));
        let _ = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }
}

/// Returns the bytes that a file of this length takes.
pub fn cost(length: u64) -> u64 {
    length.div_ceil(BLOCK).saturating_mul(BLOCK)
}

/// The bytes taken for the output of one process. They are given back when the value is dropped.
#[derive(Debug)]
pub struct Share {
    allowance: Arc<Allowance>,
    held: AtomicU64,
}

impl Share {
    /// Takes the minimum of a new process, or returns `None` if it does not fit.
    pub fn begin(allowance: &Arc<Allowance>, bytes: u64) -> Option<Self> {
        let allowance = allowance.clone();
        allowance.take(Purpose::Start, bytes).then(|| Self { allowance, held: AtomicU64::new(bytes) })
    }

    /// Adds files that an earlier daemon left.
    pub fn of_former(allowance: &Arc<Allowance>, bytes: u64) -> Self {
        allowance.enter(bytes);
        Self { allowance: allowance.clone(), held: AtomicU64::new(bytes) }
    }

    /// Takes more bytes. Returns true if they may be written.
    #[must_use]
    pub fn grow(&self, bytes: u64) -> bool {
        let taken = self.allowance.take(Purpose::Output, bytes);
        if taken {
            self.held.fetch_add(bytes, Ordering::AcqRel);
        }
        taken
    }

    /// Gives back the bytes beyond this number.
    pub fn shrink_to(&self, bytes: u64) {
        let held = self.held.fetch_min(bytes, Ordering::AcqRel);
        self.allowance.give_back(held.saturating_sub(bytes));
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    #[test]
    fn output_leaves_space_for_starts_and_both_leave_space_for_recordings() {
        let allowance = Allowance::new(64 * KIB);
        assert!(allowance.take(Purpose::Output, 48 * KIB));
        assert!(!allowance.take(Purpose::Output, 1));
        assert!(allowance.take(Purpose::Start, 8 * KIB));
        assert!(!allowance.take(Purpose::Start, 1));
        assert!(allowance.take(Purpose::Recording, 8 * KIB));
        assert!(!allowance.take(Purpose::Recording, 1));
        assert_eq!(allowance.used(), allowance.most());
        allowance.give_back(17 * KIB);
        assert!(allowance.take(Purpose::Output, KIB) && !allowance.take(Purpose::Output, 1));
    }

    #[test]
    fn a_share_is_taken_completely_or_not_and_odd_sizes_do_not_overflow() {
        let allowance = Allowance::new(u64::MAX);
        assert!(!allowance.take(Purpose::Output, u64::MAX));
        assert!(allowance.take(Purpose::Recording, u64::MAX) && !allowance.take(Purpose::Recording, 1));
        allowance.enter(u64::MAX);
        allowance.give_back(7);
        assert_eq!(allowance.used(), u64::MAX - 7);
        let small = Allowance::new(8);
        assert!(!small.take(Purpose::Recording, 9));
        small.enter(20);
        assert!(!small.take(Purpose::Recording, 0), "an earlier daemon left more than there may be");
        small.give_back(30);
        assert_eq!(small.used(), 0);
        assert_eq!([0, 1, 4096, 4097].map(cost), [0, 4096, 4096, 8192]);
    }

    #[test]
    fn a_share_is_given_back_once() {
        let allowance = Allowance::new(100);
        let process = Share::begin(&allowance, 40).unwrap();
        assert!(Share::begin(&allowance, 60).is_none());
        assert!(process.grow(20) && !process.grow(20));
        process.shrink_to(50);
        process.shrink_to(55);
        assert_eq!(allowance.used(), 50);
        let former = Share::of_former(&allowance, 500);
        assert_eq!(allowance.used(), 550);
        former.shrink_to(0);
        drop(former);
        drop(process);
        assert_eq!(allowance.used(), 0);
    }

    #[test]
    fn many_threads_together_do_not_exceed_the_allowance() {
        let allowance = Allowance::new(4_000);
        let taken: u64 = std::thread::scope(|scope| {
            let take = || (0..1_000).filter(|_| allowance.take(Purpose::Output, 3)).count() as u64;
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!((taken, allowance.used()), (1_000, 3_000));
    }
}
