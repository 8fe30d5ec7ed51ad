//! Warm containers: made, hardened, started, verified and greeted before a client asks for a run.
//!
//! ```text
//!  create ─► start ─► read back & compare ─► guest greeted ─► WAITS ─► claimed: mounts ─► read back & compare ─► a run's
//!                                                              └─► not wanted, lost, or the daemon stops ─► removed
//! ```
//!
//! A warm container has empty shared slots in place of a run's mounts (`warm.rs`). It belongs to one run and is removed with it. Until then
//! no record names it, so the next daemon removes it with all containers and mounts of no run.
//!
//! A run gets a warm container if its own would differ only in the mounts: image, limits and everything else in the digest of the
//! specification are equal. Otherwise, or if none waits, the run gets a new container.

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
pub(crate) use warm::{goes_with_another, mounts, reattach_slot};

/// An operator's setting for warm containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolEntry {
    /// Name of the profile. `None` is each profile that can have warm containers, with its own image.
    pub profile: Option<String>,
    /// The image. `None` is the profile's image, or else the default image.
    pub image: Option<ImageReference>,
    /// Number of containers that wait without demand.
    pub min: usize,
    /// Number of containers that wait at the highest demand.
    pub max: usize,
}

/// All warm containers of the daemon. A container that is taken out belongs to the taker.
#[derive(Default)]
pub struct Pool {
    entries: Vec<PoolEntry>,
    table: Mutex<Table>,
    /// Notified when a container was taken out.
    changed: Notify,
    /// True if a container that was taken out could not be used.
    has_failed: AtomicBool,
    maps: OwnerMaps,
}

/// Kinds, by the digest of their specification.
type Table = BTreeMap<String, Kind>;

/// Containers that are interchangeable.
struct Kind {
    /// Name for the log.
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

    /// Takes out the container that has waited longest, and counts the request.
    fn take(&self, digest: &str) -> Option<Warm> {
        let mut table = self.table.lock();
        let kind = table.get_mut(digest)?;
        kind.demand.note(Instant::now(), kind.max);
        self.changed.notify_one();
        // The pool's task removes containers that are lost.
        let first = kind.ready.iter().position(Warm::is_connected)?;
        kind.ready.remove(first)
    }
}
