//! Warm containers: made, hardened, started, verified and greeted before a client asks for a run.
//!
//! ```text
//!  create ─► start ─► read back & compare ─► guest greeted ─► WAITS ─► claimed: mounts ─► read back & compare ─► a run's
//!                                                              └─► not wanted, lost, or the daemon stops ─► removed
//! ```
//!
//! A warm container has empty shared slots in place of a run's mounts, and an empty layer in place of a run's writable root (`warm.rs`). It
//! belongs to one run and is removed with it. Until then no record names it, so the next daemon removes it with all containers, mounts and
//! layers of no run.
//!
//! A run gets a warm container if its own would differ only in what a claim brings: mounts, variables, and the name of its layer. Image,
//! limits and everything else in the digest of the specification are equal. Otherwise, or if none waits, the run gets a new container, and
//! its record says why.

mod keep;
mod memory;
mod warm;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use containers::{ImageReference, UsableImage};
use parking_lot::Mutex;
use tokio::sync::Notify;
use warm_pool::{Levels, NoneWaits, Table};

use crate::launch::Wanted;
use crate::launch::root::NewRoot;

use warm::Warm;
pub(crate) use warm::{goes_with_another, mounts, reattach_slot};

/// An operator's setting for warm containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolEntry {
    /// Name of the profile. `None` is each profile that can have warm containers, with its own image.
    pub profile: Option<String>,
    /// The image. `None` is the profile's image, or else the default image, and by demand any image of the profile.
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
    table: Mutex<Table<Make, Warm>>,
    /// Notified when a container was taken out, or a kind was added.
    changed: Notify,
    /// True if a container that was taken out could not be used.
    has_failed: AtomicBool,
    /// True if this host has no warm containers.
    is_unsupported: AtomicBool,
    /// True while no container may wait, because the node makes no runs.
    is_closed: AtomicBool,
}

/// How a container is made that waits for a run. It has nothing of the run.
#[derive(Clone)]
pub(super) struct Make {
    /// What the run will ask for, without variables.
    wanted: Wanted,
    image: UsableImage,
    /// The writable root, if the profile has one.
    root: Option<NewRoot>,
}

/// Returns the name of a kind for the log.
fn named(profile: &str, image: Option<&ImageReference>) -> String {
    format!("{profile}/{}", image.map_or("", ImageReference::as_str))
}

impl Pool {
    pub fn new(entries: Vec<PoolEntry>) -> Self {
        Self { entries, ..Self::default() }
    }

    /// Takes out the container that has waited longest, and counts the request.
    fn take(&self, key: &str) -> Result<Warm, NoneWaits> {
        // The pool's task removes containers that are lost.
        let taken = self.table.lock().take(key, Instant::now(), Warm::is_connected);
        self.changed.notify_one();
        taken
    }

    /// Closes the pool, which its task then empties, or opens it again.
    pub fn set_closed(&self, is_closed: bool) {
        self.is_closed.store(is_closed, Ordering::Release);
        self.changed.notify_one();
    }

    /// Returns how many containers of each kind wait and should wait, and what became of them so far.
    pub fn levels(&self) -> Levels {
        self.table.lock().levels(Instant::now())
    }

    /// Returns true if an entry of the configuration is for runs of this profile and image.
    fn serves(&self, profile: &str, image: Option<&ImageReference>) -> bool {
        self.entries.iter().any(|entry| {
            let has_profile = entry.profile.as_deref().is_none_or(|of| of == profile);
            has_profile && entry.image.as_ref().is_none_or(|of| Some(of) == image)
        })
    }

    /// Returns true if the configuration has an entry.
    fn serves_any(&self) -> bool {
        !self.entries.is_empty()
    }

    fn is_unsupported(&self) -> bool {
        self.is_unsupported.load(Ordering::Acquire)
    }
}
