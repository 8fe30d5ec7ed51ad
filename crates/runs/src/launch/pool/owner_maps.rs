//! Maps of owners, which runs of the same owner share: each takes a process to make.

use std::sync::Arc;

use containers::{IdMap, MountError, OwnerMap};
use parking_lot::Mutex;

/// Owners that are remembered. Each takes an open file.
const MOST: usize = 16;

/// Those that were used last, the oldest first.
#[derive(Default)]
pub(super) struct OwnerMaps(Mutex<Vec<(IdMap, Arc<OwnerMap>)>>);

impl OwnerMaps {
    pub(super) fn get(&self, map: IdMap) -> Result<Arc<OwnerMap>, MountError> {
        let mut known = self.0.lock();
        let found = known.iter().position(|(of, _)| *of == map).map(|at| known.remove(at).1);
        let made = match found {
            Some(made) => made,
            None => Arc::new(OwnerMap::new(map)?),
        };
        if known.len() >= MOST {
            known.remove(0);
        }
        known.push((map, made.clone()));
        Ok(made)
    }
}
