//! The counters by scope, in shards: a call locks the few that it needs, always in the same order, checks all of its
//! counters and only then uses them.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::counter::{Counter, Scope};

const SHARDS: usize = 64;
/// Counters of one shard. A full one refuses calls that need another: 262,144 in all, at most 2 KiB each.
const MAX_IN_SHARD: usize = 4_096;
/// A shard is not looked through before it has so many.
const SWEEP_FROM: usize = 32;
/// A full shard is not looked through again before, milliseconds.
const SWEEP_AGAIN: u64 = 1_000;
/// Scopes of one call.
pub(super) const SCOPES: usize = 4;

/// All counters.
#[derive(Debug)]
pub(super) struct Table {
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Debug)]
pub(super) struct Shard {
    counters: HashMap<Scope, Counter>,
    /// Idle counters are looked for when there are so many.
    sweep_at: usize,
    /// When they were last looked for.
    swept: u64,
}

impl Default for Shard {
    fn default() -> Self {
        Self { counters: HashMap::new(), sweep_at: SWEEP_FROM, swept: 0 }
    }
}

/// Why a call was not counted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotCounted<E> {
    /// As `check` said.
    Refused(E),
    /// There are as many counters as there may be, and none of them is idle.
    Crowded,
}

impl Table {
    pub(super) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { hasher: RandomState::new(), shards }
    }

    /// Shows each scope's counter to `check`, as it is now, and then counts in all of them; or counts in none.
    pub(super) fn count<E>(
        &self,
        scopes: &[Scope],
        now: u64,
        check: impl FnOnce(&[Option<&Counter>]) -> Result<(), E>,
    ) -> Result<(), NotCounted<E>> {
        debug_assert!(scopes.len() <= SCOPES);
        let mut homes = [0; SCOPES];
        for (home, scope) in homes.iter_mut().zip(scopes) {
            *home = self.home(scope);
        }
        let homes = &homes[..scopes.len()];
        let mut order: [usize; SCOPES] = [usize::MAX; SCOPES];
        order[..homes.len()].copy_from_slice(homes);
        order.sort_unstable();
        // Ascending and each once, so that two calls never wait for each other.
        let mut held: [Option<(usize, MutexGuard<'_, Shard>)>; SCOPES] = [const { None }; SCOPES];
        let mut count = 0;
        for home in order.into_iter().filter(|home| *home != usize::MAX) {
            if count == 0 || held[count - 1].as_ref().is_some_and(|(last, _)| *last != home) {
                held[count] = Some((home, self.lock(home)));
                count += 1;
            }
        }
        let mut crowded = false;
        for (scope, home) in scopes.iter().zip(homes) {
            let Some((_, shard)) = held.iter_mut().flatten().find(|(held, _)| held == home) else { continue };
            match shard.counters.get_mut(scope) {
                Some(counter) => counter.forget(now),
                None => crowded |= !shard.has_room(now),
            }
        }
        let seen: [Option<&Counter>; SCOPES] = {
            let mut seen = [None; SCOPES];
            for ((seen, scope), home) in seen.iter_mut().zip(scopes).zip(homes) {
                let found = held.iter().flatten().find(|(held, _)| held == home);
                *seen = found.and_then(|(_, shard)| shard.counters.get(scope));
            }
            seen
        };
        check(&seen[..scopes.len()]).map_err(NotCounted::Refused)?;
        if crowded {
            return Err(NotCounted::Crowded);
        }
        for (scope, home) in scopes.iter().zip(homes) {
            let Some((_, shard)) = held.iter_mut().flatten().find(|(held, _)| held == home) else { continue };
            match shard.counters.get_mut(scope) {
                Some(counter) => counter.add(now),
                None => shard.counters.entry(scope.clone()).or_default().add(now),
            }
        }
        Ok(())
    }

    /// Each shard in turn, with its counters as they are now. `before` is asked before the shard is locked.
    pub(super) fn each<M>(
        &self,
        now: u64,
        mut before: impl FnMut() -> M,
        mut visit: impl FnMut(&M, &Scope, &Counter),
    ) {
        for home in 0..SHARDS {
            let mark = before();
            let mut shard = self.lock(home);
            for (scope, counter) in &mut shard.counters {
                counter.forget(now);
                if !counter.is_idle() {
                    visit(&mark, scope, counter);
                }
            }
        }
    }

    /// One counter, as it is now.
    pub(super) fn look<T>(&self, scope: &Scope, now: u64, look: impl FnOnce(&Counter) -> T) -> T {
        let mut shard = self.lock(self.home(scope));
        match shard.counters.get_mut(scope) {
            Some(counter) => {
                counter.forget(now);
                look(counter)
            }
            None => look(&Counter::default()),
        }
    }

    /// Puts a counter in the place of whatever is there.
    pub(super) fn put(&self, scope: Scope, counter: Counter) {
        self.lock(self.home(&scope)).counters.insert(scope, counter);
    }

    /// Counts without a question: what has happened.
    pub(super) fn add(&self, scope: Scope, at: u64, now: u64) {
        let mut shard = self.lock(self.home(&scope));
        if shard.counters.contains_key(&scope) || shard.has_room(now) {
            let counter = shard.counters.entry(scope).or_default();
            counter.forget(now);
            counter.add(at);
        }
    }

    /// Forgets a counter.
    pub(super) fn remove(&self, scope: &Scope) {
        self.lock(self.home(scope)).counters.remove(scope);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        (0..SHARDS).map(|home| self.lock(home).counters.len()).sum()
    }

    fn home(&self, scope: &Scope) -> usize {
        #[allow(clippy::cast_possible_truncation)]
        // which bits are left does not matter: they are as random as all
        let hash = self.hasher.hash_one(scope) as usize;
        hash % SHARDS
    }

    fn lock(&self, home: usize) -> MutexGuard<'_, Shard> {
        self.shards[home].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    /// Makes room where it can. What it costs is paid by as many counters that were made since the last time.
    fn has_room(&mut self, now: u64) -> bool {
        let full = self.counters.len() >= MAX_IN_SHARD;
        if self.counters.len() >= self.sweep_at && !(full && now < self.swept + SWEEP_AGAIN) {
            self.swept = now;
            self.counters.retain(|_, counter| {
                counter.forget(now);
                !counter.is_idle()
            });
            self.sweep_at = (2 * self.counters.len()).clamp(SWEEP_FROM, MAX_IN_SHARD);
        }
        self.counters.len() < MAX_IN_SHARD
    }
}
