//! One part of the table of counters: those under one lock.
//!
//! Idle counters are dropped step by step: each new counter examines a few others, in a round that reaches all before
//! the table has doubled. So no call pays for a scan of all counters, unless the shard is full.

use hashbrown::HashTable;

use super::counter::{Counter, Scope};
use super::key::Key;

/// Most counters of one shard. A full shard refuses calls that need another. That is 262,144 in all, at most 2 KiB
/// each.
const MAX: usize = 4_096;
/// Buckets that a new counter examines.
///
/// A table that has just doubled has at most 16/7 times as many buckets as counters. So a round is over when the number
/// of counters has grown by half.
const LOOKED_AT: usize = 4;
/// Time before a full shard is swept again, milliseconds.
const SWEEP_AGAIN: u64 = 1_000;

#[derive(Debug, Default)]
pub(super) struct Shard {
    counters: HashTable<Entry>,
    /// The next bucket to examine.
    next: usize,
    /// Time of the last sweep of all counters.
    swept: Option<u64>,
}

#[derive(Debug)]
struct Entry {
    hash: u64,
    scope: Scope,
    counter: Counter,
}

impl Shard {
    /// Returns the bucket of a counter. It is valid until another counter is made.
    pub(super) fn find(&self, hash: u64, key: Key<'_>) -> Option<usize> {
        self.counters.find_bucket_index(hash, |entry| entry.hash == hash && entry.scope.key() == key)
    }

    pub(super) fn counter(&self, bucket: usize) -> Option<&Counter> {
        self.counters.get_bucket(bucket).map(|entry| &entry.counter)
    }

    pub(super) fn counter_mut(&mut self, bucket: usize) -> Option<&mut Counter> {
        self.counters.get_bucket_mut(bucket).map(|entry| &mut entry.counter)
    }

    /// Returns true if one more counter may be made. A full shard is swept first, if its last sweep is long enough ago.
    pub(super) fn has_room(&mut self, now: u64) -> bool {
        let rested = self.swept.is_none_or(|swept| now >= swept + SWEEP_AGAIN);
        if self.counters.len() >= MAX && rested {
            self.swept = Some(now);
            self.counters.retain(|entry| !entry.is_idle(now));
        }
        self.counters.len() < MAX
    }

    /// Returns the counter with this key, and makes it if there is none. The caller checks [`Self::has_room`] before.
    pub(super) fn get_or_make(&mut self, hash: u64, key: Key<'_>, now: u64) -> &mut Counter {
        let same = |entry: &Entry| entry.hash == hash && entry.scope.key() == key;
        if self.find(hash, key).is_none() {
            self.look_around(now);
        }
        let make = || Entry { hash, scope: key.to_scope(), counter: Counter::default() };
        &mut self.counters.entry(hash, same, |entry| entry.hash).or_insert_with(make).into_mut().counter
    }

    /// Drops idle counters among the next few.
    fn look_around(&mut self, now: u64) {
        for _ in 0..LOOKED_AT.min(self.counters.num_buckets()) {
            self.next = (self.next + 1) % self.counters.num_buckets();
            let idle = self.counters.get_bucket_mut(self.next).is_some_and(|entry| entry.is_idle(now));
            if let Some(entry) = self.counters.get_bucket_entry(self.next).ok().filter(|_| idle) {
                entry.remove();
            }
        }
    }

    pub(super) fn remove(&mut self, hash: u64, key: Key<'_>) {
        if let Ok(entry) =
            self.counters.find_entry(hash, |entry| entry.hash == hash && entry.scope.key() == key)
        {
            entry.remove();
        }
    }

    /// Visits the counters in which a call counts, in their current state.
    pub(super) fn each(&mut self, now: u64, mut visit: impl FnMut(Key<'_>, &Counter)) {
        for entry in &mut self.counters {
            if !entry.is_idle(now) {
                visit(entry.scope.key(), &entry.counter);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.counters.len()
    }
}

impl Entry {
    /// Returns true if no call in it counts any longer.
    fn is_idle(&mut self, now: u64) -> bool {
        self.counter.forget(now);
        self.counter.is_idle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::Span;

    #[test]
    fn keys_with_one_hash_have_their_own_counters() {
        let mut shard = Shard::default();
        let keys = [
            Key::Run("a"),
            Key::Principal("a"),
            Key::Throttled { principal: "a", agent_id: "b" },
            Key::Throttled { principal: "b", agent_id: "a" },
            Key::Operation { principal: "a", agent_id: "b", operation: "read" },
        ];
        for key in keys {
            assert_eq!(key.to_scope().key(), key);
            assert_eq!(shard.find(7, key), None);
            shard.get_or_make(7, key, 0).add(0);
        }
        shard.remove(7, keys[0]);
        assert_eq!(keys.map(|key| shard.find(7, key).is_some()), [false, true, true, true, true]);
    }

    #[test]
    fn idle_counters_are_dropped_by_the_way_and_no_others() {
        let mut shard = Shard::default();
        let run = |number: u64, now: u64, shard: &mut Shard| {
            // Spread as a good hash would.
            let hash = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            shard.get_or_make(hash, Key::Run(&number.to_string()), now).add(now);
        };
        for number in 0..1_000 {
            run(number, 0, &mut shard);
        }
        let later = Span::Day.millis();
        for number in 0..1_000 {
            run(1_000 + number, later, &mut shard);
        }
        assert_eq!(shard.len(), 1_000, "a thousand count, and a thousand were idle");
        for number in 0..1_000 {
            run(2_000 + number, later, &mut shard);
        }
        assert_eq!(shard.len(), 2_000);
    }
}
