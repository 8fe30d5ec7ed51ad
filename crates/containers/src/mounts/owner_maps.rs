//! Maps of owners, which runs of the same owner share. Each map needs a process to make.

use std::sync::Arc;

use parking_lot::Mutex;

use super::shared::OwnerMap;
use super::{IdMap, MountError};

/// Most owners that are remembered. Each keeps a file open.
const MOST: usize = 16;

/// The maps that were used last, oldest first.
#[derive(Default)]
pub struct OwnerMaps(Mutex<Vec<(IdMap, Arc<OwnerMap>)>>);

impl OwnerMaps {
    /// Returns the map, and makes it if it is not among those that were used last.
    pub fn get(&self, map: IdMap) -> Result<Arc<OwnerMap>, MountError> {
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
