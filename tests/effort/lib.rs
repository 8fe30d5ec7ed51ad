//! How much work a test does, and how much work it lets a function do.
//!
//! A bound in seconds of the clock on the wall measures the machine and its other users. A test of a function that reads
//! hostile input compares the processor time of one thread for an input with that for an eighth of it.

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Linear work on so many times the input takes eight times as long, quadratic work sixty-four times.
const TIMES: usize = 8;
/// Between the two, far from both.
const MOST: u32 = 24;
/// Less than this is no cost, and near what caches and interrupts change.
const NOTHING: Duration = Duration::from_millis(40);
/// A measurement is repeated before it fails a test.
const ATTEMPTS: usize = 3;

/// How many random cases a test tries: `usual` of them, or `long` with `COFFERDAM_LONG`.
pub fn cases(usual: u32, long: u32) -> u32 {
    if std::env::var_os("COFFERDAM_LONG").is_some() { long } else { usual }
}

/// The processor time that `work` takes in this thread.
pub fn processor_time<T>(work: impl FnOnce() -> T) -> Duration {
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
    };
    let began = now();
    black_box(work());
    now().saturating_sub(began)
}

/// Asserts that `work` on an input of `size` takes at most a constant times as long as on one that is smaller by a
/// factor. `input` makes the inputs.
///
/// # Panics
///
/// When the work grows faster than its input.
pub fn assert_linear<I, T>(size: usize, input: impl Fn(usize) -> I, work: impl Fn(&I) -> T) {
    let cost = |size| {
        let input = input(size);
        processor_time(|| work(&input))
    };
    let mut measured = Vec::new();
    for _ in 0..ATTEMPTS {
        let whole = cost(size);
        if whole <= NOTHING {
            return;
        }
        let part = cost(size / TIMES);
        if whole <= part.saturating_mul(MOST) {
            return;
        }
        measured.push((part, whole));
    }
    panic!("{TIMES} times the input took more than {MOST} times as long: {measured:?}");
}
