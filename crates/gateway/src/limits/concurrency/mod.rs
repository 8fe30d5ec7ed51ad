//! Limits on the calls that run at the same time, for a run, a principal and the whole daemon.
//!
//! ```text
//!  enter ──free everywhere──────────────────────► runs ───┐
//!    │                                             ▲      │ the slot is dropped
//!    ├──full, but in the line─────► waits ──woken──┘      ▼
//!    │                                │ dropped         gone; calls that may now run are woken
//!    └──none there either──► Busy     └──────► gone
//! ```
//!
//! Invariants:
//!
//! - *Never one too many*: a slot is given only if run, principal and daemon are below their caps at that moment.
//! - *No leaks*: the value of [`Reservations::enter`] is in the table until it is dropped, whether it waits, has been woken,
//!   or runs. It leaves the table in no other way, so none can be forgotten.
//! - *Shared out evenly*: among the calls below all caps, one of the tenant with the fewest running calls runs, and of those the
//!   first in the line. So a greedy tenant delays its own calls, and no other's by more than the end of one call. A call whose
//!   run or principal is full delays no other call, and no slot stays empty that a waiting call could have.
//! - *Bounded*: the profile limits the waiting calls of a run. A principal may have as many waiting as running calls,
//!   and the daemon limits all of them. A tenant may have as many as there are free places in the line, so no tenant fills it. The caller bounds the time, because this module does not wait. Only a call with
//!   a reviewer's consent is never rejected: a busy moment must not lose a person's decision.
//! - *No memory of caps*: a call is compared with the caps that it came with. A reload applies to later calls; lower
//!   caps end no running call.
//!
//! It is not known when a slot becomes free: a call may end at once or at its deadline. So [`Busy::retry_after`] is an
//! estimate, unlike that of a rate limit. It assumes that running calls have, on average, as much time left as they
//! have run already. In a steady state this is true (age and residual life of a renewal process have one distribution;
//! Cox, *Renewal Theory*, 1962). The average time, divided by the number of running calls, is counted once for each
//! call in the line and once for the caller. The result is kept within 0.1 and 60 s.

mod caps;
mod groups;
mod schedule;

#[cfg(test)]
mod property;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use groups::Name;
use parking_lot::{Mutex, RwLock};
use policy::Caps;
use schedule::Schedule;
use timestamp::Clock;

pub use caps::{Busy, Count, Together, Turn, Whole};
pub use schedule::tenant_may_wait;

/// Callback that is called once, when a waiting call gets its slot.
pub type Wake = Box<dyn FnOnce() + Send>;

/// The calls that run, and those that wait.
#[derive(Debug)]
pub struct Reservations(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    whole: RwLock<Whole>,
    clock: Arc<dyn Clock>,
    hasher: RandomState,
    schedule: Mutex<Schedule>,
}

/// A call's slot, or its position in the line for one. Dropping it gives it back.
#[derive(Debug)]
#[must_use = "a reservation that is dropped is given back"]
pub struct Reservation {
    call: usize,
    shared: Arc<Shared>,
}

impl Reservations {
    /// Makes a table without calls.
    pub fn new(whole: Whole, clock: Arc<dyn Clock>) -> Self {
        let whole = RwLock::new(whole);
        Self(Arc::new(Shared { whole, clock, hasher: RandomState::new(), schedule: Mutex::default() }))
    }

    /// Replaces the limits of all calls. Calls that wait take further slots as soon as any call ends.
    pub fn limit(&self, whole: Whole) {
        *self.0.whole.write() = whole;
    }

    /// Returns a slot for a call of this run, principal and tenant, or a position in the line.
    ///
    /// If the call has to wait, `wait` is called for the callback that wakes it.
    pub fn enter(
        &self,
        [run, principal, tenant]: [&str; 3],
        caps: &Caps,
        turn: Turn,
        wait: impl FnOnce() -> Wake,
    ) -> Result<Reservation, Busy> {
        let (whole, now) = (*self.0.whole.read(), self.0.uptime());
        let names = [run, principal, tenant].map(|text| self.0.name(text));
        let call = self.0.schedule.lock().enter(names, (caps, turn), whole, now, wait)?;
        Ok(Reservation { call, shared: self.0.clone() })
    }

    /// Returns the number of calls of this run.
    pub fn of_run(&self, run: &str) -> Count {
        self.0.schedule.lock().of_run(self.0.name(run))
    }

    /// Returns the number of calls of this principal.
    pub fn of_principal(&self, principal: &str) -> Count {
        self.0.schedule.lock().of_principal(self.0.name(principal))
    }

    /// Returns the number of all calls, and their limits.
    pub fn of_all(&self) -> (Count, Whole) {
        (self.0.schedule.lock().of_all(), *self.0.whole.read())
    }

    #[cfg(test)]
    fn is_forgotten(&self) -> bool {
        self.0.schedule.lock().is_empty()
    }
}

impl Reservation {
    /// Returns the reason why the call still waits, for a caller whose time is over. `None` if it has its slot by now.
    pub fn waits_for(&self) -> Option<Busy> {
        let now = self.shared.uptime();
        self.shared.schedule.lock().waits_for(self.call, *self.shared.whole.read(), now)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let whole = *self.shared.whole.read();
        let woken = self.shared.schedule.lock().leave(self.call, whole, || self.shared.uptime());
        for wake in woken {
            wake();
        }
    }
}

impl Shared {
    fn name<'n>(&self, text: &'n str) -> Name<'n> {
        Name { text, hash: self.hasher.hash_one(text) }
    }

    fn uptime(&self) -> u64 {
        u64::try_from(self.clock.uptime().as_millis()).unwrap_or(u64::MAX)
    }
}
