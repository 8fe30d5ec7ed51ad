//! The lease of a run. The run ends when no client has renewed the lease for its duration.
//!
//! Only `KeepAliveRun` renews it. A renewal that was answered is valid: the run's task and the renewal decide under one lock whether it
//! came in time. The clock belongs to this daemon, and starts when the run is READY or reattached. No client could renew a lease while no
//! daemon ran.

use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

pub(crate) struct Lease {
    lasts: Duration,
    term: Mutex<Term>,
}

struct Term {
    began: Instant,
    is_over: bool,
}

impl Lease {
    pub(crate) fn new(lasts: Duration, now: Instant) -> Self {
        Self { lasts, term: Mutex::new(Term { began: now, is_over: false }) }
    }

    /// Begins the first term.
    pub(crate) fn begin(&self, now: Instant) {
        *self.term.lock() = Term { began: now, is_over: false };
    }

    /// Begins a new term and returns true, unless the last term is over.
    pub(crate) fn renew(&self, now: Instant) -> bool {
        let mut term = self.look(now);
        if !term.is_over {
            term.began = now;
        }
        !term.is_over
    }

    /// Returns the time until the lease ends unless it is renewed. At zero it can no longer be renewed.
    pub(crate) fn left(&self, now: Instant) -> Duration {
        let term = self.look(now);
        if term.is_over { Duration::ZERO } else { self.lasts.saturating_sub(now.duration_since(term.began)) }
    }

    fn look(&self, now: Instant) -> MutexGuard<'_, Term> {
        let mut term = self.term.lock();
        term.is_over |= now.duration_since(term.began) >= self.lasts;
        term
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Lease;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn unrenewed_lease_expires_permanently() {
        let start = Instant::now();
        let lease = Lease::new(10 * SECOND, start);
        assert!(lease.renew(start + 9 * SECOND));
        assert_eq!(lease.left(start + 12 * SECOND), 7 * SECOND);
        assert_eq!(lease.left(start + 18 * SECOND), SECOND);
        assert!(!lease.renew(start + 19 * SECOND), "too late");
        let left = lease.left(start + 9 * SECOND);
        assert_eq!(left, Duration::ZERO, "over for everybody, whatever a late thread reads");
    }

    #[test]
    fn a_renewal_that_was_answered_is_never_followed_by_an_end_before_its_time() {
        for _ in 0..200 {
            let lease = Lease::new(Duration::from_micros(50), Instant::now());
            std::thread::scope(|scope| {
                let task = scope.spawn(|| {
                    while !lease.left(Instant::now()).is_zero() {
                        std::hint::spin_loop();
                    }
                    Instant::now()
                });
                let mut renewed = None;
                loop {
                    let now = Instant::now();
                    if !lease.renew(now) {
                        break;
                    }
                    renewed = Some(now);
                }
                let ended = task.join().unwrap();
                assert!(renewed.is_none_or(|renewed| ended - renewed >= Duration::from_micros(50)));
            });
        }
    }
}
