//! Account of the stored bytes of each call, and of the calls to evict first. It is pure: the spool handles the files.

use std::collections::BTreeMap;

use identity::{CallId, RunId};
use seal::{BLOCK, PIECE};

/// Smallest number of bytes that a file counts. Its name, its inode and its entry here cost something as well.
pub(super) const LEAST: u64 = 16 * 1024;

/// The files of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The first field, so that keys sort by time.
    pub(super) call: CallId,
    pub(super) run: RunId,
}

#[derive(Debug, Default)]
struct Kept {
    /// Bytes of standard output and standard error.
    lengths: [u64; 2],
    /// True if the call is over, so its files may be removed.
    finished: bool,
}

impl Kept {
    fn cost(&self) -> u64 {
        self.lengths.iter().map(|length| cost(*length)).sum()
    }
}

/// Bytes that a stream of this length takes on the disk, where each piece of it has a block.
fn cost(length: u64) -> u64 {
    if length == 0 { 0 } else { length.div_ceil(PIECE).saturating_mul(BLOCK).max(LEAST) }
}

/// Account of all calls.
#[derive(Debug)]
pub(super) struct Ledger {
    most: u64,
    used: u64,
    /// The oldest call is the first, because ids of calls sort by time.
    calls: BTreeMap<Key, Kept>,
}

impl Ledger {
    /// Makes an account with a limit of `most` bytes.
    pub(super) fn new(most: u64) -> Self {
        Self { most, used: 0, calls: BTreeMap::new() }
    }

    /// Adds a stream that an earlier daemon stored of a finished call.
    pub(super) fn enter(&mut self, key: Key, stream: usize, length: u64) {
        self.set(key, stream, length);
        self.finish(key);
    }

    /// Reserves space for `bytes` more of a stream.
    ///
    /// Returns the bytes that fit, and the finished calls whose files have to be removed for it. The ledger has already forgotten these
    /// calls.
    pub(super) fn reserve(&mut self, key: Key, stream: usize, bytes: u64) -> (u64, Vec<Key>) {
        let length = self.calls.get(&key).map_or(0, |kept| kept.lengths[stream]);
        let more = |bytes: u64| cost(length.saturating_add(bytes)) - cost(length);
        let mut gone = Vec::new();
        while self.used.saturating_add(more(bytes)) > self.most {
            match self.evict() {
                Some((oldest, _)) => gone.push(oldest),
                None => break,
            }
        }
        let room = (cost(length) + self.most.saturating_sub(self.used)) / BLOCK;
        let granted = if room * BLOCK < LEAST { 0 } else { bytes.min((room * PIECE).saturating_sub(length)) };
        if granted > 0 {
            self.set(key, stream, length + granted);
        }
        (granted, gone)
    }

    /// Sets the length of a stream to the bytes that were written.
    pub(super) fn settle(&mut self, key: Key, stream: usize, length: u64) {
        if self.calls.contains_key(&key) {
            self.set(key, stream, length);
        }
    }

    /// Returns true if the call has ended, or is not known.
    pub(super) fn is_finished(&self, key: Key) -> bool {
        self.calls.get(&key).is_none_or(|kept| kept.finished)
    }

    /// Notes that the call has ended.
    pub(super) fn finish(&mut self, key: Key) {
        if let Some(kept) = self.calls.get_mut(&key) {
            kept.finished = true;
        }
    }

    /// Forgets the oldest finished call, whose files the caller has to remove. Returns the call and its cost in bytes.
    pub(super) fn evict(&mut self) -> Option<(Key, u64)> {
        let (oldest, kept) = self.calls.iter().find(|(_, kept)| kept.finished)?;
        let gone = (*oldest, kept.cost());
        self.forget(gone.0);
        Some(gone)
    }

    /// Returns the bytes that forgetting all finished calls would free.
    pub(super) fn evictable(&self) -> u64 {
        self.calls.values().filter(|kept| kept.finished).map(Kept::cost).sum()
    }

    /// Forgets the oldest finished call if the account is over its limit.
    pub(super) fn shrink(&mut self) -> Option<Key> {
        if self.used > self.most { self.evict().map(|(oldest, _)| oldest) } else { None }
    }

