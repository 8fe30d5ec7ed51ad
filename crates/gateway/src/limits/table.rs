//! The counters by scope, in shards.
//!
//! A call locks the few shards that it needs, always in the same order. It checks all of its counters and only then
//! counts in them. A name is hashed once for each call, and a counter is searched for once: the hash gives both its
//! shard and its place there.

use std::hash::{BuildHasher as _, RandomState};

use parking_lot::{Mutex, MutexGuard};

use super::counter::Counter;
use super::key::Key;
use super::shard::Shard;

const SHARDS: usize = 64;

#[derive(Debug)]
pub(super) struct Table {
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
}

/// Reason why a call was not counted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotCounted<E> {
    /// The refusal of `check`.
    Refused(E),
    /// The limit on counters is reached, and none of them is idle.
    Crowded,
}

/// One scope of a call, and the place of its counter.
#[derive(Debug, Clone, Copy)]
struct Wanted<'k> {
    key: Key<'k>,
    hash: u64,
    /// Index into the shards that are locked.
    shard: usize,
    /// Bucket of the counter in that shard, if it exists.
    bucket: Option<usize>,
}

impl Table {
    pub(super) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { hasher: RandomState::new(), shards }
    }

    /// Passes the current counter of each scope to `check`, and then counts in all of them or in none.
    pub(super) fn count<const N: usize, E>(
        &self,
        keys: [Key<'_>; N],
        now: u64,
        check: impl FnOnce([Option<&Counter>; N]) -> Result<(), E>,
    ) -> Result<(), NotCounted<E>> {
        let mut wanted = keys.map(|key| Wanted { key, hash: self.hash(key), shard: 0, bucket: None });
        let mut held = self.hold(&mut wanted);
        let mut crowded = false;
        for scope in &mut wanted {
            let Some(shard) = &mut held[scope.shard] else { continue };
            scope.bucket = shard.find(scope.hash, scope.key);
            match scope.bucket.and_then(|bucket| shard.counter_mut(bucket)) {
                Some(counter) => counter.forget(now),
                None => crowded |= !shard.has_room(now),
            }
        }
        let seen = wanted.map(|scope| held[scope.shard].as_ref()?.counter(scope.bucket?));
        check(seen).map_err(NotCounted::Refused)?;
        if crowded {
            return Err(NotCounted::Crowded);
        }
        // Existing counters first: making a new one may move the others.
        let mut missing = wanted.map(Some);
        for scope in &mut missing {
            let Some(Wanted { shard, bucket: Some(bucket), .. }) = *scope else { continue };
            if let Some(counter) = held[shard].as_mut().and_then(|shard| shard.counter_mut(bucket)) {
                counter.add(now);
                *scope = None;
            }
        }
        for Wanted { key, hash, shard, .. } in missing.into_iter().flatten() {
            if let Some(shard) = &mut held[shard] {
                shard.get_or_make(hash, key, now).add(now);
            }
        }
        Ok(())
    }

    /// Locks the shards of these scopes, in ascending order and each once, so that two calls cannot deadlock.
    fn hold<const N: usize>(&self, wanted: &mut [Wanted<'_>; N]) -> [Option<MutexGuard<'_, Shard>>; N] {
        let mut homes = wanted.map(|scope| home(scope.hash));
        homes.sort_unstable();
        for scope in wanted {
            let at = homes.iter().position(|home| *home == self::home(scope.hash));
            scope.shard = at.unwrap_or_default();
        }
        let mut last = None;
        homes.map(|home| (last.replace(home) != Some(home)).then(|| self.lock(home)))
    }

    /// Visits each shard's counters in their current state. `before` is called before the shard is locked.
    pub(super) fn each<M>(
        &self,
        now: u64,
        mut before: impl FnMut() -> M,
        mut visit: impl FnMut(&M, Key<'_>, &Counter),
    ) {
        for home in 0..SHARDS {
            let mark = before();
            self.lock(home).each(now, |key, counter| visit(&mark, key, counter));
        }
    }

    /// Passes one counter to `look`, in its current state.
    pub(super) fn look<T>(&self, key: Key<'_>, now: u64, look: impl FnOnce(&Counter) -> T) -> T {
        let (hash, mut shard) = self.home_of(key);
        let bucket = shard.find(hash, key);
        match bucket.and_then(|bucket| shard.counter_mut(bucket)) {
            Some(counter) => {
                counter.forget(now);
                look(counter)
            }
            None => look(&Counter::default()),
        }
    }

    /// Replaces a counter.
    pub(super) fn put(&self, key: Key<'_>, counter: Counter, now: u64) {
        let (hash, mut shard) = self.home_of(key);
        *shard.get_or_make(hash, key, now) = counter;
    }

    /// Counts a past call without a check.
    pub(super) fn add(&self, key: Key<'_>, at: u64, now: u64) {
        let (hash, mut shard) = self.home_of(key);
        if shard.find(hash, key).is_some() || shard.has_room(now) {
            let counter = shard.get_or_make(hash, key, now);
            counter.forget(now);
            counter.add(at);
        }
    }

    pub(super) fn remove(&self, key: Key<'_>) {
        let (hash, mut shard) = self.home_of(key);
        shard.remove(hash, key);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        (0..SHARDS).map(|home| self.lock(home).len()).sum()
    }

    fn hash(&self, key: Key<'_>) -> u64 {
        self.hasher.hash_one(key)
    }

    fn home_of(&self, key: Key<'_>) -> (u64, MutexGuard<'_, Shard>) {
        let hash = self.hash(key);
        (hash, self.lock(home(hash)))
    }

    fn lock(&self, home: usize) -> MutexGuard<'_, Shard> {
        self.shards[home].lock()
    }
}

/// Uses bits from the middle: a shard's own table uses the lowest and the highest ones.
fn home(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}
