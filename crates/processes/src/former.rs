//! What a former daemon has left of processes: read before its runs are taken over, so that these are not ended there.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use identity::{CallId, RunId};
use refusal::chain;
use seal::StreamKey;

use crate::disk::{self, Edition, Known, Place};

/// The processes that were there.
#[derive(Default)]
pub struct Former(Vec<(Place, Edition, Known)>);

impl Former {
    /// Blocks on the disk.
    pub fn read(root: &Path, key: &StreamKey) -> io::Result<Self> {
        let mut known = Vec::new();
        for place in disk::all(root)? {
            match place.read(key) {
                Ok((edition, read)) => known.push((place, edition, read)),
                // One that was never begun, or cannot be read: nothing of it is spared.
                Err(error) => {
                    tracing::warn!(process = %place.id, error = %chain(&error), "what a former daemon knew of a process is removed");
                    place.remove()?;
                }
            }
        }
        Ok(Self(known))
    }

    /// The cgroups of those that may still live, by run.
    pub fn names(&self) -> BTreeMap<RunId, BTreeSet<String>> {
        let mut names: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (place, edition, _) in &self.0 {
            if *edition == Edition::Living {
                names.entry(place.run).or_default().insert(name(place.id));
            }
        }
        names
    }

    pub(crate) fn into_all(self) -> Vec<(Place, Edition, Known)> {
        self.0
    }
}

/// The name of a process's cgroups.
pub(crate) fn name(id: CallId) -> String {
    format!("process-{id}")
}