    /// Forgets all calls of a run.
    pub(super) fn forget_run(&mut self, run: RunId) {
        let calls: Vec<_> = self.calls.keys().filter(|key| key.run == run).copied().collect();
        for key in calls {
            self.forget(key);
        }
    }

    fn forget(&mut self, key: Key) {
        if let Some(kept) = self.calls.remove(&key) {
            self.used -= kept.cost();
        }
    }

    fn set(&mut self, key: Key, stream: usize, length: u64) {
        let kept = self.calls.entry(key).or_default();
        let before = kept.cost();
        kept.lengths[stream] = length;
        self.used = self.used - before + kept.cost();
        if kept.cost() == 0 {
            self.calls.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {

    use identity::{CallId, RunId};

    use super::{BLOCK, Key, LEAST, Ledger, PIECE};

    /// Bytes of a stream that take [`LEAST`] on the disk.
    const FULL: u64 = LEAST / BLOCK * PIECE;

    fn key(run: RunId) -> Key {
        Key { call: CallId::new(), run }
    }

    #[test]
    fn the_oldest_finished_calls_go_first() {
        let run = RunId::new();
        let mut ledger = Ledger::new(4 * LEAST);
        let keys: Vec<_> = (0..4).map(|_| key(run)).collect();
        for key in &keys {
            assert_eq!(ledger.reserve(*key, 0, 1), (1, vec![]));
        }
        // The first still runs.
        ledger.finish(keys[2]);
        ledger.finish(keys[1]);
        let next = key(run);
        assert_eq!(ledger.reserve(next, 1, FULL), (FULL, vec![keys[1]]));
        assert_eq!(ledger.reserve(next, 1, 1), (1, vec![keys[2]]));
        // The rest runs: what fits is taken, and no more.
        assert_eq!(ledger.reserve(next, 1, FULL), (FULL - 1, vec![]));
        assert_eq!(ledger.reserve(next, 1, 1), (0, vec![]));
        assert_eq!(ledger.reserve(key(run), 0, 1), (0, vec![]));
        assert_eq!(ledger.used, 4 * LEAST);
    }

    #[test]
    fn small_files_count_as_whole_blocks() {
        let mut ledger = Ledger::new(10 * LEAST);
        let key = key(RunId::new());
        for (stream, bytes, used) in
            [(0, 1, LEAST), (0, FULL - 1, LEAST), (0, 1, LEAST + BLOCK), (1, 5, 2 * LEAST + BLOCK)]
        {
            assert_eq!(ledger.reserve(key, stream, bytes), (bytes, vec![]));
            assert_eq!(ledger.used, used);
        }
    }

    #[test]
    fn unwritten_reservation_is_returned() {
        let run = RunId::new();
        let mut ledger = Ledger::new(10 * LEAST);
        let (one, other) = (key(run), key(RunId::new()));
        ledger.reserve(one, 0, 5 * LEAST);
        ledger.settle(one, 0, 3);
        assert_eq!(ledger.used, LEAST);
        ledger.settle(one, 0, 0);
        assert_eq!((ledger.used, ledger.calls.len()), (0, 0));
        // Of a run that was deleted meanwhile nothing comes back.
        ledger.reserve(one, 0, 10);
        ledger.enter(other, 0, FULL);
        ledger.forget_run(run);
        ledger.settle(one, 0, 10);
        assert_eq!((ledger.used, ledger.calls.len()), (LEAST, 1));
    }

    #[test]
    fn a_smaller_limit_than_before_makes_the_oldest_go() {
        let run = RunId::new();
        let mut ledger = Ledger::new(LEAST);
        let keys: Vec<_> = (0..3).map(|_| key(run)).collect();
        for key in keys.iter().rev() {
            ledger.enter(*key, 0, 1);
        }
        let gone: Vec<_> = std::iter::from_fn(|| ledger.shrink()).collect();
        assert_eq!(gone, keys[..2]);
    }

    #[test]
    fn odd_sizes_overflow_nothing() {
        let mut ledger = Ledger::new(1 << 20);
        let key = key(RunId::new());
        assert_eq!(ledger.reserve(key, 0, u64::MAX), ((1 << 20) / BLOCK * PIECE, vec![]));
        let mut none = Ledger::new(5);
        assert_eq!(none.reserve(key, 0, u64::MAX), (0, vec![]));
    }
}
