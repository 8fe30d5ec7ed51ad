//! How much at once: the calls that run at the same time, of a run, of a principal and of the whole daemon.
//!
//! ```text
//!  enter ──room everywhere──────────────────────► runs ───┐
//!    │                                             ▲      │ the place is dropped
//!    ├──no room, but in the line──► waits ──woken──┘      ▼
//!    │                                │ dropped         gone; whoever may go on now is woken
//!    └──none there either──► Busy     └──────► gone
//! ```
//!
//! What holds:
//!
//! - *Never one too many*: a slot is given only if run, principal and daemon have room at that moment, under one
//!   lock.
//! - *Nothing leaks*: the value of [`Places::enter`] is in the table until it is dropped, whether it waits, has its
//!   slot without knowing, or runs. There is no other way out, so none can be forgotten.
//! - *First come, first served*: among the calls with room, the first one in the line runs. A call whose run or
//!   principal is full delays no other call, and no slot stays empty that a waiting call could have.
//! - *Bounded*: of a run as many calls wait as its profile says, of a principal as many as may run, and of all as
//!   many as the daemon says. The caller bounds the time, because nothing waits in here. Only a call with a
//!   reviewer's consent is never turned away: a busy moment must not lose a person's decision.
//! - *No memory of caps*: a call is compared with the caps that it came with. A reload applies to later calls; lower
//!   caps end no running call.
//!
//! Nobody knows when a slot comes free: a call may end at once or at its deadline. So [`Busy::retry_after`] is an
//! estimate, unlike a rate limit's. The running calls have run for some time on average, and in a steady state their
//! remaining time is as long (age and residual life of a renewal process have one distribution; Cox, *Renewal
//! Theory*, 1962). That time, divided by their number, counts for each call in the line and for the caller, within
//! 0.1 and 60 s.

mod caps;
mod groups;
mod schedule;

#[cfg(test)]
mod property;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use crate::clock::Clock;
use groups::Name;
use lock::Mutex;
use schedule::Schedule;

pub(crate) use caps::STRICT_CAPS;
pub use caps::{Busy, Caps, Count, Together, Turn, Whole};

/// Called once, when a call that waits has its place.
pub type Wake = Box<dyn FnOnce() + Send>;

/// The calls that run, and those that wait to.
#[derive(Debug)]
pub struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    whole: Whole,
    clock: Arc<dyn Clock>,
    hasher: RandomState,
    schedule: Mutex<Schedule>,
}

/// A call's place, or its place in the line for one. Given back when it is dropped.
#[derive(Debug)]
#[must_use = "a place that is dropped is free again"]
pub struct Place {
    call: usize,
    shared: Arc<Shared>,
}

impl Places {
    /// A table in which nothing runs.
    pub fn new(whole: Whole, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Shared { whole, clock, hasher: RandomState::new(), schedule: Mutex::default() }))
    }

    /// A place for a call of this run and this principal. When it has to wait for it, `wait` is asked for what wakes it.
    pub fn enter(
        &self,
        run: &str,
        principal: &str,
        caps: &Caps,
        turn: Turn,
        wait: impl FnOnce() -> Wake,
    ) -> Result<Place, Busy> {
        let (whole, now) = (self.0.whole, self.0.uptime());
        let names = (self.0.name(run), self.0.name(principal));
        let call = self.0.schedule.lock().enter(names, (caps, turn), whole, now, wait)?;
        Ok(Place { call, shared: self.0.clone() })
    }

    /// What runs and waits of this run.
    pub fn of_run(&self, run: &str) -> Count {
        self.0.schedule.lock().of_run(self.0.name(run))
    }

    /// What runs and waits of this principal.
    pub fn of_principal(&self, principal: &str) -> Count {
        self.0.schedule.lock().of_principal(self.0.name(principal))
    }

    /// What runs and waits of all, and the most of it.
    pub fn of_all(&self) -> (Count, Whole) {
        (self.0.schedule.lock().of_all(), self.0.whole)
    }

    #[cfg(test)]
    fn is_forgotten(&self) -> bool {
        self.0.schedule.lock().is_empty()
    }
}

impl Place {
    /// It has waited long enough: what it waits for, or nothing if it has its place by now.
    pub fn waits_for(&self) -> Option<Busy> {
        let now = self.shared.uptime();
        self.shared.schedule.lock().waits_for(self.call, self.shared.whole, now)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Shared { whole, .. } = *self.shared;
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
