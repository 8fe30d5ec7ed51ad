//! How much at once: calls that run at the same time, of a run, of a principal and of the whole daemon.
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
//! - *Never one too many*: a place is given only where run, principal and daemon have room at that moment, under one lock.
//! - *Nothing leaks*: what [`Places::enter`] gives is in the book until it is dropped, whether it waits, has its place
//!   without knowing, or runs. There is no other way out, so that none can be forgotten.
//! - *First come, first served*: of those for whom there is room the one goes on that came first. Whose run or principal
//!   is full holds up nobody else, and no place stays empty that somebody in the line could have.
//! - *Bounded*: in a run as many wait as its profile says, of a principal as many as may run, of all as the daemon says.
//!   How long they wait is the caller's business, for nothing waits in here. Only a call that a reviewer has consented
//!   to is never turned away: a person's word is not lost to a busy moment.
//! - *No memory of caps*: a call is held against the caps that it came with. A reload applies to those that come after it;
//!   lower caps end nothing that runs.
//!
//! When a place comes free nobody knows: a call may end at once or at its deadline. [`Busy::retry_after`] is an estimate,
//! then, unlike a rate limit's. Those that run have done so for some time on average, and in a steady state what is left of
//! them takes as long (age and residual life of a renewal process have one distribution; Cox, *Renewal Theory*, 1962).
//! That, divided by their number, is taken for each one in the line and for the one who asks, within 0.1 and 60 s.

mod book;
mod caps;
mod groups;

#[cfg(test)]
mod property;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::Clock;
use book::Book;
use groups::Name;

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
    book: Mutex<Book>,
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
        Self(Arc::new(Shared { whole, clock, hasher: RandomState::new(), book: Mutex::default() }))
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
        let call = self.0.book().enter(names, (caps, turn), whole, now, wait)?;
        Ok(Place { call, shared: self.0.clone() })
    }

    /// What runs and waits of this run.
    pub fn of_run(&self, run: &str) -> Count {
        self.0.book().of_run(self.0.name(run))
    }

    /// What runs and waits of this principal.
    pub fn of_principal(&self, principal: &str) -> Count {
        self.0.book().of_principal(self.0.name(principal))
    }

    /// What runs and waits of all, and the most of it.
    pub fn of_all(&self) -> (Count, Whole) {
        (self.0.book().of_all(), self.0.whole)
    }

    #[cfg(test)]
    fn is_forgotten(&self) -> bool {
        self.0.book().is_empty()
    }
}

impl Place {
    /// It has waited long enough: what it waits for, or nothing if it has its place by now.
    pub fn waits_for(&self) -> Option<Busy> {
        let now = self.shared.uptime();
        self.shared.book().waits_for(self.call, self.shared.whole, now)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Shared { whole, .. } = *self.shared;
        let woken = self.shared.book().leave(self.call, whole, || self.shared.uptime());
        for wake in woken {
            wake();
        }
    }
}

impl Shared {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name<'n>(&self, text: &'n str) -> Name<'n> {
        Name { text, hash: self.hasher.hash_one(text) }
    }

    fn uptime(&self) -> u64 {
        u64::try_from(self.clock.uptime().as_millis()).unwrap_or(u64::MAX)
    }
}
