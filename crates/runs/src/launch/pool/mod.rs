//! Warm containers: made, hardened, started and verified, their guest greeted, before anybody asks for a run.
//!
//! ```text
//!  create ─► start ─► read back & compare ─► guest greeted ─► WAITS ─► claimed: mounts ─► read back & compare ─► a run's
//!                                                              └─► not wanted, lost, or the daemon stops ─► removed
//! ```
//!
//! A warm container has empty shared slots where a run has its mounts (`warm.rs`). It is one run's and goes with it. Until then
//! it is nobody's: no record names it, so the next daemon removes it with all containers and mounts of no run.
//!
//! A run gets one if nothing of its container differs but what is mounted: image, limits, everything in the digest of its
//! specification. Else, and when none waits, it gets a container of its own.

mod demand;
mod keep;
mod owner_maps;
mod warm;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use containers::{ImageReference, UsableImage};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::launch::Wanted;
use demand::Demand;
use owner_maps::OwnerMaps;

use warm::Warm;
pub(crate) use warm::{former, goes_with_another, mounts};

/// What an operator wants to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolEntry {
    /// `None`: each profile that can have warm containers, with its own image.
    pub profile: Option<String>,
    /// `None`: the profile's, or else the default image.
    pub image: Option<ImageReference>,
    /// So many wait if nobody asks.
    pub min: usize,
    /// So many wait if many ask.
    pub max: usize,
}

/// All warm containers of the daemon. Those that are taken out are the taker's.
#[derive(Default)]
pub struct Pool {
    entries: Vec<PoolEntry>,
    table: Mutex<Table>,
    /// Something was taken out.
    changed: Notify,
    /// Something that was taken out could not be used.
    has_failed: AtomicBool,
    maps: OwnerMaps,
}

/// By the digest of their specification.
type Table = BTreeMap<String, Kind>;

/// Containers that are interchangeable.
struct Kind {
    /// For the log.
    name: String,
    wanted: Wanted,
    image: UsableImage,
    min: usize,
    max: usize,
    demand: Demand,
    ready: VecDeque<Warm>,
}

impl Pool {
    pub fn new(entries: Vec<PoolEntry>) -> Self {
        Self { entries, ..Self::default() }
    }

    /// Takes the one out that has waited longest, and counts that it was asked for.
    fn take(&self, digest: &str) -> Option<Warm> {
        let mut table = self.table.lock();
        let kind = table.get_mut(digest)?;
        kind.demand.note(Instant::now(), kind.max);
        self.changed.notify_one();
        // What is lost is for the pool's task to remove.
        let first = kind.ready.iter().position(Warm::is_connected)?;
        kind.ready.remove(first)
    }
}
