//! Bytes of connections, by direction.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of one connection, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Bytes that programs sent.
    pub(crate) out: u64,
    /// Bytes that servers sent.
    pub(crate) into: u64,
}

impl Moved {
    /// Takes numbers that are larger, and returns the excess.
    pub(crate) fn raise(&mut self, out: u64, into: u64) -> Self {
        let more = Self { out: out.saturating_sub(self.out), into: into.saturating_sub(self.into) };
        *self = self.plus(more);
        more
    }

    pub(crate) fn plus(self, more: Self) -> Self {
        Self { out: self.out.saturating_add(more.out), into: self.into.saturating_add(more.into) }
    }

    pub(crate) fn sum(self) -> u64 {
        self.out.saturating_add(self.into)
    }
}

/// Bytes of the connections of all runs since the daemon's start.
#[derive(Debug, Default)]
pub struct Bytes {
    out: AtomicU64,
    into: AtomicU64,
}

impl Bytes {
    /// Returns the bytes that programs sent, and those that servers sent.
    pub fn counts(&self) -> [u64; 2] {
        [&self.out, &self.into].map(|side| side.load(Ordering::Relaxed))
    }

    pub(crate) fn add(&self, more: Moved) {
        for (side, more) in [(&self.out, more.out), (&self.into, more.into)] {
            let added = |count: u64| Some(count.saturating_add(more));
            // The closure always returns a number.
            let _ = side.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
        }
    }
}
